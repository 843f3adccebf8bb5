"""A scorer for MSI in one module: `plain-words` prefers paths that are written in short words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from msi_engine import PathView, ScoreContext, hookimpl


@hookimpl
def register_scorers(register):
    """MSI calls this once, when somebody asks for a scorer that it does not bring itself."""
    register(
        "plain-words",
        make_scorer,
        description="Prefers short words",
        options=PlainWordsOptions,
    )


class PlainWordsOptions(BaseModel):
    """What users may set. MSI checks it and turns a mistake into a one-line error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    longest: int = Field(default=7, ge=1, le=50, description="Letters of the longest plain word")


def make_scorer(context: ScoreContext) -> PlainWordsScorer:
    """Called once for each generation. Import here what takes long to import."""
    return PlainWordsScorer(PlainWordsOptions(**context.options))


class PlainWordsScorer:
    """phi = -(share of the segment's words that are longer than `longest` letters), in [-1, 0]."""

    def __init__(self, options: PlainWordsOptions) -> None:
        self.options = options

    def score(self, paths: Sequence[PathView]) -> list[float]:
        """One number for each path. The same text must always get the same number."""
        return [self._one(path.segment) for path in paths]

    def _one(self, segment: str) -> float:
        words = re.findall(r"[^\W\d_]+", segment)
        if not words:  # MSI asks about unfinished text, too, and that may be empty
            return 0.0
        return -sum(len(word) > self.options.longest for word in words) / len(words)
