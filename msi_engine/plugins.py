"""Finding scorers: the hook, and the loader of plugins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pluggy

from msi_engine.errors import ConfigError
from msi_engine.scorer import ScorerFactory

hookimpl = pluggy.HookimplMarker("msi")


def find_scorers(
    names: Iterable[str], own: Mapping[str, ScorerFactory]
) -> dict[str, ScorerFactory]:
    """Factories by name, in the order asked for; ``own`` ones first."""
    found = {}
    for name in names:
        if name not in own:
            raise ConfigError(f"no scorer {name!r}")
        found[name] = own[name]
    return found
