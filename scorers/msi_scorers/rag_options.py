"""Options of scorer `rag`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class RagOptions(BaseModel):
    """Options of scorer `rag`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scope: Literal["segment", "text"] = Field(
        default="segment", description="What is judged: the segment, or the whole answer so far"
    )
    pool: Literal["max", "mean", "softmax"] = Field(
        default="max", description="How the cosines with several chunks become one number"
    )
    temperature: float = Field(
        default=0.1, gt=0, le=100, description="Of pool softmax; towards 0 it is max"
    )
    chunk_size: int = Field(
        default=800,
        ge=40,
        le=100_000,
        description="Characters; longer evidence is embedded in pieces, each a chunk",
    )
    embedder: str | None = Field(
        default=None, min_length=1, description="Embedding model, where the caller gives none"
    )
    control: Literal["none", "shuffle"] = Field(
        default="none", description="shuffle: chunks of another query in place of the evidence"
    )
    control_evidence: tuple[str, ...] = Field(
        default=(), description="Those chunks; by default shipped passages about other things"
    )
    control_seed: int = Field(default=0, ge=0, description="Where to begin among the shipped ones")
