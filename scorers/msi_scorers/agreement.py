"""Scorer `agreement`: how much a path says what the other paths say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from msi_engine import PathView, ScoreContext
from msi_scorers.words import words


class AgreementScorer:
    """Judges a segment by its mean similarity to the segments of the other paths.

    phi_i = mean over the others j of sim(i, j)
    sim(i, j) = 2 c / (n_i + n_j)

    in [0, 1]: n counts the words of a segment, c the words that two segments have in common, each
    as often as in both. This is the F1 of their words (Rajpurkar et al. 2016,
    https://arxiv.org/abs/1606.05250, without dropping articles), and symmetric. Two segments
    without words score 0, and so does a path that is alone.

    The others are those that count at the same moment: as they stood when they had as many
    tokens as this path, or at their boundary if that came sooner.

    Words are compared, not n-grams of characters as in collapse mode `mbr`: this runs for every
    pair at every token, where chrF would cost more than the model.

    Example:
        Beside "The tide comes in" and "The tide goes out", the segment "The tide comes back"
        scores (2 * 3 / 8 + 2 * 2 / 8) / 2 = 0.625.
    """

    def __init__(self) -> None:
        self._words = lru_cache(maxsize=4096)(_counted)
        self._similarity = lru_cache(maxsize=16384)(self._compare)

    @classmethod
    def of(cls, context: ScoreContext) -> AgreementScorer:
        """The scorer of one generation; it has no options and the prompt does not matter."""
        return cls()

    def score(self, paths: Sequence[PathView]) -> list[float]:
        """See `msi_engine.Scorer`."""
        return [self._one(path.segment, path.others) for path in paths]

    def _one(self, segment: str, others: tuple[str, ...]) -> float:
        if not others:
            return 0.0
        # Sorted, so that a pair is compared once, whichever of the two asks.
        pairs = [(min(segment, other), max(segment, other)) for other in others]
        return sum(self._similarity(*pair) for pair in pairs) / len(others)

    def _compare(self, a: str, b: str) -> float:
        (words_a, size_a), (words_b, size_b) = self._words(a), self._words(b)
        if not size_a or not size_b:
            return 0.0
        common = sum(min(n, words_b[word]) for word, n in words_a.items() if word in words_b)
        return 2.0 * common / (size_a + size_b)


def _counted(text: str) -> tuple[Counter[str], int]:
    found = words(text)
    return Counter(found), len(found)
