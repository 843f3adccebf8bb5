"""One sequence is mlx-lm itself: the same bits, and nothing of ours in between."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step
from replicas import Replicas
from tiny_models import make

from msi_engine.cache import SharedPrefixCache, hook
from msi_engine.errors import CacheError, NotTrimmableError

PROMPT = [5, 9, 2, 41, 7, 7, 30, 12, 66, 3, 18, 25, 54, 8, 91, 33, 4, 72, 11, 60, 2, 15]
CASES: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("mixtral", {"max_kv_size": 16}),
    ("gpt_oss", {}),
    ("deepseek_v3", {}),
    ("qwen3_next", {}),
    ("llama4", {}),
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_greedy_decoding_is_generate_step_bit_for_bit(name: str, options: dict[str, Any]) -> None:
    model = make(name)
    want = list(
        generate_step(mx.array(PROMPT), model, max_tokens=12, prefill_step_size=8, **options)
    )

    cache = SharedPrefixCache.for_model(model, **options)
    hook.install(hook.defining_modules(model))  # as it is after a fork
    cache.prefill(PROMPT[:-1], 8)
    token = mx.array([[PROMPT[-1]]])
    for expected, logprobs in want:
        logits = cache.forward(token)[:, -1]
        ours = logits - mx.logsumexp(logits, keepdims=True)
        assert mx.array_equal(ours.squeeze(0), logprobs)
        token = mx.argmax(ours, axis=-1)[None]
        assert token.item() == expected
    assert cache.prefix_length == len(PROMPT) - 1 + len(want)


def test_tokens_may_be_unevaluated_so_that_steps_can_be_pipelined() -> None:
    model = make("llama")
    for num_paths in (None, 3):
        slow, fast = (SharedPrefixCache.for_model(model) for _ in range(2))
        rows = []
        for cache in (slow, fast):
            cache.prefill(PROMPT, 32)
            if num_paths:
                cache.fork(num_paths)
        for cache in (slow, fast):
            token = mx.arange(num_paths or 1)[:, None] + 1
            seen = []
            for _ in range(6):
                token = mx.argmax(cache.forward(token)[:, -1], axis=-1, keepdims=True)
                if cache is slow:
                    mx.eval(token)
                else:
                    mx.async_eval(token)
                seen.append(token)
            rows.append(mx.concatenate(seen, axis=1).tolist())
        assert rows[0] == rows[1]


def test_prefill_reports_progress_and_computes_the_cache() -> None:
    cache = SharedPrefixCache.for_model(make("llama"))
    seen = []
    cache.prefill(PROMPT, 9, lambda done, total: seen.append((done, total)))
    assert seen == [(9, 22), (18, 22), (22, 22)]
    assert cache.prefix_length == 22


def test_trimming_a_chunked_cache_is_refused_when_the_chunk_has_lost_its_front() -> None:
    model = make("llama4")  # chunks of 8
    cache, fresh = (SharedPrefixCache.for_model(model) for _ in range(2))
    for token in PROMPT:  # 22 tokens: the front is trimmed to position 13, in the second chunk
        cache.forward(mx.array([[token]]))
    assert cache.can_trim(5)
    assert not cache.can_trim(9)
    with pytest.raises(NotTrimmableError, match="ChunkedKVCache"):
        cache.trim(9)
    cache.trim(5)
    fresh.prefill(PROMPT[:-5], 64)
    last = mx.array([[3]])
    assert mx.allclose(cache.forward(last), fresh.forward(last), atol=1e-5)


@pytest.mark.parametrize("name", ["mamba", "gemma3_text"])
def test_what_cannot_be_trimmed_says_so(name: str) -> None:
    cache = SharedPrefixCache.for_model(make(name))
    cache.prefill(PROMPT, 32)
    assert not cache.can_trim(1)
    with pytest.raises(NotTrimmableError, match="Cache"):
        cache.trim(1)


def test_quantised_from_the_same_token_as_mlx_lm() -> None:
    model = make("qwen3", head_dim=32)
    options = {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 10}
    cache, truth = SharedPrefixCache.for_model(model, **options), Replicas(model, **options)
    for token in PROMPT:
        assert mx.array_equal(cache.forward(mx.array([[token]])), truth.forward([token]))


def test_misuse_is_one_clear_line() -> None:
    cache = SharedPrefixCache.for_model(make("llama"))
    cache.prefill(PROMPT, 32)
    with pytest.raises(CacheError, match="cannot trim 23 of 22"):
        cache.trim(23)
    for operation in (lambda: cache.park(0), cache.branch, lambda: cache.collapse(0)):
        with pytest.raises(CacheError, match="no paths are open"):
            operation()
    with pytest.raises(CacheError, match=r"shape \(1, L\)"):
        cache.forward(mx.array([[1], [2]]))
    cache.fork(2)
    for operation in (lambda: cache.fork(2), lambda: cache.trim(1), lambda: cache.prefill([1], 1)):
        with pytest.raises(CacheError, match="while paths are open"):
            operation()
    with pytest.raises(CacheError, match="path 7"):
        cache.drop(7)
    with pytest.raises(CacheError, match="live are"):
        cache.branch()
    cache.forward(mx.array([[1], [2]]))
    with pytest.raises(CacheError, match="has 1 tokens"):
        cache.collapse(0, 2)
    with pytest.raises(CacheError, match="cannot be cut"):
        cache.truncate_tails(2)
    cache.drop(0)
    cache.drop(1)
    with pytest.raises(CacheError, match="no path is live"):
        cache.forward(mx.array([[1]]))
