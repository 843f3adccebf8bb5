"""The decoder: K paths step together until a boundary, one is committed, K start again.

A state machine (SPEC sections 2 to 6). It says which tokens to feed, is given next-token logits,
and returns events; it loads no model and touches no cache. One round is

    draw a token for every live path -> feed -> boundaries -> weights -> collapse or draw again

so that at a collapse the winner's next-token logits are at hand and the next spawn costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from msi_engine import collapse, credence
from msi_engine.boundary import BoundaryContext, BoundaryPredicate, StopStrings
from msi_engine.bundle import ENDINGS, Bundle
from msi_engine.config import DecodeConfig
from msi_engine.events import Collapsed, Committed, Event, Finished, Spawned, Stats
from msi_engine.feed import BRANCH, Branch, CacheOp, Drop, Feed, Fork, Merge, Park, Turn
from msi_engine.panel import ScorerPanel
from msi_engine.path import Draw, PathState, PathStatus
from msi_engine.sampling import NextToken, Proposal
from msi_engine.spawn import spawn
from msi_engine.text import Detokenizer, Vocabulary
from msi_engine.vote import Vote

# Streams of randomness beside those of the paths, which are numbered from 0.
_SPAWN_STREAM = 2**32 - 1
_COLLAPSE_STREAM = 2**32 - 2

_FINISH_REASONS = {"eos": "eos", "stop": "stop", "budget": "length"}


class Decoder:
    """One generation.

    Args:
        config: Every option.
        vocabulary: Token texts and the end-of-sequence tokens.
        boundaries: Where paths may be collapsed, beside the built-in ones.
        panel: The scorers.
        proposal: How tokens inside a path are drawn.
        seed: Root of all randomness, >= 0.
        prompt_tokens: The prompt as it was fed.
        prompt: The prompt as text, for the scorers.
        similarity: Text similarity for `mbr`.
    """

    def __init__(
        self,
        config: DecodeConfig,
        vocabulary: Vocabulary,
        boundaries: Sequence[BoundaryPredicate],
        panel: ScorerPanel,
        proposal: Proposal,
        *,
        seed: int,
        prompt_tokens: Sequence[int],
        prompt: str = "",
        similarity: collapse.Similarity = collapse.chrf_similarity,
    ) -> None:
        self.config = config
        self.stats = Stats(prompt_tokens=len(prompt_tokens))
        self.tokens: list[int] = []  # committed
        self.text = ""  # committed, without what a stop string cuts off
        self._vocabulary = vocabulary
        self._boundaries = boundaries
        self._panel = panel
        self._proposal = proposal
        self._seed = seed
        self._prompt_tokens = list(prompt_tokens)
        self._prompt = prompt
        self._similarity = similarity
        self._stops = StopStrings(config.stop)
        self._detokenizer = vocabulary.detokenizer(prompt_tokens)
        self._emitted = 0
        self._events: list[Event] = []
        self._ops: list[CacheOp] = []

    def start(self, root: NextToken) -> Turn:
        """Begin, given the logits after the prompt."""
        return self._turn(self._spawn(root))

    def advance(self, rows: Sequence[NextToken]) -> Turn:
        """Go on, given the logits that the last turn's feed led to.

        Args:
            rows: One for each row of the feed; for a feed of ``all_positions``, one for each
                token of its single row.
        """
        if self._vote is not None:
            return self._turn(self._end_vote(rows))
        for path, row in zip(self._bundle.live, rows, strict=True):
            self._rows[path.index] = row
            self._test_boundary(path, row)
        return self._turn(self._settle())

    def history(self, path: int | None) -> list[int]:
        """Prompt, committed tokens and, unless None, those of a path: a processor's view."""
        own: Sequence[int] = ()
        if path is not None:
            own = self._vote.tokens if path == BRANCH and self._vote else self._tokens_of(path)
        return [*self._prompt_tokens, *self.tokens, *own]

    def _tokens_of(self, path: int) -> tuple[int, ...]:
        return self._bundle.paths[path].tokens

    def _turn(self, feed: Feed | None) -> Turn:
        if feed is not None:
            self.stats.forward_passes += 1
            self.stats.forward_tokens += sum(map(len, feed.tokens))
        turn = Turn(tuple(self._events), tuple(self._ops), feed)
        self._events, self._ops = [], []
        return turn

    # Spawning and drawing

    def _spawn(self, root: NextToken) -> Feed | None:
        draws = self._first_draws(root)
        paths = [PathState(index) for index in range(len(draws))]
        self._root = root
        self._rows: dict[int, NextToken] = {}
        self._rngs: dict[int, np.random.Generator] = {}
        self._detokenizers = {p.index: self._detokenizer.fork() for p in paths}
        self._bundle = Bundle(
            self.config,
            self._panel,
            paths,
            segment=self.stats.collapses,
            prompt=self._prompt,
            committed=self.text,
        )
        self._align_left: int | None = None
        self._vote: Vote | None = None
        self._cached = {p.index for p in paths} if len(paths) > 1 else set()
        self._parked: set[int] = set()
        if self._cached:
            self._ops.append(Fork(len(paths)))
        self.stats.trajectories += len(paths)
        self._events.append(
            Spawned(
                self._bundle.segment,
                tuple(d.token for d in draws),
                tuple(d.logprob for d in draws),
            )
        )
        for path, draw in zip(paths, draws, strict=True):
            self._push(path, draw)
        return self._next_feed()

    def _first_draws(self, root: NextToken) -> list[Draw]:
        if self.config.k == 1:  # ordinary decoding: a first token like any other
            return [self._draw_single(root)]
        return spawn(
            root,
            self.config.k,
            temperature=self.config.spawn_temperature,
            min_p=self.config.spawn_min_p,
            rng=self._stream(_SPAWN_STREAM),
        )

    def _draw_single(self, row: NextToken) -> Draw:
        return row.draw(row.sampled, self._proposal.log_q(row, row.sampled))

    def _draw_all(self) -> None:
        chosen: dict[int, int] = {}  # tokens of earlier paths at this position
        greedy = self._align_left is not None
        for path in self._bundle.live:
            row = self._rows[path.index]
            if self.config.k == 1:
                draw = self._draw_single(row)
            else:
                rng = None if greedy or self._proposal.greedy else self._rng(path.index)
                logits = None if greedy else self._penalize(row, chosen)
                draw = self._proposal.draw(row, rng, logits)
            chosen[draw.token] = chosen.get(draw.token, 0) + 1
            self._push(path, draw)

    def _penalize(self, row: NextToken, chosen: dict[int, int]) -> np.ndarray | None:
        """Diverse beam search's Hamming penalty (Vijayakumar et al. 2016, arXiv:1610.02424)."""
        if not self.config.diversity or not chosen:
            return None
        logits = row.processed.copy()
        for token, times in chosen.items():
            logits[token] -= self.config.diversity * times
        return logits

    def _rng(self, path: int) -> np.random.Generator:
        if path not in self._rngs:
            self._rngs[path] = self._stream(path)
        return self._rngs[path]

    def _stream(self, number: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, self.stats.collapses, number])

    def _push(self, path: PathState, draw: Draw) -> None:
        """Append a token to a path, and stop the path where nothing may follow."""
        detokenizer = self._detokenizers[path.index]
        path.push(draw, detokenizer.push(draw.token), complete=detokenizer.complete)
        self.stats.path_tokens += 1
        ending = self._ending(path)
        if ending:
            path.wait(ending)

    def _ending(self, path: PathState) -> str | None:
        if path.draws[-1].token in self._vocabulary.eos_token_ids:
            return "eos"
        if self._stops.find(self.text + path.text, len(self.text)) is not None:
            return "stop"
        if len(self.tokens) + len(path) >= self.config.max_tokens:
            return "budget"
        return None

    def _next_feed(self) -> Feed | None:
        """Feed the newest token of every live path; settle at once where there is none."""
        live = self._bundle.live
        if not live:
            return self._settle()
        self._tell_cache()
        return Feed(
            paths=tuple(p.index for p in live) if self._cached else (),
            tokens=tuple((p.draws[-1].token,) for p in live),
        )

    def _tell_cache(self) -> None:
        """Say which tails are not needed any more, or not for now."""
        if not self._cached:
            return
        for path in self._bundle.paths:
            if path.status is PathStatus.DROPPED and path.index in self._cached:
                self._cached.discard(path.index)
                self._ops.append(Drop(path.index))
            if path.status is PathStatus.WAITING and path.index not in self._parked:
                self._parked.add(path.index)
                self._ops.append(Park(path.index))
        counted = self._bundle.counted
        if len(counted) == 1:  # the only one left may as well run straight on the prefix
            self._merge(counted[0].index)

    def _merge(self, path: int) -> None:
        if self._cached:
            self._ops.append(Merge(path))
            self._cached = set()

    # Boundaries and weights

    def _test_boundary(self, path: PathState, row: NextToken) -> None:
        context = BoundaryContext(
            committed=self.text,
            segment=path.text,
            num_tokens=len(path),
            complete=path.complete,
            end_mass=lambda: row.mass(self._vocabulary.end_mask_for(len(row.raw))),
        )
        for boundary in self._boundaries:
            if path.complete and boundary.reached(context):
                return path.wait(boundary.name)
        if len(path) >= self.config.segment_length:
            path.wait("length")
        return None

    def _settle(self) -> Feed | None:
        bundle = self._bundle
        step = max(map(len, bundle.counted))
        self._events += bundle.record_step(step)
        self._events += bundle.drop_duplicates()
        if self._align_left is None and bundle.majority_waits():
            self._align_left = self.config.align_steps
        if not bundle.live or self._align_left == 0:
            return self._collapse()
        if self._align_left is not None:
            self._align_left -= 1
        self._emit_survivor()
        self._draw_all()
        return self._next_feed()

    def _emit_survivor(self) -> None:
        """With one path left its text is final before the collapse."""
        counted = self._bundle.counted
        if len(counted) == 1:
            self._emit(self.text + counted[0].text)

    # Collapse

    def _collapse(self) -> Feed | None:
        self._events += self._bundle.settle()
        counted = self._bundle.counted
        shares = self._bundle.credences()
        mode = self.config.effective_collapse
        best = collapse.argmax(shares)
        if mode == "token_vote":
            voted = collapse.token_vote([p.tokens for p in counted], shares)
            same = [p for p in counted if p.tokens == voted]
            if not same:
                return self._begin_vote(voted, counted[best])
            return self._commit(same[0], self._rows.get(same[0].index), mode)
        if mode == "sample":
            best = collapse.sample(shares, self._stream(_COLLAPSE_STREAM))
        elif mode == "mbr":
            best = collapse.minimum_bayes_risk([p.text for p in counted], shares, self._similarity)
        return self._commit(counted[best], self._rows.get(counted[best].index), mode)

    def _begin_vote(self, tokens: tuple[int, ...], fallback: PathState) -> Feed:
        """Run the voted segment on a branch of its own: it is none of the paths."""
        eos = tokens[-1] in self._vocabulary.eos_token_ids
        self._vote = Vote(tokens, fallback)
        for path in self._bundle.paths:
            if path.index in self._cached and path is not fallback:
                self._ops.append(Drop(path.index))
        if fallback.index not in self._parked:
            self._ops.append(Park(fallback.index))
        self._ops.append(Branch())
        fed = tokens[:-1] if eos else tokens
        return Feed(paths=(BRANCH,), tokens=(fed,), all_positions=True)

    def _end_vote(self, rows: Sequence[NextToken]) -> Feed | None:
        vote = self._vote
        assert vote is not None
        path = vote.replay([self._root, *rows], self._detokenizer.fork())
        if vote.refused(path, self.config.vote_guard):
            winner = vote.fallback
            return self._commit(winner, self._rows.get(winner.index), "argmax", vote.note(path))
        path.wait(self._ending(path) or "vote")
        self._detokenizers[BRANCH] = vote.detokenizer
        return self._commit(path, rows[-1], "token_vote")

    def _commit(
        self, winner: PathState, row: NextToken | None, mode: str, note: str | None = None
    ) -> Feed | None:
        """The winner's segment becomes committed text; go on from there, or finish."""
        bundle = self._bundle
        if note is None and bundle.short_circuited:
            note = "short circuit"
        self._merge(winner.index)
        self._events.append(
            Collapsed(
                segment=bundle.segment,
                reason=winner.boundary or "majority",
                mode=mode,
                winner=winner.index if winner.index != BRANCH else None,
                tokens=winner.tokens,
                text=winner.text,
                paths=bundle.reports(),
                effective_sample_size=credence.effective_sample_size(bundle.credences()),
                note=note,
            )
        )
        self.stats.collapses += 1
        self.tokens += winner.tokens
        self._detokenizer: Detokenizer = self._detokenizers[winner.index]
        self.text += winner.text
        if winner.boundary in ENDINGS:
            return self._finish(winner.boundary)
        self._emit(self.text)
        assert row is not None  # only an ending leaves a path without next-token logits
        return self._spawn(row)

    def _emit(self, text: str) -> None:
        """Hand out what is final of ``text`` and cannot be the beginning of a stop string."""
        self._hand_out(text[: len(text) - self._stops.hold_back(text)])

    def _hand_out(self, text: str) -> None:
        if len(text) > self._emitted:
            self._events.append(Committed(text[self._emitted :]))
            self._emitted = len(text)

    def _finish(self, boundary: str) -> None:
        self.text += self._detokenizer.flush()
        cut = self._stops.find(self.text, 0) if boundary == "stop" else None
        self.text = self.text[:cut]
        self._hand_out(self.text)
        self.stats.output_tokens = len(self.tokens)
        self._events.append(Finished(_FINISH_REASONS[boundary], self.stats, self._seed))
