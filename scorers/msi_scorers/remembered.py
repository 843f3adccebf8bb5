"""Scores of texts that were judged before, so that nothing is judged twice in a generation."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

MOST = 4096  # texts that are remembered, those used last


class RememberedScores:
    """Judges texts, each once, in one call for all that are new.

    Args:
        judge: From texts, at least one, to a score for each.
    """

    def __init__(self, judge: Callable[[list[str]], Sequence[float]]) -> None:
        self._judge = judge
        self._scores: OrderedDict[str, float] = OrderedDict()

    def of(self, texts: Sequence[str]) -> list[float]:
        """The score of each text, in order."""
        wanted = dict.fromkeys(texts)
        fresh = [text for text in wanted if text not in self._scores]
        if fresh:
            self._scores.update(zip(fresh, self._judge(fresh), strict=True))
        for text in wanted:
            self._scores.move_to_end(text)
        scores = [self._scores[text] for text in texts]
        while len(self._scores) > MOST:
            self._scores.popitem(last=False)
        return scores
