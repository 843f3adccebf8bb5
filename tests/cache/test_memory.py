"""Bytes held never exceed the prefix and K tails, rounded up by the step of allocation."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache
from tiny_models import VOCAB, make

from msi_engine.cache import SharedPrefixCache

PREFIX_STEP = 256  # mlx-lm's
SEGMENT = 16


def bytes_of(model: object, tokens: int) -> int:
    """What mlx-lm's own caches hold for so many tokens, without rounding."""
    cache = make_prompt_cache(model)
    mx.eval(model(mx.ones((1, 2), mx.int32), cache=cache))
    one = sum(a.nbytes // a.shape[2] for c in cache for a in (c.keys, c.values))
    return tokens * one


def rounded(tokens: int, step: int) -> int:
    return -(-tokens // step) * step


@pytest.mark.parametrize("name", ["llama", "gpt2", "deepseek_v3"])
def test_bytes_stay_within_the_bound_through_a_whole_generation(name: str) -> None:
    model = make(name)
    rng = np.random.default_rng(0)
    cache = SharedPrefixCache.for_model(model, segment_length=SEGMENT)
    cache.prefill(rng.integers(1, VOCAB, 300).tolist(), 128)

    def check(open_paths: int, longest: int) -> None:
        mx.eval(cache.evaluate())
        # Growing copies what is in use and adds whole steps to it, so up to one step is spare.
        prefix = cache.prefix_length + 2 * PREFIX_STEP
        bound = bytes_of(model, prefix + open_paths * rounded(longest, SEGMENT))
        assert cache.nbytes <= bound

    for segment in range(6):
        num_paths = 2 + segment % 5
        cache.fork(num_paths)
        assert cache.nbytes <= bytes_of(model, cache.prefix_length + 2 * PREFIX_STEP)
        for step in range(1, 20):
            cache.forward(mx.array(rng.integers(1, VOCAB, (len(cache.live), 1))))
            check(num_paths, step)
            if step == 7:
                cache.drop(cache.live[0])
                num_paths -= 1
            if step in (9, 12) and len(cache.live) > 1:
                cache.park(cache.live[-1])
        cache.collapse(cache.live[0])
        check(0, 0)


def test_dropped_paths_give_their_bytes_back() -> None:
    model = make("llama")
    cache = SharedPrefixCache.for_model(model, segment_length=SEGMENT)
    cache.prefill([1, 2, 3], 32)
    before = cache.nbytes
    cache.fork(8)
    cache.forward(mx.ones((8, 1), mx.int32))
    tails = cache.nbytes - before
    assert tails == bytes_of(model, 8 * SEGMENT)
    for path in range(1, 8):
        cache.drop(path)
    cache.forward(mx.ones((1, 1), mx.int32))
    assert cache.nbytes - before == tails // 8


def test_not_even_one_layer_is_replicated_not_even_for_a_moment() -> None:
    """Measured by the allocator, so that temporaries (scores of a chunk, mostly) count."""
    model = make("llama")
    num_paths, prefix = 8, 4000
    cache = SharedPrefixCache.for_model(model, segment_length=SEGMENT)
    cache.prefill([1] * prefix, 200)
    one_prefix = bytes_of(model, prefix)
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    for _ in range(2):
        cache.fork(num_paths)
        for length in (1, 1, 3):
            mx.eval(cache.forward(mx.ones((num_paths, length), mx.int32)))
        cache.park(1)
        cache.drop(2)
        mx.eval(cache.forward(mx.ones((num_paths - 2, 1), mx.int32)))
        cache.collapse(1)
    extra = mx.get_peak_memory() - before
    assert extra < num_paths * one_prefix // len(model.layers)


def test_parked_rows_do_not_hold_on_to_the_buffer_that_they_were_taken_from() -> None:
    """Measured by the allocator: a copy that is still to be made keeps all rows alive."""
    model = make("llama")
    num_paths, segment = 8, 512
    cache = SharedPrefixCache.for_model(model, segment_length=segment)
    cache.prefill([1, 2, 3], 32)
    before = mx.get_active_memory()
    cache.fork(num_paths)
    mx.eval(cache.forward(mx.ones((num_paths, 1), mx.int32)))
    for path in (2, 5):
        cache.park(path)
        mx.eval(cache.forward(mx.ones((len(cache.live), 1), mx.int32)))
        held = mx.get_active_memory() - before
        assert held <= 1.02 * bytes_of(model, num_paths * segment)


def test_a_collapse_copies_the_tail_and_not_the_prefix() -> None:
    model = make("llama")
    cache = SharedPrefixCache.for_model(model, segment_length=SEGMENT)
    cache.prefill([1] * 1000, 1000)
    cache.fork(4)
    mx.eval(cache.forward(mx.ones((4, 3), mx.int32)))
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    cache.collapse(2)
    assert mx.get_peak_memory() - before < bytes_of(model, 1000) // (2 * len(model.layers))


def test_a_window_bounds_the_prefix() -> None:
    model = make("gemma3_text")  # every other layer sees 16 tokens
    held = []
    for length in (64, 512):
        cache = SharedPrefixCache.for_model(model)
        cache.prefill([1] * length, 32)
        cache.forward(mx.array([[1]]))
        cache.fork(2)
        mx.eval(cache.forward(mx.array([[1], [2]])))
        held.append(sum(c.keys.nbytes for c in cache._prefix if hasattr(c, "max_size")))
    assert held[0] == held[1]
