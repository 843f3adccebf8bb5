"""Options of scorer `entailment`."""

from __future__ import annotations

from pydantic import Field

from msi_scorers.passages import PassageOptions


class EntailmentOptions(PassageOptions):
    """Options of scorer `entailment`."""

    model: str = Field(min_length=1, description="Cross-encoder: its name or its folder")
    label: int | None = Field(
        default=None,
        ge=0,
        description="Which of its labels means entailment, where it does not say",
    )
