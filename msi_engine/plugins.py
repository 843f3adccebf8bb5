"""Finding scorers and boundaries by name: what plugins have registered.

Nothing is discovered at import. The first look-up loads what MSI brings itself; only a name that
is not among it loads the plugins of others. A plugin that fails is skipped with a warning that
names it, and registers nothing. Registration goes through pluggy, scoring does not: the engine
calls plain objects.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msi_engine import discovery
from msi_engine.discovery import Provider
from msi_engine.errors import ConfigError
from msi_engine.hookspecs import hookimpl
from msi_engine.registration import Offer, OfferedBoundary, OfferedScorer
from msi_engine.scorer import ScorerFactory

if TYPE_CHECKING:
    from msi_engine.boundary import BoundaryPredicate

__all__ = [
    "PluginStatus",
    "PluginWarning",
    "find_scorers",
    "hookimpl",
    "load_boundaries",
    "offered_scorers",
    "plugin_report",
]

T = TypeVar("T")


class PluginWarning(UserWarning):
    """A plugin was skipped, or a variable names one that is not there."""


@dataclass(frozen=True, slots=True)
class PluginStatus:
    """What became of one plugin.

    Attributes:
        distribution: The distribution that it comes from.
        version: Its version.
        entry_point: As in its metadata, ``acme = msi_acme``.
        scorers: Names that it registered, with their descriptions.
        boundaries: The same of boundaries.
        enabled: False if the user's variables keep it from loading.
        error: Why it was skipped, one line, or None.
    """

    distribution: str
    version: str
    entry_point: str
    scorers: Mapping[str, str] = field(default_factory=dict)
    boundaries: Mapping[str, str] = field(default_factory=dict)
    enabled: bool = True
    error: str | None = None


def find_scorers(
    names: Iterable[str], own: Mapping[str, ScorerFactory]
) -> dict[str, ScorerFactory]:
    """Factories by name, in the order asked for.

    Args:
        names: Names of scorers.
        own: The caller's own factories, which come before those of plugins and are used as
            they are.

    Raises:
        ConfigError: If a name is unknown, or claimed by two plugins. A factory that is returned
            raises it, too, if the scorer's options are not valid.
    """
    return {name: own[name] if name in own else _REGISTRY.scorer(name, own) for name in names}


def load_boundaries(names: Iterable[str]) -> None:
    """See that the boundaries of plugins among ``names`` are known to `make_boundaries`."""
    from msi_engine.boundary import boundary_names

    if not set(names) <= set(boundary_names()):
        _REGISTRY.load()


def plugin_report() -> tuple[PluginStatus, ...]:
    """Load every plugin and say what became of each, MSI's own first."""
    return _REGISTRY.report()


def offered_scorers() -> dict[str, OfferedScorer]:
    """Load every plugin and give, by name, each scorer that one of them may have."""
    return _REGISTRY.offered_scorers()


class _Names(Generic[T]):
    """One namespace: each name belongs to one plugin."""

    def __init__(self, kind: str) -> None:
        self.items: dict[str, tuple[Provider, T]] = {}
        self._kind = kind
        self._refused: dict[str, str] = {}

    def get(self, name: str) -> T | None:
        """What is registered under a name, or None.

        Raises:
            ConfigError: If two plugins claim it: neither gets it, for a weight that is silently
                applied to another scorer than was meant is worse than an error.
        """
        if name in self._refused:
            raise ConfigError(self._refused[name])
        return self.items[name][1] if name in self.items else None

    def conflict(self, name: str, provider: Provider) -> str | None:
        """Why ``provider`` cannot have a name, naming whoever has it; None if it is free."""
        if name in self._refused:
            return f"{self._refused[name]}; {provider} provides it, too"
        if name not in self.items:
            return None
        other, _ = self.items[name]
        message = f"{self._kind} {name!r} is provided by both {other} and {provider}"
        if not other.is_own:
            del self.items[name]
            self._refused[name] = f"{message}; name one of them in {discovery.DISABLE}"
        return message


class _Registry:
    """What the plugins of this process have registered. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._scorers: _Names[OfferedScorer] = _Names("scorer")
        self._boundaries: _Names[OfferedBoundary] = _Names("boundary")
        self._statuses: dict[str, PluginStatus] = {}
        self._own_loaded = self._all_loaded = False

    def scorer(self, name: str, own: Mapping[str, ScorerFactory]) -> ScorerFactory:
        self._load_own()
        if name not in self._scorers.items:
            self.load()
        with self._lock:
            found = self._scorers.get(name)
            if found is None:
                raise ConfigError(self._unknown(name, own))
        return found.make

    def boundary(self, name: str, language: str) -> BoundaryPredicate:
        with self._lock:
            found = self._boundaries.get(name)
        if found is None:
            raise ConfigError(f"no boundary {name!r}")
        return found.make(language)

    def report(self) -> tuple[PluginStatus, ...]:
        self.load(warn=False)
        return tuple(self._statuses.values())

    def offered_scorers(self) -> dict[str, OfferedScorer]:
        self.load(warn=False)
        return {name: scorer for name, (_, scorer) in self._scorers.items.items()}

    def load(self, *, warn: bool = True) -> None:
        """Load every plugin that has not been loaded."""
        with self._lock:
            if self._all_loaded:
                return
            providers = discovery.discover()
            complaints = discovery.not_installed(providers)
            complaints += self._load(providers)
            self._own_loaded = self._all_loaded = True
        if warn:  # outside the lock: a filter may turn a warning into an exception
            for complaint in complaints:
                warnings.warn(PluginWarning(complaint), stacklevel=4)

    def _load_own(self) -> None:
        with self._lock:
            if not self._own_loaded:
                self._load([p for p in discovery.discover() if p.is_own])
                self._own_loaded = True

    def _load(self, providers: Iterable[Provider]) -> list[str]:
        complaints = []
        for provider in providers:
            if provider.key not in self._statuses:
                status = self._load_one(provider)
                self._statuses[provider.key] = status
                if status.error is not None:
                    complaints.append(
                        f"plugin {provider} ({status.entry_point}) is skipped: {status.error}; "
                        f"update or uninstall it, or set {discovery.DISABLE}={status.distribution}"
                    )
        return complaints

    def _load_one(self, provider: Provider) -> PluginStatus:
        entry = f"{provider.entry_point.name} = {provider.entry_point.value}"
        identity = (provider.distribution, provider.version, entry)
        if not discovery.is_enabled(provider):
            return PluginStatus(*identity, enabled=False)
        try:
            offer = Offer.of(provider.load(), str(provider))
            self._accept(offer, provider)
        except (Exception, SystemExit) as error:
            if discovery.errors_are_raised():
                raise
            return PluginStatus(*identity, error=_one_line(error))
        return PluginStatus(
            *identity,
            {name: scorer.description for name, scorer in offer.scorers.items()},
            {name: boundary.description for name, boundary in offer.boundaries.items()},
        )

    def _accept(self, offer: Offer, provider: Provider) -> None:
        """Take everything that a plugin offers, or nothing."""
        conflicts = [self._scorers.conflict(name, provider) for name in offer.scorers]
        conflicts += [self._boundaries.conflict(name, provider) for name in offer.boundaries]
        if any(conflicts):
            raise ConfigError("; ".join(filter(None, conflicts)))
        if offer.boundaries:
            self._publish(offer, provider)
        self._scorers.items.update({n: (provider, s) for n, s in offer.scorers.items()})
        self._boundaries.items.update({n: (provider, b) for n, b in offer.boundaries.items()})

    def _publish(self, offer: Offer, provider: Provider) -> None:
        """Make a plugin's boundaries known to `make_boundaries`."""
        from msi_engine.boundary import boundary_names, register_boundary

        for name in offer.boundaries:
            if name in boundary_names():
                raise ConfigError(
                    f"boundary {name!r} is provided by both {discovery.OWN_DISTRIBUTION} itself "
                    f"and {provider}"
                )
        for name in offer.boundaries:
            register_boundary(name, partial(self.boundary, name))

    def _unknown(self, name: str, own: Mapping[str, Any]) -> str:
        known = ", ".join(dict.fromkeys([*own, *self._scorers.items])) or "none"
        skipped = sum(status.error is not None for status in self._statuses.values())
        more = f" ({skipped} skipped for errors; see `llm msi doctor`)" if skipped else ""
        return f"no scorer {name!r}; there are {known}{more}"


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, ConfigError) else f"{type(error).__name__}: {text}"


_REGISTRY = _Registry()
