"""Growth: the paths of one segment, token by token, until they are to be collapsed.

Drawing, endings, boundaries and weights. Knows what is committed and changes nothing of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msi_engine.boundary import BoundaryContext, BoundaryPredicate
from msi_engine.bundle import Bundle
from msi_engine.config import DecodeConfig
from msi_engine.drawing import Drawer
from msi_engine.events import Event, Spawned, Stats
from msi_engine.feed import Feed
from msi_engine.outlet import Outlet
from msi_engine.panel import ScorerPanel
from msi_engine.path import Draw, PathState
from msi_engine.refine import Refinement
from msi_engine.sampling import NextToken
from msi_engine.tails import Tails
from msi_engine.text import Detokenizer, Vocabulary


@dataclass(frozen=True, slots=True)
class Means:
    """What the segments of a generation are grown with.

    Attributes:
        config: Every option.
        vocabulary: Token texts and the end-of-sequence tokens.
        boundaries: Where paths may be collapsed, beside the built-in ones.
        panel: The scorers.
        drawer: Draws tokens.
        refinement: Remembers what they were drawn from, and limits the segment.
        outlet: Hands out final text.
        stats: What the generation has cost so far.
        prompt: The prompt as text, for the scorers.
    """

    config: DecodeConfig
    vocabulary: Vocabulary
    boundaries: Sequence[BoundaryPredicate]
    panel: ScorerPanel
    drawer: Drawer
    refinement: Refinement
    outlet: Outlet
    stats: Stats
    prompt: str


@dataclass(frozen=True, slots=True)
class Soil:
    """What a segment starts from.

    Attributes:
        root: Next-token logits after the committed text.
        text: The committed text.
        num_tokens: Committed tokens.
        detokenizer: Text state after them; copied, never moved.
    """

    root: NextToken
    text: str
    num_tokens: int
    detokenizer: Detokenizer


class Growth:
    """The segment under way.

    Args:
        means: What it is grown with.
        soil: What it starts from.
        events: Where it tells what happens.

    Attributes:
        bundle: The paths, weighed.
        tails: What the cache holds of them.
        rows: Next-token logits by path, after its last token that was fed.
        detokenizers: Text state by path.
    """

    def __init__(self, means: Means, soil: Soil, events: list[Event]) -> None:
        config = means.config
        number = means.stats.collapses
        self._means = means
        self._soil = soil
        self._events = events
        self._first = means.drawer.first(soil.root, number)
        paths = [PathState(index) for index in range(len(self._first))]
        self.rows: dict[int, NextToken] = {}
        self.detokenizers = {p.index: soil.detokenizer.fork() for p in paths}
        self.bundle = Bundle(
            config,
            means.panel,
            paths,
            segment=number,
            prompt=means.prompt,
            committed=soil.text,
        )
        self.tails = Tails(len(paths), revocable=config.verifies)
        means.refinement.begin(soil.root)
        self._cap = means.refinement.segment_length(soil.num_tokens)
        self._align_left: int | None = None  # greedy tokens left to stragglers

    def start(self) -> Feed | None:
        """Take the first tokens. The pass wanted next; None when the bundle is to be collapsed."""
        self._means.stats.trajectories += len(self._first)
        tokens, logprobs = zip(*((d.token, d.logprob) for d in self._first), strict=True)
        self._events.append(Spawned(self.bundle.segment, tokens, logprobs))
        return self._push_all(self.bundle.paths, self._first)

    def step(self, rows: Sequence[NextToken]) -> Feed | None:
        """Go on, given the logits after the last feed, one row for each live path."""
        for path, row in zip(self.bundle.live, rows, strict=True):
            self.rows[path.index] = row
            self._test_boundary(path, row)
        return self._settle()

    def ending(self, path: PathState) -> str | None:
        """Why nothing can follow the path's last token, if so."""
        if path.draws[-1].token in self._means.vocabulary.eos_token_ids:
            return "eos"
        if self._means.outlet.stops(self._soil.text, path.text):
            return "stop"
        if self._soil.num_tokens + len(path) >= self._means.config.max_tokens:
            return "budget"
        return None

    def replay(self, index: int, draws: Sequence[Draw]) -> PathState:
        """A path of these draws; its text is decoded from where the segment starts."""
        detokenizer = self._soil.detokenizer.fork()
        path = PathState(index)
        for draw in draws:
            path.push(draw, detokenizer.push(draw.token), complete=detokenizer.complete)
        self.detokenizers[index] = detokenizer
        return path

    # Drawing

    def _draw(self) -> Feed | None:
        means, live = self._means, self.bundle.live
        for path in live:
            means.refinement.remember(path.index, self.rows[path.index])
        greedy = self._align_left is not None
        draws = means.drawer.next(live, self.rows, self.bundle.segment, greedy=greedy)
        return self._push_all(live, draws)

    def _push_all(self, paths: Sequence[PathState], draws: Sequence[Draw]) -> Feed | None:
        """Append a token to each path and feed it; settle at once where none can be fed."""
        means = self._means
        for path, draw in zip(paths, draws, strict=True):
            detokenizer = self.detokenizers[path.index]
            path.push(draw, detokenizer.push(draw.token), complete=detokenizer.complete)
            if ending := self.ending(path):
                path.wait(ending)
        means.stats.path_tokens += len(draws)
        counted, live = self.bundle.counted, self.bundle.live
        if len(counted) == 1 and not means.config.verifies:  # the only path's text is final
            self._events += means.outlet.offer(self._soil.text + counted[0].text)
        if not live:
            return self._settle()
        self.bundle.prepare()
        self.tails.follow(self.bundle.paths)
        return Feed(
            paths=tuple(p.index for p in live),
            tokens=tuple((p.draws[-1].token,) for p in live),
            forked=self.tails.forked,
        )

    # Boundaries and weights

    def _test_boundary(self, path: PathState, row: NextToken) -> None:
        means = self._means
        context = BoundaryContext(
            committed=self._soil.text,
            segment=path.text,
            num_tokens=len(path),
            complete=path.complete,
            end_mass=lambda: row.mass(means.vocabulary.end_mask_for(len(row.raw))),
        )
        # A single path that is verified has nothing to wait for but the target.
        boundaries = () if means.config.k == 1 and means.config.verifies else means.boundaries
        reached = (b.name for b in boundaries if path.complete and b.reached(context))
        if name := next(reached, None):
            path.wait(name)
        elif len(path) >= self._cap:
            path.wait("length")
        elif path.complete and self._forced and row.has_choice:
            path.wait("choice")

    @property
    def _forced(self) -> bool:
        """True if the spawn had no choice; the first choice after it is for K paths."""
        return self._means.config.k > 1 and not self._soil.root.has_choice

    def _settle(self) -> Feed | None:
        bundle = self.bundle
        self._events += bundle.record_step(max(map(len, bundle.counted)))
        self._events += bundle.drop_duplicates()
        if self._align_left is None and bundle.majority_waits():
            self._align_left = self._means.config.align_steps
        if not bundle.live or self._align_left == 0:
            return None
        if self._align_left is not None:
            self._align_left -= 1
        return self._draw()
