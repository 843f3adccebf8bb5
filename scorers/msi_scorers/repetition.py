"""Scorer `repetition`: how much of a path says again what has been said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from msi_engine import PathView, ScoreContext
from msi_scorers.words import split_at_word, words

Ngram = tuple[str, ...]


class RepetitionOptions(BaseModel):
    """Options of scorer `repetition`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    n: int = Field(default=3, ge=1, le=10, description="Words in an n-gram")
    scope: Literal["segment", "text"] = Field(
        default="text", description="Where a first use counts: the segment, or the whole answer"
    )


class RepetitionScorer:
    """Judges a segment by the share of its n-grams of words that were there before.

    phi = -r / m

    in [-1, 0]: m counts the n-grams that end in the segment, r those of them that end earlier,
    too, in the segment (``scope=segment``) or in the whole answer (``scope=text``). Without any
    n-gram phi is 0. Case does not matter; for words see `msi_scorers.words.words`. The prompt
    does not count: an answer may repeat the question.

    With ``scope=segment`` this is minus the seq-rep-n of Welleck et al. (2020),
    https://arxiv.org/abs/1908.04319.

    Example:
        With n = 2 the segment "the tide and the tide again" has the n-grams "the tide",
        "tide and", "and the", "the tide", "tide again". One of five is a repetition: -0.2.

    Args:
        options: n and scope.
    """

    def __init__(self, options: RepetitionOptions | None = None) -> None:
        self.options = options or RepetitionOptions()
        # All paths share the committed text; it changes at a collapse.
        self._known = lru_cache(maxsize=2)(self._committed)

    @classmethod
    def of(cls, context: ScoreContext) -> RepetitionScorer:
        """The scorer of one generation; the prompt does not matter."""
        return cls(RepetitionOptions(**context.options))

    def score(self, paths: Sequence[PathView]) -> list[float]:
        """See `msi_engine.Scorer`."""
        return [self._one(path) for path in paths]

    def _one(self, path: PathView) -> float:
        if self.options.scope == "segment":
            return _share(words(path.segment), self.options.n, frozenset())
        committed, segment = split_at_word(path.committed, path.segment)
        before, known = self._known(committed)
        return _share([*before, *words(segment)], self.options.n, known)

    def _committed(self, text: str) -> tuple[list[str], frozenset[Ngram]]:
        """The last n - 1 words of committed text, and all its n-grams."""
        found, n = words(text), self.options.n
        return found[max(0, len(found) - n + 1) :], frozenset(_ngrams(found, n))


def _share(found: list[str], n: int, known: frozenset[Ngram]) -> float:
    ngrams = list(_ngrams(found, n))
    new = {ngram for ngram in ngrams if ngram not in known}
    return len(new) / len(ngrams) - 1.0 if ngrams else 0.0


def _ngrams(found: list[str], n: int) -> Iterable[Ngram]:
    return zip(*(found[i:] for i in range(n)), strict=False)
