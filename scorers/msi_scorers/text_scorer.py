"""What `rag` and `entailment` share: each text is judged once, perhaps while the model runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msi_engine import PathView
from msi_scorers.passages import PassageOptions, judged_text, says_something
from msi_scorers.remembered import RememberedScores


class TextScorer:
    """A scorer whose signal is a function of the text that is judged, see `judged_text`.

    Args:
        options: Say what is judged.
        judge: From texts that say something, at least one, to a score for each.
        works_apart: Whether ``judge`` may run on another thread while the model runs.
    """

    def __init__(
        self,
        options: PassageOptions,
        judge: Callable[[list[str]], Sequence[float]],
        *,
        works_apart: bool,
    ) -> None:
        self.options = options
        self._works_apart = works_apart
        self._scores = RememberedScores(judge)

    def prepare(self, paths: Sequence[PathView]) -> None:
        """See `msi_engine.scorer.PreparingScorer`."""
        if self._works_apart:
            texts = [judged_text(self.options, path) for path in paths]
            self._scores.begin([text for text in texts if says_something(text)])

    def score(self, paths: Sequence[PathView]) -> list[float]:
        """See `msi_engine.Scorer`. What says nothing scores 0."""
        texts = [judged_text(self.options, path) for path in paths]
        said = [text for text in texts if says_something(text)]
        scores = dict(zip(said, self._scores.of(said), strict=True))
        return [scores.get(text, 0.0) for text in texts]
