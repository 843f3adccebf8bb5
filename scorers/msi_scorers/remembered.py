"""Scores of texts that were judged before, so that nothing is judged twice in a generation."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

MOST = 4096  # texts that are remembered, those used last


class RememberedScores:
    """Judges texts, each once, in one call for all that are new.

    Args:
        judge: From texts, at least one, to a score for each. May be called on another thread, but
            never on two at once.
    """

    def __init__(self, judge: Callable[[list[str]], Sequence[float]]) -> None:
        self._judge = judge
        self._scores: OrderedDict[str, float] = OrderedDict()
        self._begun: list[tuple[list[str], Future[Sequence[float]]]] = []

    def begin(self, texts: Sequence[str]) -> None:
        """Judge what is new on another thread; `of` waits for it."""
        known = {text for begun, _ in self._begun for text in begun}
        if fresh := [t for t in dict.fromkeys(texts) if t not in self._scores and t not in known]:
            self._begun.append((fresh, _worker().submit(self._judge, fresh)))

    def of(self, texts: Sequence[str]) -> list[float]:
        """The score of each text, in order."""
        while self._begun:
            begun, result = self._begun.pop(0)
            self._scores.update(zip(begun, result.result(), strict=True))
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


@cache
def _worker() -> ThreadPoolExecutor:
    """One thread for all: models of this kind are not made for several."""
    return ThreadPoolExecutor(1, "msi-scorers")
