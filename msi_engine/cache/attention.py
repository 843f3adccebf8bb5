"""Attention of several paths over one stored prefix.

Knows the arithmetic only: keys and values come in as shared pieces (batch 1) and a private tail
(one row a path). Does not know where they are kept or who asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import mlx.core as mx

from msi_engine.cache.upstream import create_causal_mask

# One array, or mlx's (packed, scales, biases) of a quantised one.
Stored: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Packing:
    """How quantised keys and values are packed.

    Attributes:
        bits: Bits of an entry.
        group_size: Entries that share a scale.
    """

    bits: int
    group_size: int


def split_attention(
    queries: mx.array,
    shared: Sequence[tuple[Stored, Stored]],
    tail: tuple[Stored, Stored],
    scale: float,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
    packing: Packing | None = None,
) -> mx.array:
    """Attend to ``shared + tail`` as if they were concatenated, without concatenating them.

    Paths and the query heads of a group are folded into the rows of one matrix product, so that
    the shared pieces are read once for all paths; one softmax runs over all columns.

    Args:
        queries: Shape ``(A, Hq, L, D)``, any float type.
        shared: Keys ``(1, H, n, D)`` and values ``(1, H, n, Dv)`` that every path sees, in order.
        tail: Keys ``(A, H, T, D)`` and values ``(A, H, T, Dv)`` of each path, the newest last.
        scale: Factor on the scores.
        mask: None (all columns), ``"causal"``, or a boolean or additive array that broadcasts to
            ``(A, Hq, L, N)``, N being the number of columns.
        sinks: One logit a query head, shape ``(Hq,)``: a column without a value.
        packing: Set when keys and values are quantised.

    Returns:
        Shape ``(A, Hq, L, Dv)``.
    """
    A, Hq, L, D = queries.shape
    H = _first(tail[0]).shape[1]
    rows = Hq // H * L
    q = (queries * scale).reshape(A, H, rows, D)
    folded = q.transpose(1, 0, 2, 3).reshape(1, H, A * rows, D)

    scores = [_times_keys(folded, k, packing).reshape(H, A, rows, -1) for k, _ in shared]
    scores.append(_times_keys(q, tail[0], packing).transpose(1, 0, 2, 3))
    joint = mx.concatenate(scores, axis=-1) if shared else scores[0]  # (H, A, rows, N)
    columns = joint.shape[-1]
    if isinstance(mask, str):
        mask = create_causal_mask(L, columns - L) if L > 1 else None
    if mask is not None:
        joint = _masked(joint.reshape(H, A, Hq // H, L, columns), mask)
        joint = joint.reshape(H, A, rows, columns)
    weights = _softmax(joint, sinks, Hq // H, L)

    done = sum(_first(k).shape[2] for k, _ in shared)
    private = weights[..., done:] if shared else weights
    out = _times_values(private.transpose(1, 0, 2, 3), tail[1], packing)  # (A, H, rows, Dv)
    start = 0
    for k, v in shared:
        stop = start + _first(k).shape[2]
        part = weights[..., start:stop].reshape(1, H, A * rows, stop - start)
        part = _times_values(part, v, packing)
        out = out + part.reshape(H, A, rows, -1).transpose(1, 0, 2, 3)
        start = stop
    return out.reshape(A, Hq, L, -1)


def _first(stored: Stored) -> mx.array:
    first: mx.array = stored if isinstance(stored, mx.array) else stored[0]
    return first


def _times_keys(x: mx.array, keys: Stored, packing: Packing | None) -> mx.array:
    if packing is None:
        return mx.matmul(x, keys.swapaxes(-1, -2))
    packed, scales, biases = keys
    return mx.quantized_matmul(
        x, packed, scales, biases, True, group_size=packing.group_size, bits=packing.bits
    )


def _times_values(weights: mx.array, values: Stored, packing: Packing | None) -> mx.array:
    if packing is None:
        return mx.matmul(weights, values)
    packed, scales, biases = values
    return mx.quantized_matmul(
        weights, packed, scales, biases, False, group_size=packing.group_size, bits=packing.bits
    )


def _masked(scores: mx.array, mask: mx.array) -> mx.array:
    """``scores`` (H, A, G, L, N) under a mask that broadcasts to (A, Hq, L, N)."""
    H, _, G, _, _ = scores.shape
    if mask.ndim == 4:
        if mask.shape[1] == 1:  # (A, 1, L, N)
            mask = mask.transpose(1, 0, 2, 3)[:, :, None]
        else:  # (A, Hq, L, N)
            mask = mask.reshape(mask.shape[0], H, G, *mask.shape[2:]).transpose(1, 0, 2, 3, 4)
    elif mask.ndim == 3:  # (Hq or 1, L, N)
        mask = mask[:, None, None] if mask.shape[0] == 1 else mask.reshape(H, 1, G, *mask.shape[1:])
    if mask.dtype == mx.bool_:
        return mx.where(mask, scores, mx.array(mx.finfo(scores.dtype).min, scores.dtype))
    return scores + mask.astype(scores.dtype)


def _softmax(scores: mx.array, sinks: mx.array | None, group: int, length: int) -> mx.array:
    if sinks is None:
        return mx.softmax(scores, axis=-1, precise=True)
    H, A, rows, _ = scores.shape
    column = sinks.astype(scores.dtype).reshape(H, 1, group, 1, 1)
    column = mx.broadcast_to(column, (H, A, group, length, 1)).reshape(H, A, rows, 1)
    weights = mx.softmax(mx.concatenate([scores, column], axis=-1), axis=-1, precise=True)
    return weights[..., :-1]
