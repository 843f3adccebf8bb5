"""Feature spaces: texts to vectors in which registers and archetypes have a place.

The built-in one is ``register``. An installed package adds another with an entry point of the
group ``msi.features`` that names a function of no arguments which returns a `FeatureSpace`:

    [project.entry-points."msi.features"]
    acme-style = "msi_acme.style:make_space"
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Protocol

from msi_engine.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

GROUP = "msi.features"


class FeatureSpace(Protocol):
    """Texts to vectors. Deterministic, and each text by itself."""

    @property
    def names(self) -> Sequence[str]:
        """The features, in the order of the columns."""
        ...

    def measure(self, texts: Sequence[str]) -> np.ndarray:
        """Raw features, shape ``(len(texts), len(names))``; NaN where a text has none.

        They need no common scale: each is standardised before it is used.
        """
        ...


@cache
def feature_space(name: str) -> FeatureSpace:
    """The feature space of this name, made once per process.

    Raises:
        ConfigError: If there is none, two packages provide it, or it cannot be made.
    """
    if name == "register":
        from msi_scorers.features.register import RegisterSpace

        return RegisterSpace()
    from msi_engine.discovery import discover, is_enabled

    providers = [p for p in discover(GROUP) if is_enabled(p)]
    found = [p for p in providers if p.entry_point.name == name]
    if not found:
        known = ", ".join(dict.fromkeys(["register", *(p.entry_point.name for p in providers)]))
        raise ConfigError(f"no feature space {name!r}; there are {known}")
    if len(found) > 1:
        both = " and ".join(map(str, found))
        raise ConfigError(f"feature space {name!r} is provided by {both}; disable one of them")
    try:
        space: FeatureSpace = found[0].load()()
    except Exception as error:
        raise ConfigError(
            f"feature space {name!r} (of {found[0]}) could not be made: "
            f"{type(error).__name__}: {error}"
        ) from error
    return space
