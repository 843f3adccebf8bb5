"""Opinions: what a model would write after each token of a text that is there already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from msi_engine.sampling import NextToken
from msi_engine.stepping import to_numpy

_AT_ONCE = 64  # tokens whose logits, each as wide as the vocabulary, are held together


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a model thinks comes next.

    Attributes:
        token: The most probable token.
        margin: Lead of its logit over the second greatest, nats, >= 0.
    """

    token: int
    margin: float


def opinions(
    model: Any,
    prompt: Sequence[int],
    tokens: Sequence[int],
    step_size: int,
    num_logits: int | None = None,
) -> list[Opinion]:
    """A model's opinion before each of ``tokens``, read in a few passes. Engine thread only.

    Args:
        model: As mlx-lm's: token ids ``(1, L)`` and a ``cache`` to logits ``(1, L, V)``.
        prompt: Token ids before them, at least one.
        tokens: Token ids.
        step_size: Most prompt tokens in one pass.
        num_logits: Logits to look at, from the first; None is all.
    """
    cache = make_prompt_cache(model)
    for chunk in _chunks(prompt[:-1], step_size):
        model(mx.array([chunk]), cache=cache)
        mx.eval([layer.state for layer in cache])
    found = []
    for chunk in _chunks([prompt[-1], *tokens][: len(tokens)], _AT_ONCE):
        logits = model(mx.array([chunk]), cache=cache)[0, :, :num_logits]
        rows = (NextToken(row) for row in to_numpy(logits))
        found += [Opinion(row.sampled, row.margin) for row in rows]
    return found


def _chunks(tokens: Sequence[int], size: int) -> Iterator[list[int]]:
    for begin in range(0, len(tokens), size):
        yield list(tokens[begin : begin + size])
