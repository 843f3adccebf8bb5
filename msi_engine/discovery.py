"""Finding plugins among the installed distributions, and the user's say over which to load.

pluggy's own loader is not used: there one plugin that cannot be imported takes the host down, and
of two distributions whose entry points share a name the second is silently lost.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, distributions
from typing import Any

from msi_engine.hookspecs import PROJECT

OWN_DISTRIBUTION = "llm-msi"

LOAD, DISABLE, RAISE = "MSI_LOAD_PLUGINS", "MSI_DISABLE_PLUGINS", "MSI_RAISE_PLUGIN_ERRORS"


@dataclass(frozen=True, slots=True)
class Provider:
    """An entry point and the distribution that it comes from.

    Attributes:
        distribution: Name of the distribution, normalised (PEP 503).
        version: Its version.
        entry_point: The entry point.
    """

    distribution: str
    version: str
    entry_point: EntryPoint

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"

    @property
    def key(self) -> str:
        """What makes it unique: ``distribution:entry-point``."""
        return f"{self.distribution}:{self.entry_point.name}"

    @property
    def is_own(self) -> bool:
        """True for what MSI brings itself."""
        return self.distribution == OWN_DISTRIBUTION

    def load(self) -> Any:
        """Import the plugin."""
        return self.entry_point.load()


def discover(group: str = PROJECT) -> list[Provider]:
    """Every entry point of a group: MSI's own first, then by name. Imports none of them."""
    found: dict[str, Provider] = {}
    for distribution in distributions():
        for provider in _providers(distribution, group):
            found.setdefault(provider.key, provider)  # the first on the path hides the others
    return sorted(found.values(), key=lambda p: (not p.is_own, p.key))


def _providers(distribution: Distribution, group: str) -> list[Provider]:
    try:
        entry_points = [e for e in distribution.entry_points if e.group == group]
        if not entry_points:  # most have none, and reading their metadata takes longer
            return []
        name, version = distribution.metadata["Name"], distribution.version
    except Exception:  # what a broken installation of anything at all may raise
        return []
    return [Provider(_normalised(name), version, e) for e in entry_points] if name else []


def is_enabled(provider: Provider) -> bool:
    """Whether the user lets a plugin load.

    ``MSI_LOAD_PLUGINS`` names the distributions to load (unset: all; empty: none) and
    ``MSI_DISABLE_PLUGINS`` those not to load; both are comma-separated. What MSI brings itself is
    always loaded.
    """
    if provider.is_own:
        return True
    allowed = _listed(LOAD)
    if allowed is not None and provider.distribution not in allowed:
        return False
    return provider.distribution not in (_listed(DISABLE) or ())


def not_installed(providers: Iterable[Provider]) -> list[str]:
    """A complaint for each distribution that a variable names and that has no plugin."""
    installed = {provider.distribution for provider in providers}
    return [
        f"{variable} names {name!r}, which is not installed or has no plugin for MSI"
        for variable in (LOAD, DISABLE)
        for name in sorted((_listed(variable) or set()) - installed)
    ]


def errors_are_raised() -> bool:
    """Whether ``MSI_RAISE_PLUGIN_ERRORS`` asks for a traceback in place of a warning."""
    return os.environ.get(RAISE, "0") not in ("", "0")


def _listed(variable: str) -> set[str] | None:
    value = os.environ.get(variable)
    if value is None:
        return None
    return {_normalised(name) for name in value.split(",") if name.strip()}


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()
