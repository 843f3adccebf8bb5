"""The decoder: K paths step together until a boundary, one is committed, K start again.

A state machine (docs/decoder.md has its rules). It says which tokens to feed, is given next-token
logits, and returns events; it loads no model and touches no cache. One round is

    draw a token for every live path -> feed -> boundaries -> weights -> collapse or draw again

so that at a collapse the winner's next-token logits are at hand and the next spawn costs nothing.
With refinement a round also asks the target: about every path before the collapse (`rescore`), or
about the winner before it is committed, which may cost it its last tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from msi_engine import collapse, credence
from msi_engine.boundary import BoundaryContext, BoundaryPredicate
from msi_engine.bundle import ENDINGS, Bundle
from msi_engine.config import DecodeConfig
from msi_engine.drawing import Drawer
from msi_engine.events import Collapsed, Event, Finished, RolledBack, Spawned, Stats, Verified
from msi_engine.feed import BRANCH, Accept, CacheOp, Feed, Reject, Sweep, Turn
from msi_engine.outlet import Outlet
from msi_engine.panel import ScorerPanel
from msi_engine.path import Draw, PathState
from msi_engine.refine import Refinement, by_path, logprobs
from msi_engine.sampling import NextToken, Proposal
from msi_engine.tails import Tails
from msi_engine.text import Detokenizer, Vocabulary
from msi_engine.vote import Vote

_Rows = Sequence[NextToken]
_Pass = Feed | Sweep

_FINISH_REASONS = {"eos": "eos", "stop": "stop", "budget": "length"}


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The segment about to be committed, and the draft's logits after it, if it was fed whole."""

    winner: PathState
    row: NextToken | None
    mode: str
    note: str | None = None


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
        self._refinement = Refinement(config, proposal, vocabulary.eos_token_ids)
        if config.refine != "off":
            self.stats.refinement = self._refinement.stats
        self._prompt_tokens = list(prompt_tokens)
        self._prompt = prompt
        self._similarity = similarity
        self._outlet = Outlet(config.stop)
        self._detokenizer = vocabulary.detokenizer(prompt_tokens)
        self._events: list[Event] = []
        self._ops: tuple[CacheOp, ...] = ()  # of segments that ended within the turn
        # Of the segment under way, set anew by `_spawn`
        self._then: Callable[[_Rows], _Pass | None]  # what the pass under way is for
        self._root: NextToken
        self._bundle: Bundle
        self._segment_length = 0  # cap on the paths
        self._tails: Tails
        self._detokenizers: dict[int, Detokenizer] = {}  # by path
        self._rows: dict[int, NextToken] = {}  # next-token logits by path
        self._align_left: int | None = None  # greedy tokens left to stragglers
        self._vote: Vote | None = None
        self._swept: tuple[int, ...] = ()  # paths that the target has read and not settled
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
            rows: One for each row of the feed; for a feed of ``all_positions`` or a sweep, one
                for each token of each row.
        """
        return self._turn(self._then(rows))

    def history(self, path: int | None) -> list[int]:
        """Prompt, committed tokens and, unless None, those of a path: a processor's view."""
        own: tuple[int, ...] = ()
        if path == BRANCH and self._vote is not None:
            own = self._vote.tokens
        elif path is not None:
            own = self._bundle.paths[path].tokens
        return [*self._prompt_tokens, *self.tokens, *own]

    def _turn(self, feed: _Pass | None) -> Turn:
        if isinstance(feed, Feed):
            self.stats.forward_passes += 1
            self.stats.forward_tokens += sum(map(len, feed.tokens))
        elif feed is not None:
            self._refinement.stats.sweeps += 1
        turn = Turn(tuple(self._events), self._ops + self._tails.take_ops(), feed)
        self._events, self._ops = [], ()
        return turn

    # Drawing

    def _spawn(self, root: NextToken) -> _Pass | None:
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
        self._refinement.begin(root)
        self._segment_length = self._refinement.segment_length(len(self.tokens))
        self._tails = Tails(len(paths), revocable=self.config.verifies)
        self._align_left = None
        self._vote = None
        self.stats.trajectories += len(paths)
        tokens, logprobs = zip(*((d.token, d.logprob) for d in draws), strict=True)
        self._events.append(Spawned(segment, tokens, logprobs))
        return self._push_all(paths, draws)

    def _draw(self) -> _Pass | None:
        greedy = self._align_left is not None
        live = self._bundle.live
        for path in live:
            self._refinement.remember(path.index, self._rows[path.index])
        draws = self._drawer.next(live, self._rows, self._bundle.segment, greedy=greedy)
        return self._push_all(live, draws)

    def _push_all(self, paths: Sequence[PathState], draws: Sequence[Draw]) -> _Pass | None:
        """Append a token to each path and feed it; settle at once where none can be fed."""
        for path, draw in zip(paths, draws, strict=True):
            detokenizer = self._detokenizers[path.index]
            path.push(draw, detokenizer.push(draw.token), complete=detokenizer.complete)
            if ending := self._ending(path):
                path.wait(ending)
        self.stats.path_tokens += len(draws)
        counted, live = self._bundle.counted, self._bundle.live
        if len(counted) == 1 and not self.config.verifies:  # the only path's text is final
            self._events += self._outlet.offer(self.text + counted[0].text)
        if not live:
            return self._settle()
        self._bundle.prepare()
        self._tails.follow(self._bundle.paths)
        self._then = self._step
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

    def _step(self, rows: _Rows) -> _Pass | None:
        for path, row in zip(self._bundle.live, rows, strict=True):
            self._rows[path.index] = row
            self._test_boundary(path, row)
        return self._settle()

    def _test_boundary(self, path: PathState, row: NextToken) -> None:
        context = BoundaryContext(
            committed=self.text,
            segment=path.text,
            num_tokens=len(path),
            complete=path.complete,
            end_mass=lambda: row.mass(self._vocabulary.end_mask_for(len(row.raw))),
        )
        # A single path that is verified has nothing to wait for but the target.
        boundaries = () if self.config.k == 1 and self.config.verifies else self._boundaries
        reached = (b.name for b in boundaries if path.complete and b.reached(context))
        if name := next(reached, None):
            path.wait(name)
        elif len(path) >= self._segment_length:
            path.wait("length")
        elif path.complete and self._forced and row.has_choice:
            path.wait("choice")

    @property
    def _forced(self) -> bool:
        """True if the spawn had no choice; the first choice after it is for K paths."""
        return self.config.k > 1 and not self._root.has_choice

    def _settle(self) -> _Pass | None:
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

    def _collapse(self) -> _Pass | None:
        self._events += self._bundle.settle()
        counted = self._bundle.counted
        if self.config.refine == "rescore" and len(counted) > 1:
            return self._sweep(counted, self._choose_rescored)
        return self._choose()

    def _choose(self) -> _Pass | None:
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
        return self._conclude(winner, self._rows.get(winner.index), mode)

    def _begin_vote(self, tokens: tuple[int, ...], fallback: PathState) -> Feed:
        """Run the voted segment on a branch of its own: it is none of the paths."""
        self._vote = Vote(tokens, fallback)
        self._tails.branch(fallback.index)
        self._then = partial(self._end_vote, self._vote)
        ends = tokens[-1] in self._vocabulary.eos_token_ids
        return Feed((BRANCH,), (tokens[:-1] if ends else tokens,), all_positions=True)

    def _end_vote(self, vote: Vote, rows: _Rows) -> _Pass | None:
        detokenizer = self._detokenizer.fork()
        path = vote.replay([self._root, *rows], detokenizer)
        self._detokenizers[BRANCH] = detokenizer
        self._refinement.remember_all(BRANCH, rows)
        if self.config.refine == "rescore":  # as its rivals were
            return self._sweep([path], partial(self._guard_vote, vote, path, rows[-1]))
        return self._guard_vote(vote, path, rows[-1], ())

    def _guard_vote(
        self, vote: Vote, path: PathState, row: NextToken, targets: _Rows
    ) -> _Pass | None:
        if targets:
            path.replace_logprobs(logprobs(path, targets))
        if vote.refused(path, self.config.vote_guard):
            winner = vote.fallback
            return self._conclude(winner, self._rows.get(winner.index), "argmax", vote.note(path))
        path.wait(self._ending(path) or "vote")
        return self._conclude(path, row, "token_vote")

    # Asking the target

    def _sweep(self, paths: Sequence[PathState], then: Callable[[_Rows], _Pass | None]) -> Sweep:
        """Have the target read segments, and go on with what it says of them."""
        if self._swept:
            self._ops += (Reject(),)
        self._swept = tuple(p.index for p in paths)
        self._then = then
        return Sweep(tuple(p.tokens for p in paths))

    def _choose_rescored(self, rows: _Rows) -> _Pass | None:
        for path, own in by_path(self._bundle.counted, rows):
            path.replace_logprobs(logprobs(path, own))
        return self._choose()

    def _conclude(
        self, winner: PathState, row: NextToken | None, mode: str, note: str | None = None
    ) -> _Pass | None:
        """Commit the winner, once the target has agreed where it has to be asked."""
        choice = _Chosen(winner, row, mode, note)
        if not self.config.verifies:
            return self._commit(choice)
        flagged = self._refinement.flagged(winner)
        if flagged:
            return self._sweep([winner], partial(self._verify, choice, flagged))
        self._refinement.account(winner, (), len(winner))
        return self._commit(choice)

    def _verify(self, choice: _Chosen, flagged: tuple[int, ...], rows: _Rows) -> _Pass | None:
        segment, winner = self._bundle.segment, choice.winner
        rng = self._drawer.verify_stream(segment)
        verdict = self._refinement.judge(winner, flagged, rows, rng)
        self._refinement.account(winner, flagged, verdict.accepted)
        self._events.append(Verified(segment, len(winner), verdict.checked, verdict.accepted))
        if verdict.token is None:
            return self._commit(choice)
        return self._roll_back(choice, verdict.accepted, rows[verdict.accepted], verdict.token)

    def _roll_back(
        self, choice: _Chosen, position: int, row: NextToken, token: int
    ) -> _Pass | None:
        """Commit the winner's first tokens, then the target's token in place of the rest.

        Nothing of the segment has touched the state before it, so that going back is to begin
        there again: texts are decoded anew, and draws to come have streams of their own.
        """
        winner, detokenizer = choice.winner, self._detokenizer.fork()
        path = PathState(winner.index)
        for draw in (*winner.draws[:position], row.draw(token, 0.0)):
            path.push(draw, detokenizer.push(draw.token), complete=detokenizer.complete)
        path.wait(self._ending(path) or "rollback")
        self._detokenizers[winner.index] = detokenizer
        self._tails.merge(winner.index, position)
        kept = winner.texts[position - 1] if position else ""
        self._events.append(
            RolledBack(
                segment=self._bundle.segment,
                position=position,
                discarded=winner.tokens[position:],
                token=token,
                text=winner.text[len(kept) :],
                instead=path.text[len(kept) :],
            )
        )
        return self._commit(_Chosen(path, None, choice.mode, choice.note))

    # Committing

    def _commit(self, choice: _Chosen) -> _Pass | None:
        """The segment becomes committed text; go on from there, or finish."""
        bundle, winner = self._bundle, choice.winner
        self._tails.merge(winner.index)
        self._settle_target(winner)
        self._events.append(
            Collapsed(
                segment=bundle.segment,
                reason=winner.boundary or "majority",
                mode=choice.mode,
                winner=winner.index if winner.index != BRANCH else None,
                tokens=winner.tokens,
                text=winner.text,
                paths=bundle.reports(),
                effective_sample_size=credence.effective_sample_size(bundle.credences()),
                note=choice.note or ("short circuit" if bundle.short_circuited else None),
                decided=self._decided,
            )
        )
        self.stats.collapses += 1
        for name in self._decided:
            self.stats.decided[name] += 1
        self.tokens += winner.tokens
        self.text += winner.text
        self._detokenizer = self._detokenizers[winner.index]
        if winner.boundary in ENDINGS:
            self._finish(winner)
            return None
        self._events += self._outlet.offer(self.text)
        self._ops += self._tails.take_ops()
        if choice.row is not None:
            return self._spawn(choice.row)
        self._then = lambda rows: self._spawn(rows[0])
        return Feed((None,), ((winner.tokens[-1],),), forked=False)

    def _settle_target(self, winner: PathState) -> None:
        """Let the target keep what it has read of the segment: all but the last token."""
        if winner.index in self._swept:
            self._ops += (Accept(self._swept.index(winner.index), len(winner) - 1),)
        elif self._swept:
            self._ops += (Reject(),)
        self._swept = ()

    def _finish(self, winner: PathState) -> None:
        """Close the answer. A character that was never completed is not part of it."""
        self.text += self._detokenizer.flush().rstrip("\ufffd")
        self.text, events = self._outlet.close(self.text)
        self._events += events
        self.stats.output_tokens = len(self.tokens)
        reason = _FINISH_REASONS[winner.boundary or "budget"]
        self._events.append(Finished(reason, self.stats, self.seed))
