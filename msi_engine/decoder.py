"""The decoder: K paths step together until a boundary, one is committed, K start again.

A state machine (docs/decoder.md has its rules). It says which tokens to feed, is given next-token
logits, and returns events; it loads no model and touches no cache. One round is

    draw a token for every live path -> feed -> boundaries -> weights -> collapse or draw again

so that at a collapse the winner's next-token logits are at hand and the next spawn costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from msi_engine import collapse, credence
from msi_engine.boundary import BoundaryContext, BoundaryPredicate
from msi_engine.bundle import ENDINGS, Bundle
from msi_engine.config import DecodeConfig
from msi_engine.drawing import Drawer
from msi_engine.events import Collapsed, Event, Finished, Spawned, Stats
from msi_engine.feed import BRANCH, CacheOp, Feed, Turn
from msi_engine.outlet import Outlet
from msi_engine.panel import ScorerPanel
from msi_engine.path import Draw, PathState
from msi_engine.sampling import NextToken, Proposal
from msi_engine.tails import Tails
from msi_engine.text import Detokenizer, Vocabulary
from msi_engine.vote import Vote

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

    Attributes:
        stats: What the generation has cost so far.
        tokens: The committed tokens so far.
        text: The committed text so far.
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
        self.stats = Stats(
            prompt_tokens=len(prompt_tokens),
            scorer_calls=panel.calls,
            scorer_s=panel.seconds,
            decided=dict.fromkeys(panel.names, 0),
        )
        self.tokens: list[int] = []
        self.text = ""
        self._vocabulary = vocabulary
        self._boundaries = boundaries
        self._panel = panel
        self._drawer = Drawer(config, proposal, seed)
        self._prompt_tokens = list(prompt_tokens)
        self._prompt = prompt
        self._similarity = similarity
        self._outlet = Outlet(config.stop)
        self._detokenizer = vocabulary.detokenizer(prompt_tokens)
        self._events: list[Event] = []
        self._ops: tuple[CacheOp, ...] = ()  # of segments that ended within the turn
        # Of the segment under way, set anew by `_spawn`
        self._root: NextToken
        self._bundle: Bundle
        self._tails: Tails
        self._detokenizers: dict[int, Detokenizer] = {}  # by path
        self._rows: dict[int, NextToken] = {}  # next-token logits by path
        self._align_left: int | None = None  # greedy tokens left to stragglers
        self._vote: Vote | None = None
        self._decided: tuple[str, ...] = ()  # scorers that decided the collapse

    @property
    def seed(self) -> int:
        """Root of all randomness."""
        return self._drawer.seed

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
            return self._turn(self._end_vote(self._vote, rows))
        for path, row in zip(self._bundle.live, rows, strict=True):
            self._rows[path.index] = row
            self._test_boundary(path, row)
        return self._turn(self._settle())

    def history(self, path: int | None) -> list[int]:
        """Prompt, committed tokens and, unless None, those of a path: a processor's view."""
        own: tuple[int, ...] = ()
        if path == BRANCH and self._vote is not None:
            own = self._vote.tokens
        elif path is not None:
            own = self._bundle.paths[path].tokens
        return [*self._prompt_tokens, *self.tokens, *own]

    def _turn(self, feed: Feed | None) -> Turn:
        if feed is not None:
            self.stats.forward_passes += 1
            self.stats.forward_tokens += sum(map(len, feed.tokens))
        turn = Turn(tuple(self._events), self._ops + self._tails.take_ops(), feed)
        self._events, self._ops = [], ()
        return turn

    # Drawing

    def _spawn(self, root: NextToken) -> Feed | None:
        segment = self.stats.collapses
        draws = self._drawer.first(root, segment)
        paths = [PathState(index) for index in range(len(draws))]
        self._root = root
        self._rows = {}
        self._detokenizers = {p.index: self._detokenizer.fork() for p in paths}
        self._bundle = Bundle(
            self.config,
            self._panel,
            paths,
            segment=segment,
            prompt=self._prompt,
            committed=self.text,
        )
        self._tails = Tails(len(paths))
        self._align_left = None
        self._vote = None
        self.stats.trajectories += len(paths)
        tokens, logprobs = zip(*((d.token, d.logprob) for d in draws), strict=True)
        self._events.append(Spawned(segment, tokens, logprobs))
        return self._push_all(paths, draws)

    def _draw(self) -> Feed | None:
        greedy = self._align_left is not None
        live = self._bundle.live
        draws = self._drawer.next(live, self._rows, self._bundle.segment, greedy=greedy)
        return self._push_all(live, draws)

    def _push_all(self, paths: Sequence[PathState], draws: Sequence[Draw]) -> Feed | None:
        """Append a token to each path and feed it; settle at once where none can be fed."""
        for path, draw in zip(paths, draws, strict=True):
            detokenizer = self._detokenizers[path.index]
            path.push(draw, detokenizer.push(draw.token), complete=detokenizer.complete)
            if ending := self._ending(path):
                path.wait(ending)
        self.stats.path_tokens += len(draws)
        counted, live = self._bundle.counted, self._bundle.live
        if len(counted) == 1:  # the text of the only path left is final
            self._events += self._outlet.offer(self.text + counted[0].text)
        if not live:
            return self._settle()
        self._tails.follow(self._bundle.paths)
        return Feed(
            paths=tuple(p.index for p in live),
            tokens=tuple((p.draws[-1].token,) for p in live),
            forked=self._tails.forked,
        )

    def _ending(self, path: PathState) -> str | None:
        """Why nothing can follow the path's last token, if so."""
        if path.draws[-1].token in self._vocabulary.eos_token_ids:
            return "eos"
        if self._outlet.stops(self.text, path.text):
            return "stop"
        if len(self.tokens) + len(path) >= self.config.max_tokens:
            return "budget"
        return None

    # Boundaries and weights

    def _test_boundary(self, path: PathState, row: NextToken) -> None:
        context = BoundaryContext(
            committed=self.text,
            segment=path.text,
            num_tokens=len(path),
            complete=path.complete,
            end_mass=lambda: row.mass(self._vocabulary.end_mask_for(len(row.raw))),
        )
        reached = (b.name for b in self._boundaries if path.complete and b.reached(context))
        if name := next(reached, None):
            path.wait(name)
        elif len(path) >= self.config.segment_length:
            path.wait("length")
        elif path.complete and self._forced and row.has_choice:
            path.wait("choice")

    @property
    def _forced(self) -> bool:
        """True if the spawn had no choice; the first choice after it is for K paths."""
        return self.config.k > 1 and not self._root.has_choice

    def _settle(self) -> Feed | None:
        bundle = self._bundle
        self._events += bundle.record_step(max(map(len, bundle.counted)))
        self._events += bundle.drop_duplicates()
        if self._align_left is None and bundle.majority_waits():
            self._align_left = self.config.align_steps
        if not bundle.live or self._align_left == 0:
            return self._collapse()
        if self._align_left is not None:
            self._align_left -= 1
        return self._draw()

    # Collapse

    def _collapse(self) -> Feed | None:
        self._events += self._bundle.settle()
        bundle, counted, shares = self._bundle, self._bundle.counted, self._bundle.credences()
        mode = self.config.effective_collapse
        choice = collapse.Choice(
            mode,
            [p.tokens for p in counted],
            [p.text for p in counted],
            self._similarity,
            lambda: self._drawer.collapse_stream(bundle.segment),
        )
        chosen = choice.segment(shares)
        others = {n: choice.segment(bundle.credences_without(n)) for n in self._panel.names}
        self._decided = tuple(name for name, other in others.items() if other != chosen)
        winner = next((p for p in counted if p.tokens == chosen), None)
        if winner is None:
            return self._begin_vote(chosen, counted[collapse.argmax(shares)])
        return self._commit(winner, self._rows.get(winner.index), mode)

    def _begin_vote(self, tokens: tuple[int, ...], fallback: PathState) -> Feed:
        """Run the voted segment on a branch of its own: it is none of the paths."""
        self._vote = Vote(tokens, fallback)
        self._tails.branch(fallback.index)
        ends = tokens[-1] in self._vocabulary.eos_token_ids
        return Feed((BRANCH,), (tokens[:-1] if ends else tokens,), all_positions=True)

    def _end_vote(self, vote: Vote, rows: Sequence[NextToken]) -> Feed | None:
        detokenizer = self._detokenizer.fork()
        path = vote.replay([self._root, *rows], detokenizer)
        if vote.refused(path, self.config.vote_guard):
            winner = vote.fallback
            return self._commit(winner, self._rows.get(winner.index), "argmax", vote.note(path))
        path.wait(self._ending(path) or "vote")
        self._detokenizers[BRANCH] = detokenizer
        return self._commit(path, rows[-1], "token_vote")

    def _commit(
        self, winner: PathState, row: NextToken | None, mode: str, note: str | None = None
    ) -> Feed | None:
        """The winner's segment becomes committed text; go on from there, or finish."""
        bundle = self._bundle
        self._tails.merge(winner.index)
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
                note=note or ("short circuit" if bundle.short_circuited else None),
                decided=self._decided,
            )
        )
        self.stats.collapses += 1
        for name in self._decided:
            self.stats.decided[name] += 1
        self.tokens += winner.tokens
        self.text += winner.text
        self._detokenizer = self._detokenizers[winner.index]
        if row is None or winner.boundary in ENDINGS:
            self._finish(winner)
            return None
        self._events += self._outlet.offer(self.text)
        self._ops += self._tails.take_ops()
        return self._spawn(row)

    def _finish(self, winner: PathState) -> None:
        """Close the answer. A character that was never completed is not part of it."""
        self.text += self._detokenizer.flush().rstrip("\ufffd")
        self.text, events = self._outlet.close(self.text)
        self._events += events
        self.stats.output_tokens = len(self.tokens)
        reason = _FINISH_REASONS[winner.boundary or "budget"]
        self._events.append(Finished(reason, self.stats, self.seed))
