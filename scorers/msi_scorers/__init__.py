"""Built-in scorers, registered through the same entry points as anyone's.

Importing this package imports what describes the scorers. What they compute with is imported by
their factories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msi_engine import ScoreContext, Scorer, hookimpl
from msi_engine.hookspecs import RegisterBoundary, RegisterScorer
from msi_scorers.agreement import AgreementScorer
from msi_scorers.entailment_options import EntailmentOptions
from msi_scorers.length import LengthOptions, LengthScorer
from msi_scorers.rag_options import RagOptions
from msi_scorers.regex import RegexOptions, RegexScorer
from msi_scorers.repetition import RepetitionOptions, RepetitionScorer
from msi_scorers.targets import ArchetypeOptions, RegisterOptions

if TYPE_CHECKING:
    from msi_engine.boundary import BoundaryPredicate


@hookimpl
def register_scorers(register: RegisterScorer) -> None:
    """Register every scorer of this package."""
    register("agreement", AgreementScorer.of, description="Prefers what the other paths say, too")
    register(
        "archetype",
        _archetype,
        description="Prefers text that agrees with a target archetype",
        options=ArchetypeOptions,
    )
    register(
        "entailment",
        _entailment,
        description="Prefers text that the evidence entails, by a cross-encoder",
        requires={"evidence"},
        options=EntailmentOptions,
    )
    register(
        "length",
        LengthScorer.of,
        description="Prefers segments near a target length",
        options=LengthOptions,
    )
    register(
        "rag",
        _rag,
        description="Prefers text that is near to the evidence",
        requires={"evidence"},
        options=RagOptions,
    )
    register(
        "regex",
        RegexScorer.of,
        description="Prefers text that matches a pattern",
        options=RegexOptions,
    )
    register(
        "register",
        _register,
        description="Prefers text that sounds like a target: legal, news, casual, ...",
        options=RegisterOptions,
    )
    register(
        "repetition",
        RepetitionScorer.of,
        description="Against n-grams that were there before",
        options=RepetitionOptions,
    )


@hookimpl
def register_boundaries(register: RegisterBoundary) -> None:
    """Register every boundary of this package."""
    register("register", _register_boundary, description="Where the register changes")


def _archetype(context: ScoreContext) -> Scorer:
    from msi_scorers.archetype import ArchetypeScorer

    return ArchetypeScorer.of(context)


def _entailment(context: ScoreContext) -> Scorer:
    from msi_scorers.entailment import EntailmentScorer

    return EntailmentScorer.of(context)


def _rag(context: ScoreContext) -> Scorer:
    from msi_scorers.rag import RagScorer

    return RagScorer.of(context)


def _register(context: ScoreContext) -> Scorer:
    from msi_scorers.register import RegisterScorer

    return RegisterScorer.of(context)


def _register_boundary(language: str) -> BoundaryPredicate:
    from msi_scorers.register_boundary import RegisterBoundary

    return RegisterBoundary.of(language)
