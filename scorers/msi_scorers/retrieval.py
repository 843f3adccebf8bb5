"""Retrieval: the chunks that a question is about, from vectors that are kept on disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np

from msi_engine import Embedder, Evidence
from msi_engine.errors import ConfigError
from msi_engine.model.home import home
from msi_engine.vectors import unit, unit_vectors

BALANCE = 0.5  # of MMR: 1 is nearness to the question alone, 0 is difference alone


def retrieve(
    question: str, chunks: Sequence[Evidence], embedder: Embedder, top_k: int
) -> tuple[Evidence, ...]:
    """The chunks nearest to a question, and unlike each other, the best first.

    Args:
        question: What is asked.
        chunks: All there are; at least one.
        embedder: What embeds both.
        top_k: How many are wanted.

    Returns:
        The chunks, each with its vector, so that a scorer need not embed it again.

    Raises:
        ConfigError: If the embedder does not return one finite vector for each text.
    """
    try:
        asked = unit_vectors(embedder, [question])
        # Kept document by document: a change in one leaves the others' vectors as they are.
        documents = groupby(chunks, key=lambda chunk: chunk.source)
        found = [chunk_vectors(embedder, [c.text for c in group]) for _, group in documents]
    except ValueError as error:
        raise ConfigError(str(error)) from error
    vectors = np.concatenate(found)
    best = mmr(asked[0], vectors, top_k)
    return tuple(replace(chunks[i], vector=tuple(vectors[i].tolist())) for i in best)


def mmr(asked: np.ndarray, vectors: np.ndarray, top_k: int, balance: float = BALANCE) -> list[int]:
    """Maximal marginal relevance (Carbonell and Goldstein 1998).

    Each choice maximises ``balance * cos(question, chunk) - (1 - balance) * max cos(chosen,
    chunk)``; of equal ones it is the first.

    Args:
        asked: Vector of the question, shape ``(dimensions,)``.
        vectors: Of the chunks, shape ``(chunks, dimensions)``. Lengths do not matter.
        top_k: How many are wanted.
        balance: In [0, 1].

    Returns:
        Positions in the order of choice, as many as are wanted or there are.
    """
    vectors = unit(vectors)
    nearness = vectors @ unit(asked[None, :])[0]
    likeness = np.zeros(len(vectors), dtype=np.float64)  # to the nearest that is chosen
    left = np.ones(len(vectors), dtype=bool)
    chosen: list[int] = []
    while left.any() and len(chosen) < top_k:
        value = balance * nearness - (1 - balance) * likeness
        best = int(np.where(left, value, -np.inf).argmax())
        cosines = vectors @ vectors[best]
        likeness = np.maximum(likeness, cosines) if chosen else cosines
        chosen.append(best)
        left[best] = False
    return chosen


def chunk_vectors(embedder: Embedder, texts: Sequence[str]) -> np.ndarray:
    """Unit vectors of chunks, embedded once and then read from MSI's folder ``embeddings``.

    A file's name is made of the embedder's name and the texts, so that it is never out of date.
    A file that is damaged is made again; where none can be written, none is.

    Args:
        embedder: What embeds them.
        texts: At least one.

    Returns:
        float32 of shape ``(texts, dimensions)``.

    Raises:
        ValueError: If the embedder does not return one finite vector for each text.
    """
    path = home() / "embeddings" / f"{_digest(embedder.name, texts)}.npy"
    with contextlib.suppress(OSError, ValueError, EOFError):
        kept = np.load(path, allow_pickle=False)
        if kept.ndim == 2 and len(kept) == len(texts) and kept.dtype == np.float32:
            return np.asarray(kept)
    vectors = unit_vectors(embedder, texts)
    with contextlib.suppress(OSError):
        _write(path, vectors)
    return vectors


def _digest(name: str, texts: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for text in (name, *texts):
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8))
        digest.update(data)
    return digest.hexdigest()[:40]


def _write(path: Path, vectors: np.ndarray) -> None:
    """Whole or not at all: another process may be reading."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.save(file, vectors)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
