"""Re-ranking: candidates in the order in which a cross-encoder finds them to fit a query."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from langchain_core.runnables import RunnableConfig, RunnableSerializable
from pydantic import ConfigDict, Field, field_validator

from langchain_msi.candidates import text_of, with_note
from langchain_msi.inputs import check_keys
from msi_engine.errors import ConfigError

SCORE = "relevance_score"


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate and its score.

    Attributes:
        candidate: As it came, with the score in its metadata if it has any.
        score: What the cross-encoder said; greater fits better.
        index: Its position among the candidates as they came.
    """

    candidate: Any
    score: float
    index: int


class Rerank(RunnableSerializable[Mapping[str, Any], list[Any]]):
    """Sort candidates, best first, by a cross-encoder's judgement of (query, candidate).

    In: ``{"query": ..., "candidates": [...]}``, the candidates being strings, messages, documents
    or parsed values. Out: the same, sorted and cut to `top_n`; messages have their score in
    ``response_metadata["relevance_score"]``, documents in ``metadata``. Of equal scores, the one
    that came first stays first. No candidates is an empty list.

    Example:
        .. code-block:: python

            from sentence_transformers import CrossEncoder

            best = {
                "query": itemgetter("question"),
                "candidates": Samples(runnable=chain, n=8),
            } | Rerank(encoder=CrossEncoder("cross-encoder/ms-marco-MiniLM-L6-v2"), top_n=1)
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    encoder: Any
    """LangChain's ``BaseCrossEncoder`` (``score(pairs)``), sentence-transformers' ``CrossEncoder``
    (``predict(pairs)``), or anything that has one of these methods."""

    top_n: int | None = Field(None, ge=1)
    """How many are kept; None keeps all."""

    query_key: str = "query"
    """Where the input has the query."""

    candidates_key: str = "candidates"
    """Where the input has the candidates."""

    @field_validator("encoder")
    @classmethod
    def _can_score(cls, value: Any) -> Any:
        if _scorer(value) is None:
            raise ValueError(
                "`encoder` must have a method score(pairs) or predict(pairs), such as LangChain's "
                f"and sentence-transformers' cross-encoders, got {type(value).__name__}"
            )
        return value

    def rank(self, query: Any, candidates: Sequence[Any]) -> list[Ranked]:
        """Score in one call, sort, cut.

        Raises:
            ConfigError: If the encoder does not give one finite number for each pair.
        """
        if not candidates:
            return []
        pairs = [(text_of(query), text_of(candidate)) for candidate in candidates]
        score = _scorer(self.encoder)
        scores = _checked(score(pairs) if score else None, len(pairs))
        order = sorted(range(len(scores)), key=lambda i: -scores[i])  # stable
        return [
            Ranked(with_note(candidates[i], {SCORE: scores[i]}), scores[i], i)
            for i in order[: self.top_n]
        ]

    def invoke(
        self, input: Mapping[str, Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> list[Any]:
        """The candidates, best first.

        Raises:
            ConfigError: If the input lacks a key, or the encoder breaks its contract.
        """
        return self._call_with_config(self._sorted, input, config)

    async def ainvoke(
        self, input: Mapping[str, Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> list[Any]:
        """`invoke` for an event loop, which the encoder does not block."""

        async def run(value: Mapping[str, Any]) -> list[Any]:
            return await asyncio.to_thread(self._sorted, value)

        return await self._acall_with_config(run, input, config)

    def _sorted(self, value: Mapping[str, Any]) -> list[Any]:
        check_keys("re-ranking", value, self.query_key, self.candidates_key)
        ranked = self.rank(value[self.query_key], value[self.candidates_key])
        return [item.candidate for item in ranked]


def _scorer(encoder: Any) -> Any:
    methods = (getattr(encoder, name, None) for name in ("score", "predict"))
    return next((m for m in methods if callable(m)), None)


def _checked(scores: Any, count: int) -> list[float]:
    values = np.asarray(scores, dtype=np.float64)
    if values.shape == (count, 1):
        values = values[:, 0]
    if values.shape != (count,) or not np.isfinite(values).all():
        raise ConfigError(
            f"a cross-encoder must give one finite score for each of {count} pairs, got "
            f"shape {values.shape}; one with several labels cannot rank"
        )
    return [float(v) for v in values]
