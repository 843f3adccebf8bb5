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
    """Make a path's tail part of the prefix and forget all others."""

    path: int


@dataclass(frozen=True, slots=True)
class Branch:
    """Start one more, empty tail, to run a segment that is none of the paths."""


CacheOp = Fork | Park | Drop | Merge | Branch

BRANCH = -1
"""Path index of the branch."""


@dataclass(frozen=True, slots=True)
class Feed:
    """One forward pass.

    Attributes:
        paths: Path index of each row, ascending.
        tokens: Token ids, a row for each path, rows of one length.
        forked: False if the single row runs straight on the prefix.
        all_positions: True if the logits after every token are wanted, not only the last.
    """

    paths: tuple[int, ...]
    tokens: tuple[tuple[int, ...], ...]
    forked: bool = True
    all_positions: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """What happened, and what to do next.

    Attributes:
        events: In order.
        ops: Operations on the cache, to be applied in order before the forward pass.
        feed: The forward pass wanted next; None when the generation is over.
    """

    events: tuple[Event, ...]
    ops: tuple[CacheOp, ...]
    feed: Feed | None
