"""What tails hand to the model is what a copy of mlx-lm's cache would hand it, layer by layer."""

from __future__ import annotations

import copy
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import ChunkedKVCache, KVCache, QuantizedKVCache, RotatingKVCache

from msi_engine.cache.kinds import open_tail

CACHES: dict[str, Any] = {
    "plain": KVCache,
    "window": lambda: RotatingKVCache(max_size=12),
    "window that keeps its first tokens": lambda: RotatingKVCache(max_size=12, keep=4),
    "chunked": lambda: ChunkedKVCache(8),
    "quantised": lambda: QuantizedKVCache(group_size=32, bits=8),
}
PATHS, HEADS, WIDTH = 3, 2, 32


def rows_of(fetched: tuple[Any, Any]) -> np.ndarray:
    """Keys and values side by side: (rows, H, columns, ...), quantised ones dequantised."""
    plain = [
        x if isinstance(x, mx.array) else mx.dequantize(*x, group_size=32, bits=8) for x in fetched
    ]
    return np.concatenate([np.array(x) for x in plain], axis=-1)


def by_column(x: np.ndarray) -> np.ndarray:
    """In an order of columns that does not depend on where a ring has put them."""
    return np.stack([row[:, np.lexsort(row[0].T)] for row in x])


@pytest.mark.parametrize("kind", CACHES)
@pytest.mark.parametrize("prefix", [[], [2], [5, 1], [11], [30], [30, 1, 1], [7, 1, 1, 1, 9]])
def test_keys_values_masks_and_offsets_are_those_of_copies(kind: str, prefix: list[int]) -> None:
    rng = np.random.default_rng(len(prefix))
    base = CACHES[kind]()

    def new(rows: int, length: int) -> mx.array:
        return mx.array(rng.normal(size=(rows, HEADS, length, WIDTH)).astype(np.float32))

    for length in prefix:
        base.update_and_fetch(new(1, length), new(1, length))
    copies = [copy.deepcopy(base) for _ in range(PATHS)]
    tail: Any = open_tail(base, PATHS, 8, {})

    for length in (1, 1, 3, 1, 7, 1, 1, 2):
        for each in (tail, *copies):
            if kind == "chunked":
                each.maybe_trim_front()
        assert tail.offset == copies[0].offset
        if kind == "chunked":
            assert tail.start_position == copies[0].start_position
        else:
            arguments = {"window_size": None, "return_array": length > 1}
            _same_mask(tail.make_mask(length), copies[0].make_mask(length, **arguments))
        keys, values = new(PATHS, length), new(PATHS, length)
        got = rows_of(tail.update_and_fetch(keys, values))
        want = np.concatenate(
            [
                rows_of(c.update_and_fetch(keys[i : i + 1], values[i : i + 1]))
                for i, c in enumerate(copies)
            ]
        )
        if length == 1:  # a ring is out of order then, and no mask depends on it
            got, want = by_column(got), by_column(want)
        np.testing.assert_array_equal(got, want)

    np.testing.assert_array_equal(rows_of(tail.keys_and_values()), got)
    tail.commit(1, 1, tail.length)
    assert base.offset == copies[1].offset
    keys, values = new(1, 1), new(1, 1)
    if kind == "chunked":
        base.maybe_trim_front()
        copies[1].maybe_trim_front()
    got, want = (by_column(rows_of(c.update_and_fetch(keys, values))) for c in (base, copies[1]))
    np.testing.assert_array_equal(got, want)


def _same_mask(got: mx.array | None, want: mx.array | None) -> None:
    assert (got is None) == (want is None)
    if got is not None and want is not None:
        assert mx.array_equal(got, want)


@pytest.mark.parametrize("length", [3, 20])
def test_a_mask_narrower_than_the_window_hides_the_oldest(length: int) -> None:
    base = RotatingKVCache(max_size=12)
    base.update_and_fetch(mx.zeros((1, 1, length, 4)), mx.zeros((1, 1, length, 4)))
    tail: Any = open_tail(base, 2, 8, {})
    mask = tail.make_mask(1, window_size=5)
    if length == 3:
        assert mask is None
    else:
        assert mask.tolist() == [False] * 7 + [True] * 5
