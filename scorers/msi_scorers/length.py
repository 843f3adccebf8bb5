"""Scorer `length`: how near a segment is to a target length. Doubles as an example of a scorer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from msi_engine import PathView, ScoreContext

Unit = Literal["characters", "tokens"]


class LengthOptions(BaseModel):
    """Options of scorer `length`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: int = Field(default=80, ge=1, le=1_000_000, description="Length with the score 0")
    unit: Unit = Field(default="characters", description="What is counted: characters or tokens")


class LengthScorer:
    """Judges a segment by its length n alone, against the target length L.

    phi = -abs(n - L) / (n + L)

    in [-1, 0]: 0 at the target, -1 for an empty segment and in the limit of a long one. Half the
    target and twice the target score the same, -1/3, for phi is -tanh(abs(ln(n / L)) / 2).

    n counts the characters (Unicode code points) or tokens of the segment, that is, of the text
    since the last collapse; what is committed already does not count.

    Example:
        With a target of 80 characters, segments of 40, 80 and 160 characters score
        -40/120 = -0.333, 0 and -80/240 = -0.333. With a weight of 3 the middle one gains a
        factor e in credence over each of the others.

    Args:
        options: Target and unit.
    """

    def __init__(self, options: LengthOptions | None = None) -> None:
        self.options = options or LengthOptions()

    @classmethod
    def of(cls, context: ScoreContext) -> LengthScorer:
        """The scorer of one generation; the prompt does not matter."""
        return cls(LengthOptions(**context.options))

    def score(self, paths: Sequence[PathView]) -> list[float]:
        """See `msi_engine.Scorer`."""
        target = self.options.target
        lengths = [self._length(path) for path in paths]
        return [-abs(n - target) / (n + target) for n in lengths]

    def _length(self, path: PathView) -> int:
        return len(path.segment if self.options.unit == "characters" else path.tokens)
