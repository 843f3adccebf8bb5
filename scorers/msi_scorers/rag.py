"""Scorer `rag`: how near a path's text is to the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from msi_engine import ScoreContext
from msi_engine.evidence import Embedder, Evidence
from msi_engine.vectors import unit, unit_vectors
from msi_scorers.embedders import find_embedder
from msi_scorers.passages import chunk_texts
from msi_scorers.rag_options import RagOptions
from msi_scorers.text_scorer import TextScorer


class RagScorer(TextScorer):
    """Judges a text by its cosines with the chunks of the evidence.

    c_i = cos(e(text), e(chunk_i))

    phi = max over i of c_i, or their mean, or with pool softmax
    phi = sum over i of c_i exp(c_i / temperature) / sum over i of exp(c_i / temperature)

    in [-1, 1]: e is the embedder. White space at the ends and between words does not count. A
    segment without a letter or digit is judged by the end of what is committed: a path that stops
    adds nothing and takes nothing away. Where that says nothing either, phi is 0.

    All pending texts go to the embedder in one call, each text once, and none that was there
    before: neither a text that two paths share nor one of an earlier step. An embedder that
    `works_apart` embeds them on a thread of its own while the model runs.

    Example:
        Of cosines 0.8 and 0.2, max is 0.8 and the mean 0.5. With temperature 0.1 softmax weighs
        them exp(8) : exp(2) = 0.9975 : 0.0025, which makes 0.7985.

    Args:
        options: Text judged, pooling, control.
        evidence: The passages; at least one. One that carries a vector is one chunk.
        embedder: What embeds texts, and made those vectors.
    """

    def __init__(
        self, options: RagOptions, evidence: Sequence[Evidence], embedder: Embedder
    ) -> None:
        works_apart = getattr(embedder, "works_apart", False)
        super().__init__(options, self._nearness, works_apart=works_apart)
        self._pooling = options
        self._embedder = embedder
        self._chunks = self._vectors(evidence)

    @classmethod
    def of(cls, context: ScoreContext) -> RagScorer:
        """The scorer of one generation.

        Raises:
            ConfigError: If the caller gives no embedder and none is installed.
        """
        options = RagOptions(**context.options)
        if context.embedder is not None:
            return cls(options, context.evidence, find_embedder(context.embedder))
        evidence = [replace(passage, vector=None) for passage in context.evidence]
        return cls(options, evidence, find_embedder(options.embedder))

    def _vectors(self, evidence: Sequence[Evidence]) -> np.ndarray:
        """Unit vectors of the chunks: those that passages carry, and those of the others' text."""
        stored = [p.vector for p in evidence if p.vector is not None]
        if not stored or self.options.control == "shuffle":
            return unit_vectors(self._embedder, chunk_texts(self.options, evidence))
        known = unit(np.asarray(stored, dtype=np.float32))
        others = chunk_texts(self.options, [p for p in evidence if p.vector is None])
        return np.concatenate([known, unit_vectors(self._embedder, others)]) if others else known

    def _nearness(self, texts: list[str]) -> list[float]:
        cosines = unit_vectors(self._embedder, texts) @ self._chunks.T
        scores: list[float] = pooled(cosines, self._pooling).tolist()
        return scores


def pooled(cosines: np.ndarray, options: RagOptions) -> np.ndarray:
    """Cosines of shape ``(texts, chunks)`` as one float64 in [-1, 1] for each text."""
    cosines = np.clip(cosines.astype(np.float64), -1.0, 1.0)
    if options.pool == "max":
        return np.asarray(cosines.max(axis=1))
    if options.pool == "mean":
        return np.asarray(cosines.mean(axis=1))
    best = cosines.max(axis=1, keepdims=True)
    weights = np.exp((cosines - best) / options.temperature)
    return np.asarray((weights * cosines).sum(axis=1) / weights.sum(axis=1))
