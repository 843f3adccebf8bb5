"""Scorer `regex`: whether a path matches a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from msi_engine import PathView, ScoreContext

TIMEOUT_S = 1.0  # for one text; an ordinary pattern takes microseconds


class RegexOptions(BaseModel):
    """Options of scorer `regex`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pattern: str = Field(min_length=1, description="Pattern as of the Python library regex")
    match: Literal["search", "full"] = Field(
        default="search", description="Look for the pattern, or match the text as a whole"
    )
    count: int = Field(
        default=1, ge=1, le=10_000, description="Matches that make the score 1 (search)"
    )
    partial: float = Field(
        default=0.5, ge=0, le=1, description="Score of the beginning of a match (full)"
    )
    scope: Literal["segment", "text"] = Field(
        default="segment", description="What is matched: the segment, or the whole answer"
    )
    ignore_case: bool = Field(default=False, description="Take capitals and small letters as one")

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, value: str) -> str:
        import regex

        try:
            regex.compile(value)
        except regex.error as error:
            raise ValueError(f"not a pattern ({error})") from None
        return value


class RegexScorer:
    """Judges a text by a pattern.

    match=search: phi = min(m, count) / count, m the number of matches that do not overlap
    match=full:   phi = 1 if the whole text matches; `partial` if more text could make it
                  match; else 0

    in [0, 1]. With ``count=1`` a search is true or false. ``full`` is made for text that is still
    growing: a path that has begun well is told from one that can no longer match. Tokens often
    begin with a space, so a pattern for the whole segment should too (`` ?``).

    Patterns are those of the library regex: Python's, and more. A pattern that takes longer than
    `TIMEOUT_S` on one text ends the generation with an error, lest it take hours.

    Example:
        With the pattern ``[0-9]{4}`` and a count of 2, "In 1969 and 1972" scores 1, "In 1969"
        0.5 and "Then" 0. With ``match=full`` and the pattern ``Yes|No``, "Yes" scores 1, "Y"
        0.5 and "Maybe" 0.

    Args:
        options: Pattern and manner of matching.
    """

    def __init__(self, options: RegexOptions) -> None:
        import regex

        self.options = options
        flags = regex.IGNORECASE if options.ignore_case else 0
        self._pattern: Any = regex.compile(options.pattern, flags)

    @classmethod
    def of(cls, context: ScoreContext) -> RegexScorer:
        """The scorer of one generation; the prompt does not matter."""
        return cls(RegexOptions(**context.options))

    def score(self, paths: Sequence[PathView]) -> list[float]:
        """See `msi_engine.Scorer`.

        Raises:
            TimeoutError: If the pattern takes too long.
        """
        whole = self.options.scope == "text"
        texts = [path.text if whole else path.segment for path in paths]
        judge = self._search if self.options.match == "search" else self._full
        scores = {text: self._in_time(judge, text) for text in dict.fromkeys(texts)}
        return [scores[text] for text in texts]

    def _in_time(self, judge: Any, text: str) -> float:
        try:
            return float(judge(text))
        except TimeoutError:
            raise TimeoutError(
                f"pattern {self.options.pattern!r} took more than {TIMEOUT_S:g} s on "
                f"{len(text)} characters; write it without nested repetition"
            ) from None

    def _search(self, text: str) -> float:
        found, count = 0, self.options.count
        for _ in self._pattern.finditer(text, timeout=TIMEOUT_S):
            found += 1
            if found == count:
                break
        return found / count

    def _full(self, text: str) -> float:
        match = self._pattern.fullmatch(text, partial=True, timeout=TIMEOUT_S)
        if match is None:
            return 0.0
        return self.options.partial if match.partial else 1.0
