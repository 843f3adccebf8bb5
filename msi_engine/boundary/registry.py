"""The names by which boundaries are chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msi_engine.boundary.paragraph import ParagraphBoundary
from msi_engine.boundary.predicate import BoundaryPredicate
from msi_engine.boundary.sentence import SentenceBoundary
from msi_engine.errors import ConfigError

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
