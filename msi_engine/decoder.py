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
from msi_engine.boundary import BoundaryPredicate
from msi_engine.bundle import ENDINGS
from msi_engine.config import DecodeConfig
from msi_engine.drawing import Drawer
from msi_engine.events import Collapsed, Event, Finished, RolledBack, Stats, Verified
from msi_engine.feed import BRANCH, Accept, CacheOp, Feed, Reject, Sweep, Turn
from msi_engine.growth import Growth, Means, Soil
from msi_engine.outlet import Outlet
from msi_engine.panel import ScorerPanel
from msi_engine.path import PathState
from msi_engine.refine import Refinement, by_path, logprobs
from msi_engine.sampling import NextToken, Proposal
from msi_engine.text import Vocabulary
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
        self._drawer = Drawer(config, proposal, seed)
        self._refinement = Refinement(
            config, proposal, vocabulary.eos_token_ids, num_prompt=len(prompt_tokens)
        )
        if config.refine != "off":
            self.stats.refinement = self._refinement.stats
        self._prompt_tokens = list(prompt_tokens)
        self._similarity = similarity
        self._outlet = Outlet(config.stop)
        self._detokenizer = vocabulary.detokenizer(prompt_tokens)
        self._means = Means(
            config,
            vocabulary,
            boundaries,
            panel,
            self._drawer,
            self._refinement,
            self._outlet,
            self.stats,
            prompt,
        )
        self._events: list[Event] = []
        self._ops: tuple[CacheOp, ...] = ()  # of segments that ended within the turn
        self._then: Callable[[_Rows], _Pass | None]  # what the pass under way is for
        # Of the segment under way
        self._growth: Growth
        self._root: NextToken
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
            own = self._growth.bundle.paths[path].tokens
        return [*self._prompt_tokens, *self.tokens, *own]

    def _turn(self, feed: _Pass | None) -> Turn:
        if isinstance(feed, Feed):
            self.stats.forward_passes += 1
            self.stats.forward_tokens += sum(map(len, feed.tokens))
        elif feed is not None:
            self._refinement.stats.sweeps += 1
        turn = Turn(tuple(self._events), self._ops + self._growth.tails.take_ops(), feed)
        self._events.clear()
        self._ops = ()
        return turn

    # A segment

    def _spawn(self, root: NextToken) -> _Pass | None:
        soil = Soil(root, self.text, len(self.tokens), self._detokenizer)
        self._root = root
        self._vote = None
        self._growth = Growth(self._means, soil, self._events)
        return self._grown(self._growth.start())

    def _grown(self, feed: Feed | None) -> _Pass | None:
        """Feed what the segment wants fed, or collapse it."""
        self._then = lambda rows: self._grown(self._growth.step(rows))
        return self._collapse() if feed is None else feed

    # Collapse

    def _collapse(self) -> _Pass | None:
        self._events += self._growth.bundle.settle()
        counted = self._growth.bundle.counted
        if self.config.refine == "rescore" and len(counted) > 1:
            return self._sweep(counted, self._choose_rescored)
        return self._choose()

    def _choose(self) -> _Pass | None:
        bundle = self._growth.bundle
        counted, shares = bundle.counted, bundle.credences()
        mode = self.config.effective_collapse
        choice = collapse.Choice(
            mode,
            [p.tokens for p in counted],
            [p.text for p in counted],
            self._similarity,
            lambda: self._drawer.collapse_stream(bundle.segment),
        )
        chosen = choice.segment(shares)
        others = {n: choice.segment(bundle.credences_without(n)) for n in self._means.panel.names}
        self._decided = tuple(name for name, other in others.items() if other != chosen)
        winner = next((p for p in counted if p.tokens == chosen), None)
        if winner is None:
            return self._begin_vote(chosen, counted[collapse.argmax(shares)])
        return self._conclude(winner, self._growth.rows.get(winner.index), mode)

    def _begin_vote(self, tokens: tuple[int, ...], fallback: PathState) -> Feed:
        """Run the voted segment on a branch of its own: it is none of the paths."""
        self._vote = Vote(tokens, fallback)
        self._growth.tails.branch(fallback.index)
        self._then = partial(self._end_vote, self._vote)
        ends = tokens[-1] in self._means.vocabulary.eos_token_ids
        return Feed((BRANCH,), (tokens[:-1] if ends else tokens,), all_positions=True)

    def _end_vote(self, vote: Vote, rows: _Rows) -> _Pass | None:
        path = self._growth.replay(BRANCH, vote.draws([self._root, *rows]))
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
            return self._conclude(
                winner, self._growth.rows.get(winner.index), "argmax", vote.note(path)
            )
        path.wait(self._growth.ending(path) or "vote")
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
        for path, own in by_path(self._growth.bundle.counted, rows):
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
        segment, winner = self._growth.bundle.segment, choice.winner
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
        winner = choice.winner
        draws = [*winner.draws[:position], row.draw(token, 0.0)]
        path = self._growth.replay(winner.index, draws)
        path.wait(self._growth.ending(path) or "rollback")
        self._growth.tails.merge(winner.index, position)
        kept = winner.texts[position - 1] if position else ""
        self._events.append(
            RolledBack(
                segment=self._growth.bundle.segment,
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
        bundle, winner = self._growth.bundle, choice.winner
        self._growth.tails.merge(winner.index)
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
        self._detokenizer = self._growth.detokenizers[winner.index]
        if winner.boundary in ENDINGS:
            self._finish(winner)
            return None
        self._events += self._outlet.offer(self.text)
        self._ops += self._growth.tails.take_ops()
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
