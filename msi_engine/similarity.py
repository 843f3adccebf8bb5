"""How alike texts are by an embedder, for collapse mode `mbr`; chrF is in `collapse`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from msi_engine.collapse import Similarity
from msi_engine.errors import DecodeError
from msi_engine.evidence import Embedder
from msi_engine.vectors import unit_vectors


def cosine_similarity(embedder: Embedder) -> Similarity:
    """Pairwise cosines in [-1, 1], of texts with single spaces.

    A text without a letter or digit is like another such text (1), and unlike every other (0):
    what an embedder makes of it means nothing.

    Raises (when called):
        DecodeError: If the embedder raises, or does not return one finite vector for each text.
    """

    def similarity(texts: Sequence[str]) -> np.ndarray:
        plain = [" ".join(text.split()) for text in texts]
        says = np.array([any(map(str.isalnum, text)) for text in plain])
        vectors = _embedded(embedder, [t for t, s in zip(plain, says, strict=True) if s])
        scores = np.equal.outer(~says, ~says).astype(np.float64)
        scores[np.ix_(says, says)] = np.clip(vectors @ vectors.T, -1.0, 1.0)
        return np.asarray(scores)

    return similarity


def _embedded(embedder: Embedder, texts: list[str]) -> np.ndarray:
    try:
        return unit_vectors(embedder, texts).astype(np.float64)
    except Exception as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise DecodeError(f"collapse by mbr with embedder {embedder.name}: {what}") from error
