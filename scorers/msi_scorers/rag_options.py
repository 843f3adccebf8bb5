"""Options of scorer `rag`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from msi_scorers.passages import PassageOptions


class RagOptions(PassageOptions):
    """Options of scorer `rag`."""

    pool: Literal["max", "mean", "softmax"] = Field(
        default="max", description="How the cosines with several chunks become one number"
    )
    temperature: float = Field(
        default=0.1, gt=0, le=100, description="Of pool softmax; towards 0 it is max"
    )
    embedder: str | None = Field(
        default=None, min_length=1, description="Embedding model, where the caller gives none"
    )
