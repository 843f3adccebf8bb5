"""Built-in scorers, registered through the same entry points as anyone's."""

from __future__ import annotations

from msi_engine import hookimpl
from msi_engine.hookspecs import RegisterScorer
from msi_scorers.length import LengthOptions, LengthScorer


@hookimpl
def register_scorers(register: RegisterScorer) -> None:
    """Register every scorer of this package."""
    register(
        "length",
        LengthScorer.of,
        description="Prefers segments near a target length",
        options=LengthOptions,
    )
