"""The hooks that a plugin may implement. Entry-point group and pluggy project: ``msi``.

A plugin is an importable module (or object) named by an entry point:

    # pyproject.toml                          # msi_acme.py
    [project.entry-points.msi]                from msi_engine import hookimpl
    acme = "msi_acme"
                                              @hookimpl
                                              def register_scorers(register):
                                                  register("acme-facts", make_scorer)

                                              def make_scorer(context):
                                                  from msi_acme_impl import Facts  # heavy: here

                                                  return Facts(context.prompt)

Installing a plugin registers it and activates nothing; users choose with the options ``scorers``
and ``boundary``. A hook may take fewer arguments than its specification. Wrappers are refused.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

import pluggy
from pydantic import BaseModel

from msi_engine.scorer import ScorerFactory

if TYPE_CHECKING:
    from msi_engine.boundary import BoundaryFactory

PROJECT = "msi"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class RegisterScorer(Protocol):
    """The callback that `register_scorers` is given."""

    def __call__(
        self,
        name: str,
        factory: ScorerFactory,
        *,
        description: str = "",
        requires: Collection[str] = (),
        options: type[BaseModel] | None = None,
    ) -> None:
        """Register one scorer.

        Args:
            name: As users write it: lower-case words joined by hyphens. Unique among all plugins.
            factory: Called once per generation with a `ScoreContext`; returns a `Scorer`. Import
                what is heavy inside it.
            description: One line for lists of scorers.
            requires: What the scorer cannot do without: ``evidence``, ``embeddings``.
            options: Pydantic model of the scorer's options. The context's ``options`` are then
                validated and complete. None: the scorer takes no options.

        Raises:
            ConfigError: If an argument is not as described. The plugin is then skipped.
        """
        ...


class RegisterBoundary(Protocol):
    """The callback that `register_boundaries` is given."""

    def __call__(self, name: str, factory: BoundaryFactory, *, description: str = "") -> None:
        """Register one boundary.

        Args:
            name: As users write it: lower-case words joined by hyphens. Unique among all plugins.
            factory: Called once per generation with the language of the answer (``en``); returns
                a `BoundaryPredicate` whose ``name`` is this name.
            description: One line for lists of boundaries.

        Raises:
            ConfigError: If an argument is not as described. The plugin is then skipped.
        """
        ...


@hookspec
def register_scorers(register: RegisterScorer) -> None:
    """Register scorers: outside signals that judge partial texts.

    Called once per process, when a scorer is first looked up that MSI does not bring itself.
    """


@hookspec
def register_boundaries(register: RegisterBoundary) -> None:
    """Register boundaries: places where paths may be collapsed.

    Called once per process, together with `register_scorers`.
    """
