"""What one plugin offers: its hooks are checked and called, what they register is collected.

Each plugin is looked at on its own, in a plugin manager of its own: its mistakes are its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pluggy
from pydantic import BaseModel, ValidationError

from msi_engine import hookspecs
from msi_engine.config import one_line
from msi_engine.errors import ConfigError, MSIError, ScorerError
from msi_engine.scorer import ScoreContext, Scorer, ScorerFactory

if TYPE_CHECKING:
    from msi_engine.boundary import BoundaryFactory, BoundaryPredicate

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_REQUIREMENTS = ("embeddings", "evidence")
_HELP = {
    "embeddings": 'an embedder: give one as `embedder`, or: pip install "llm-msi[rag]"',
    "evidence": "evidence, which is none or blank: give passages as `evidence`, or in llm "
    "-o docs FILES, -o collection NAME, -f or -a",
}


@dataclass(frozen=True, slots=True)
class OfferedScorer:
    """A scorer as a plugin registered it; see `hookspecs.RegisterScorer`."""

    name: str
    provider: str
    factory: ScorerFactory
    description: str
    requires: tuple[str, ...]
    options: type[BaseModel] | None

    def make(self, context: ScoreContext) -> Scorer:
        """A scorer for one generation.

        Raises:
            ConfigError: If its options are not valid, or it requires what there is not.
            ScorerError: If its factory fails.
        """
        there = {"embeddings": context.embedder is not None, "evidence": bool(context.evidence)}
        missing = [_HELP[what] for what in self.requires if not there[what]]
        if missing:
            raise ConfigError(f"scorer {self.name!r} needs {'; and '.join(missing)}")
        context = replace(context, options=self._validated(dict(context.options)))
        try:
            scorer = self.factory(context)
        except MSIError:
            raise
        except Exception as error:
            what = f"could not be made (by {self.provider}): {type(error).__name__}: {error}"
            raise ScorerError(self.name, what) from error
        if not isinstance(scorer, Scorer):
            raise ScorerError(
                self.name, f"its factory (of {self.provider}) returned {scorer!r}, not a scorer"
            )
        return scorer

    def _validated(self, given: dict[str, Any]) -> dict[str, Any]:
        if self.options is None:
            if given:
                raise ConfigError(f"scorer {self.name!r} takes no options, got {_listed(given)}")
            return {}
        if "extra" not in self.options.model_config:  # pydantic would ignore a misspelt option
            self._refuse_unknown(given, self.options)
        try:
            return self.options(**given).model_dump()
        except ValidationError as error:
            raise ConfigError(f"options of scorer {self.name!r}: {one_line(error)}") from None

    def _refuse_unknown(self, given: dict[str, Any], options: type[BaseModel]) -> None:
        known = [field.alias or name for name, field in options.model_fields.items()]
        unknown = [name for name in given if name not in known]
        if unknown:
            raise ConfigError(
                f"scorer {self.name!r} has no option {_listed(unknown)}; there are {_listed(known)}"
            )


@dataclass(frozen=True, slots=True)
class OfferedBoundary:
    """A boundary as a plugin registered it; see `hookspecs.RegisterBoundary`."""

    name: str
    provider: str
    factory: BoundaryFactory
    description: str

    def make(self, language: str) -> BoundaryPredicate:
        """A boundary for one generation.

        Raises:
            ConfigError: If its factory fails.
        """
        try:
            return self.factory(language)
        except MSIError:
            raise
        except Exception as error:
            raise ConfigError(
                f"boundary {self.name!r} could not be made (by {self.provider}): "
                f"{type(error).__name__}: {error}"
            ) from error


@dataclass(slots=True)
class Offer:
    """Everything that one plugin registers.

    Attributes:
        provider: Distribution and version, for messages.
        scorers: By name.
        boundaries: By name.
    """

    provider: str
    scorers: dict[str, OfferedScorer] = field(default_factory=dict)
    boundaries: dict[str, OfferedBoundary] = field(default_factory=dict)

    @classmethod
    def of(cls, plugin: Any, provider: str) -> Offer:
        """Check a plugin's hooks and call them.

        Raises:
            ConfigError: If it has none, wraps one or registers what cannot be.
            pluggy.PluginValidationError: If a hook is misspelt or has unknown arguments.
        """
        offer = cls(provider)
        manager = pluggy.PluginManager(hookspecs.PROJECT)
        manager.add_hookspecs(hookspecs)
        manager.register(plugin)
        manager.check_pending()  # a hook that has no specification is misspelt
        callers = manager.get_hookcallers(plugin)
        if not callers:
            raise ConfigError("it implements no hook; decorate one with @msi_engine.hookimpl")
        registers = {
            "register_scorers": offer.register_scorer,
            "register_boundaries": offer.register_boundary,
        }
        for caller in callers:
            for implementation in caller.get_hookimpls():
                if implementation.wrapper or implementation.hookwrapper:
                    raise ConfigError(f"it wraps {caller.name}, which is not supported")
                names = implementation.argnames  # may be fewer than are specified
                implementation.function(*[registers[caller.name] for _ in names])
        return offer

    def register_scorer(
        self,
        name: str,
        factory: ScorerFactory,
        *,
        description: str = "",
        requires: Collection[str] = (),
        options: type[BaseModel] | None = None,
    ) -> None:
        """See `hookspecs.RegisterScorer`."""
        _check("scorer", name, factory, self.scorers)
        needs = (requires,) if isinstance(requires, str) else tuple(sorted(requires))
        unknown = [what for what in needs if what not in _REQUIREMENTS]
        if unknown:
            raise ConfigError(
                f"scorer {name!r} requires {_listed(unknown)}; known are {_listed(_REQUIREMENTS)}"
            )
        if options is not None and not _is_model(options):
            raise ConfigError(f"options of scorer {name!r} must be a pydantic model, got {options}")
        self.scorers[name] = OfferedScorer(
            name, self.provider, factory, description, needs, options
        )

    def register_boundary(
        self, name: str, factory: BoundaryFactory, *, description: str = ""
    ) -> None:
        """See `hookspecs.RegisterBoundary`."""
        _check("boundary", name, factory, self.boundaries)
        self.boundaries[name] = OfferedBoundary(name, self.provider, factory, description)


def _check(kind: str, name: str, factory: Any, taken: Collection[str]) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{kind} name {name!r} must be lower-case words joined by hyphens")
    if not callable(factory):
        raise ConfigError(f"factory of {kind} {name!r} must be callable, got {factory!r}")
    if name in taken:
        raise ConfigError(f"{kind} {name!r} is registered twice")


def _is_model(options: Any) -> bool:
    return isinstance(options, type) and issubclass(options, BaseModel)


def _listed(names: Collection[str]) -> str:
    return ", ".join(map(str, names)) or "none"
