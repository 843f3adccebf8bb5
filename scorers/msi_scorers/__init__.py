"""Built-in scorers, registered through the same entry points as anyone's.

Importing this package imports what describes the scorers. What they compute with is imported by
their factories.
"""

from __future__ import annotations

from msi_engine import hookimpl
from msi_engine.hookspecs import RegisterScorer
from msi_scorers.agreement import AgreementScorer
from msi_scorers.length import LengthOptions, LengthScorer
from msi_scorers.regex import RegexOptions, RegexScorer
from msi_scorers.repetition import RepetitionOptions, RepetitionScorer


@hookimpl
def register_scorers(register: RegisterScorer) -> None:
    """Register every scorer of this package."""
    register(
        "agreement",
        AgreementScorer.of,
        description="Prefers what the other paths say, too",
    )
    register(
        "length",
        LengthScorer.of,
        description="Prefers segments near a target length",
        options=LengthOptions,
    )
    register(
        "regex",
        RegexScorer.of,
        description="Prefers text that matches a pattern",
        options=RegexOptions,
    )
    register(
        "repetition",
        RepetitionScorer.of,
        description="Against n-grams that were there before",
        options=RepetitionOptions,
    )
