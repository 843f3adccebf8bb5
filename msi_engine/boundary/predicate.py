"""The interface of boundaries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class BoundaryContext:
    """What a boundary is decided on, after each token of a path.

    Attributes:
        committed: The answer's text committed so far.
        segment: This path's text since the last collapse.
        num_tokens: Tokens in the segment.
        complete: False while the last token leaves a character incomplete.
        end_mass: The model's probability that the next token begins with white space or a
            newline, or ends the sequence, in [0, 1]. Asked for only where it decides.
    """

    committed: str
    segment: str
    num_tokens: int
    complete: bool
    end_mass: Callable[[], float]


class BoundaryPredicate(Protocol):
    """Decides, from the text alone, whether a path has come to a place to stop.

    It keeps no state that changes its answers, so that a path can be rolled back.
    """

    name: str

    def reached(self, context: BoundaryContext) -> bool:
        """Whether the segment, as it stands, ends at this kind of boundary."""
        ...
