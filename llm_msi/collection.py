"""Passages from an embedding collection of `llm`, found with the collection's own model."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import llm
import numpy as np

from msi_engine import Evidence
from msi_engine.errors import ConfigError


def from_collection(name: str, question: str, top_k: int) -> tuple[Evidence, ...]:
    """The entries nearest to a question, and unlike each other, the best first.

    Args:
        name: Name of the collection.
        question: What is asked.
        top_k: How many are wanted.

    Raises:
        ConfigError: If there is no such collection, it holds no texts, or its model fails.
    """
    from msi_scorers.retrieval import mmr

    model_id, rows = _read(name)
    if not rows:
        raise ConfigError(f"collection {name!r} is empty; fill it with: llm embed-multi {name}")
    entries = [(entry, text, vector) for entry, text, vector in rows if text and text.strip()]
    if not entries:
        raise ConfigError(
            f"collection {name!r} holds vectors without their texts; embed it again with --store"
        )
    vectors = [np.frombuffer(vector, dtype="<f4") for _, _, vector in entries]
    asked = _embedded(question, name, model_id)
    if {len(vector) for vector in vectors} != {len(asked)}:
        raise ConfigError(f"the vectors of collection {name!r} are not those of {model_id}")
    chosen = mmr(asked, np.stack(vectors), top_k)
    return tuple(Evidence(entries[i][1], f"{name}: {entries[i][0]}") for i in chosen)


def database() -> Path:
    """Where `llm` keeps its embeddings."""
    return Path(os.environ.get("LLM_EMBEDDINGS_DB") or llm.user_dir() / "embeddings.db")


def _read(name: str) -> tuple[str, list[tuple[str, str | None, bytes]]]:
    """The collection's model and its rows: id, text, vector as little-endian float32."""
    missing = f"llm has no collection {name!r}; see: llm collections"
    if not database().is_file():
        raise ConfigError(missing)
    try:
        with closing(sqlite3.connect(f"{database().as_uri()}?mode=ro", uri=True)) as connection:
            found = connection.execute(
                "select id, model from collections where name = ?", [name]
            ).fetchone()
            if found is None:
                raise ConfigError(missing)
            rows = connection.execute(
                "select id, content, embedding from embeddings where collection_id = ? order by id",
                [found[0]],
            ).fetchall()
    except sqlite3.Error as error:
        raise ConfigError(f"collection {name!r} cannot be read: {error}") from error
    return str(found[1]), rows


def _embedded(question: str, name: str, model_id: str) -> np.ndarray:
    try:
        vector = llm.get_embedding_model(model_id).embed(question)
    except llm.UnknownModelError:
        raise ConfigError(
            f"collection {name!r} was made with {model_id!r}, which is not installed"
        ) from None
    except Exception as error:  # the model is somebody else's plugin and may raise anything
        text = " ".join(str(error).split())
        raise ConfigError(f"{model_id!r}, of collection {name!r}, fails: {text}") from error
    return np.asarray(vector, dtype=np.float32)
