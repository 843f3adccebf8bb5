"""Vectors that a vector store has already: read from it, so that no document is embedded twice."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.vectorstores import VectorStore

from msi_engine import Evidence
from msi_engine.errors import ConfigError

# By id: the text as it was embedded, and its vector.
Stored = dict[str, tuple[str, tuple[float, ...]]]


def with_stored_vectors(passages: Sequence[Evidence], store: VectorStore) -> tuple[Evidence, ...]:
    """The passages, each with its vector where the store has it.

    Documents that a store returns bear the store's ids; by these their vectors are found. Known
    are stores built like LangChain's `InMemoryVectorStore`, Chroma and FAISS. The vectors of
    others, and of passages that are not in the store, are left to be computed.

    Args:
        passages: From this store or elsewhere.
        store: Embeds with the embedder that the scorers use.
    """
    wanted = [p.id for p in passages if p.id and p.vector is None]
    stored: Stored = {}
    for read in (_in_memory, _chroma, _faiss) if wanted else ():
        # What a store keeps inside may change with its version; then nothing is found.
        with contextlib.suppress(Exception):
            stored = read(store, wanted)
        if stored:
            break
    return tuple(_completed(passage, stored) for passage in passages)


def _completed(passage: Evidence, stored: Stored) -> Evidence:
    text, vector = stored.get(passage.id, ("", None))
    if passage.vector is not None or text != passage.text:  # compressed, say, on its way
        return passage
    return replace(passage, vector=vector)


def embeddings_of(store: VectorStore) -> Any:
    """What a store embeds with.

    Raises:
        ConfigError: If it does not tell.
    """
    embeddings = store.embeddings
    if embeddings is None:
        raise ConfigError(
            f"{type(store).__name__} does not tell what it embeds with; give its Embeddings as "
            "`embedder`"
        )
    return embeddings


def _in_memory(store: Any, ids: Iterable[str]) -> Stored:
    """A mapping ``store`` from ids to records with ``text`` and ``vector``."""
    records = {i: store.store[i] for i in ids if i in store.store}
    return {i: (record["text"], _plain(record["vector"])) for i, record in records.items()}


def _chroma(store: Any, ids: Sequence[str]) -> Stored:
    """``get`` that returns ids, documents and embeddings."""
    found = store.get(ids=list(ids), include=["documents", "embeddings"])
    rows = zip(found["ids"], found["documents"], found["embeddings"], strict=True)
    return {i: (text, _plain(vector)) for i, text, vector in rows}


def _faiss(store: Any, ids: Sequence[str]) -> Stored:
    """An ``index`` that reconstructs what it holds at the position of an id."""
    wanted = set(ids)
    positions = {i: at for at, i in store.index_to_docstore_id.items() if i in wanted}
    return {
        i: (store.docstore.search(i).page_content, _plain(store.index.reconstruct(at)))
        for i, at in positions.items()
    }


def _plain(vector: Iterable[Any]) -> tuple[float, ...]:
    return tuple(float(x) for x in vector)
