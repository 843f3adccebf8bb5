"""Vectors of unit length from an embedder, checked: their products are cosines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from msi_engine.evidence import Embedder


def unit_vectors(embedder: Embedder, texts: Sequence[str]) -> np.ndarray:
    """Embed texts in one call.

    Args:
        embedder: What embeds them.
        texts: Any number.

    Returns:
        float32 of shape ``(texts, dimensions)``, rows of length 1 or, where an embedding is zero,
        of length 0. Shape ``(0, 0)`` for no texts; the embedder is not asked then.

    Raises:
        ValueError: If the embedder does not return one finite vector for each text.
    """
    if not texts:
        return np.zeros((0, 0), dtype=np.float32)
    rows = np.asarray(embedder.embed(list(texts)), dtype=np.float32)
    if rows.ndim != 2 or len(rows) != len(texts) or not rows.shape[1]:
        raise ValueError(
            f"embedder {embedder.name} returned shape {rows.shape} for {len(texts)} texts"
        )
    if not np.isfinite(rows).all():
        raise ValueError(f"embedder {embedder.name} returned numbers that are not finite")
    return unit(rows)


def unit(rows: np.ndarray) -> np.ndarray:
    """The rows at length 1; rows of zeros as they are. Shape as given."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths == 0.0, 1.0, lengths))
