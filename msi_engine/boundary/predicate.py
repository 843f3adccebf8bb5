"""The interface of boundaries, and the names by which they are chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from msi_engine.boundary.paragraph import ParagraphBoundary
from msi_engine.boundary.sentence import SentenceBoundary
from msi_engine.errors import ConfigError


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


BoundaryFactory = Callable[[str], BoundaryPredicate]

# Always in force and part of the decoder itself: accepted as names, nothing is made for them.
_ALWAYS_ON = ("length", "eos", "stop")

_FACTORIES: dict[str, BoundaryFactory] = {
    SentenceBoundary.name: SentenceBoundary,
    ParagraphBoundary.name: lambda language: ParagraphBoundary(),
}


def register_boundary(name: str, factory: BoundaryFactory) -> None:
    """Make ``name`` known to `make_boundaries`.

    Args:
        name: As users will write it.
        factory: Called once per generation with the language of the answer (``en``).

    Raises:
        ConfigError: If there is a boundary of this name already.
    """
    if name in boundary_names():
        raise ConfigError(f"there is a boundary {name!r} already; register it under another name")
    _FACTORIES[name] = factory


def boundary_names() -> tuple[str, ...]:
    """Every name that `make_boundaries` accepts."""
    return (*_FACTORIES, *_ALWAYS_ON)


def make_boundaries(names: Sequence[str], *, language: str = "en") -> list[BoundaryPredicate]:
    """Build the boundaries of one generation, in the order of ``names``, each once.

    Args:
        names: ``sentence``, ``paragraph`` or a registered name. ``length``, ``eos`` and ``stop``
            are accepted and ignored: the decoder always has them.
        language: Language of the answer as an ISO 639 code, with or without a region (``pt-BR``).

    Raises:
        ConfigError: If a name is unknown.
    """
    known = boundary_names()
    for name in names:
        if name not in known:
            raise ConfigError(f"no boundary {name!r}; there are {', '.join(known)}")
    return [_FACTORIES[name](language) for name in dict.fromkeys(names) if name not in _ALWAYS_ON]
