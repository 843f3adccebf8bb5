"""A toy embedder: hashed words, no model. For tests of what is done with embeddings."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np


class ToyEmbedder:
    """Counts words in hashed places: texts that share words have a positive cosine.

    Args:
        dimensions: Length of the vectors.

    Attributes:
        asked: The texts of every call, in order.
    """

    def __init__(self, dimensions: int = 256) -> None:
        self.name = f"toy-{dimensions}"
        self.dimensions = dimensions
        self.asked: list[tuple[str, ...]] = []

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """See `msi_engine.Embedder`. A text without words is the zero vector."""
        self.asked.append(tuple(texts))
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for word in re.findall(r"\w+", text.casefold()):
                digest = hashlib.blake2b(word.encode(), digest_size=4).digest()
                row[int.from_bytes(digest) % self.dimensions] += 1.0
        return vectors
