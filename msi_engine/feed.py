"""What the decoder asks of whoever holds the model and the cache.

The decoder itself touches neither. It hands out a `Turn`: operations for the cache, then tokens to
run in one forward pass, so that a driver may run rows of several generations together.
"""

from __future__ import annotations

from dataclasses import dataclass

from msi_engine.events import Event


@dataclass(frozen=True, slots=True)
class Fork:
    """Start ``num_paths`` empty tails over the prefix."""

    num_paths: int


@dataclass(frozen=True, slots=True)
class Park:
    """Keep a path's tail and feed it no more."""

    path: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget a path's tail."""

    path: int


@dataclass(frozen=True, slots=True)
class Merge:
    """Make a path's tail, or its first ``length`` tokens, part of the prefix; forget all others."""

    path: int
    length: int | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    """Start one more, empty tail, to run a segment that is none of the paths."""


@dataclass(frozen=True, slots=True)
class Accept:
    """The target keeps the first ``length`` tokens of a row of the last sweep, and no other row."""

    row: int
    length: int


@dataclass(frozen=True, slots=True)
class Reject:
    """The target keeps nothing of the last sweep."""


CacheOp = Fork | Park | Drop | Merge | Branch | Accept | Reject

BRANCH = -1
"""Path index of the branch."""


@dataclass(frozen=True, slots=True)
class Feed:
    """One forward pass.

    Attributes:
        paths: Path index of each row, ascending; None for a row that is no path's.
        tokens: Token ids, a row for each path, rows of one length.
        forked: False if the single row runs straight on the prefix.
        all_positions: True if the logits after every token are wanted, not only the last.
    """

    paths: tuple[int | None, ...]
    tokens: tuple[tuple[int, ...], ...]
    forked: bool = True
    all_positions: bool = False


@dataclass(frozen=True, slots=True)
class Sweep:
    """One pass of the target over candidates for the next segment.

    Wanted are its logits before each token of each row, row after row. Whatever was committed and
    the target has not seen goes before each row, in the same pass.

    Attributes:
        rows: Token ids; each row follows what is committed.
    """

    rows: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """What happened, and what to do next.

    Attributes:
        events: In order.
        ops: Operations on the caches, to be applied in order before the pass.
        feed: The pass wanted next, of the model or of the target; None when the generation is over.
    """

    events: tuple[Event, ...]
    ops: tuple[CacheOp, ...]
    feed: Feed | Sweep | None
