"""Split attention against float64 NumPy, over random shapes, masks and sinks."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msi_engine.cache.attention import Packing, split_attention


def attend64(
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    scale: float,
    mask: np.ndarray | None,
    sinks: np.ndarray | None,
) -> np.ndarray:
    group = queries.shape[1] // keys.shape[1]
    keys, values = (np.repeat(x, group, axis=1).astype(np.float64) for x in (keys, values))
    scores = scale * queries.astype(np.float64) @ keys.swapaxes(-1, -2)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if sinks is not None:
        column = np.broadcast_to(sinks[None, :, None, None], (*scores.shape[:3], 1))
        scores = np.concatenate([scores, column], axis=-1)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights[..., : keys.shape[2]] @ values


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_equals_attention_over_the_concatenation(data: st.DataObject) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    A, H, group = draw(st.integers(1, 8)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    L, T, D, Dv = draw(st.sampled_from([1, 1, 3])), draw(st.integers(3, 20)), 8, 12
    pieces = draw(st.lists(st.integers(1, 40), max_size=3))
    N = sum(pieces) + T

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    queries = normal(A, H * group, L, D)
    shared = [(normal(1, H, n, D), normal(1, H, n, Dv)) for n in pieces]
    tail = normal(A, H, T, D), normal(A, H, T, Dv)
    keys, values = (
        np.concatenate([*(np.repeat(s[i], A, axis=0) for s in shared), tail[i]], axis=2)
        for i in range(2)
    )
    shape = draw(
        st.sampled_from([(L, N), (1, L, N), (A, 1, L, N), (1, 1, L, N), (A, H * group, L, N), (N,)])
    )
    kind = draw(st.sampled_from(["none", "bool", "additive", "causal"]))
    mask: np.ndarray | None = None
    if kind == "bool":
        mask = rng.random(shape) < 0.7
        mask[..., -1] = True
    elif kind == "additive":
        mask = normal(*shape)
    elif kind == "causal":
        mask = np.tril(np.ones((L, N), bool), N - L)
    sinks = normal(H * group) if draw(st.booleans()) else None

    got = split_attention(
        mx.array(queries),
        [(mx.array(k), mx.array(v)) for k, v in shared],
        (mx.array(tail[0]), mx.array(tail[1])),
        0.3,
        "causal" if kind == "causal" else None if mask is None else mx.array(mask),
        None if sinks is None else mx.array(sinks),
    )
    want = attend64(queries, keys, values, 0.3, mask, sinks)
    np.testing.assert_allclose(np.array(got), want, atol=5e-6)


@pytest.mark.parametrize("bits", [4, 8])
def test_quantised_equals_attention_over_the_dequantised(bits: int) -> None:
    rng = np.random.default_rng(1)
    packing = Packing(bits=bits, group_size=32)

    def quantised(*shape: int) -> tuple[tuple[mx.array, ...], np.ndarray]:
        x = mx.array(rng.normal(size=shape).astype(np.float32))
        packed = mx.quantize(x, group_size=32, bits=bits)
        return packed, np.array(mx.dequantize(*packed, group_size=32, bits=bits))

    queries = rng.normal(size=(3, 4, 2, 32)).astype(np.float32)
    (pk, pk64), (pv, pv64) = quantised(1, 2, 21, 32), quantised(1, 2, 21, 32)
    (tk, tk64), (tv, tv64) = quantised(3, 2, 5, 32), quantised(3, 2, 5, 32)
    got = split_attention(mx.array(queries), [(pk, pv)], (tk, tv), 0.3, "causal", packing=packing)
    keys, values = (
        np.concatenate([np.repeat(p, 3, axis=0), t], axis=2)
        for p, t in ((pk64, tk64), (pv64, tv64))
    )
    mask = np.tril(np.ones((2, 26), bool), 24)
    want = attend64(queries, keys, values, 0.3, mask, None)
    np.testing.assert_allclose(np.array(got), want, atol=2e-5)
