"""Scorer `entailment`: whether the evidence says what a path says, by a cross-encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from msi_engine import Evidence, ScoreContext
from msi_scorers.cross_encoder import find_cross_encoder
from msi_scorers.entailment_options import EntailmentOptions
from msi_scorers.passages import chunk_texts
from msi_scorers.text_scorer import TextScorer


class Judge(Protocol):
    """Tells of each pair of texts whether the first says what the second says."""

    def judge(self, pairs: Sequence[tuple[str, str]]) -> Sequence[float] | np.ndarray:
        """One number in [0, 1] for each pair, the same for the same pair; at least one pair."""
        ...


class EntailmentScorer(TextScorer):
    """Judges a text by whether one of the chunks entails it.

    phi = max over i of P(entailment | chunk_i, text)

    in [0, 1]: P is the cross-encoder's. What a text says must stand in one chunk; what no chunk
    says scores near 0, whether it is contradicted or only new. A segment without a letter or digit
    is judged by the end of what is committed, and where that says nothing either, phi is 0.

    All pending texts go to the model in one call, each with every chunk, and none that was judged
    before. That is as many pairs as texts times chunks, each read by a transformer: give few
    chunks and a small model.

    Example:
        Of two chunks that entail a text by 0.9 and 0.2, phi is 0.9.

    Args:
        options: Text judged, chunks, control.
        evidence: The passages; at least one.
        judge: Of pairs (chunk, text).
    """

    def __init__(
        self, options: EntailmentOptions, evidence: Sequence[Evidence], judge: Judge
    ) -> None:
        works_apart = getattr(judge, "works_apart", False)
        super().__init__(options, self._best, works_apart=works_apart)
        self._judge = judge
        self._chunks = chunk_texts(options, evidence)

    @classmethod
    def of(cls, context: ScoreContext) -> EntailmentScorer:
        """The scorer of one generation.

        Raises:
            ConfigError: If the model cannot be used.
        """
        options = EntailmentOptions(**context.options)
        return cls(options, context.evidence, find_cross_encoder(options.model, options.label))

    def _best(self, texts: list[str]) -> list[float]:
        pairs = [(chunk, text) for text in texts for chunk in self._chunks]
        judged = np.asarray(self._judge.judge(pairs), dtype=np.float64)
        if judged.shape != (len(pairs),) or not ((judged >= 0) & (judged <= 1)).all():
            raise ValueError(
                f"the judge returned shape {judged.shape} for {len(pairs)} pairs, or what is no "
                "number from 0 to 1"
            )
        best: list[float] = judged.reshape(len(texts), len(self._chunks)).max(axis=1).tolist()
        return best
