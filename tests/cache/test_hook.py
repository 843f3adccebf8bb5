"""The hook: put in once, taken out whole, and blind to everybody else's arrays."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import mlx.core as mx
import pytest
from mlx_lm.models import base, gpt_oss, llama
from mlx_lm.models.cache import make_prompt_cache
from replicas import relative_error
from tiny_models import make

from msi_engine.cache import SharedPrefixCache, hook
from msi_engine.errors import CacheError


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    hook.uninstall()
    yield
    hook.uninstall()


def logits_of_a_fork(model: object) -> mx.array:
    cache = SharedPrefixCache.for_model(model)
    cache.prefill([3, 1, 4, 1, 5, 9, 2, 6], 32)
    cache.fork(2)
    return cache.forward(mx.array([[7], [8]]))


def test_it_touches_only_the_modules_of_the_model_and_gives_them_back() -> None:
    original = base.scaled_dot_product_attention
    model = make("llama")
    hook.install(hook.defining_modules(model))
    hook.install(hook.defining_modules(model))
    assert llama.scaled_dot_product_attention is hook.attention
    assert gpt_oss.scaled_dot_product_attention is original
    assert base.scaled_dot_product_attention is original
    hook.uninstall()
    assert llama.scaled_dot_product_attention is original
    hook.uninstall()


def test_with_and_without_it_the_logits_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("llama")
    with_hook = logits_of_a_fork(model)
    mx.eval(with_hook)
    hook.uninstall()
    monkeypatch.setattr(hook, "install", lambda modules: None)
    without = logits_of_a_fork(model)
    assert relative_error(with_hook, without) < 1e-5


@pytest.mark.parametrize("name", ["llama", "gpt_oss", "deepseek_v3", "gemma3n"])
def test_it_is_used_for_ours_and_for_nobody_elses(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    split = hook.split_attention
    monkeypatch.setattr(hook, "split_attention", lambda *a: (calls.append(1), split(*a))[1])
    model = make(name)
    mx.eval(logits_of_a_fork(model))
    assert len(calls) == len(model.layers)
    other = make_prompt_cache(model)
    mx.eval(model(mx.array([[1, 2]]), cache=other), model(mx.array([[1, 2]])))
    assert len(calls) == len(model.layers)


def test_keys_that_the_model_has_altered_take_the_original_path() -> None:
    cache = SharedPrefixCache.for_model(make("llama"))
    cache.prefill([3, 1, 4], 32)
    cache.fork(2)
    tail = cache._fork.tails[0]
    new = mx.random.normal((2, 2, 1, 16))
    queries = mx.random.normal((2, 4, 1, 16))
    fetches = cache._fork._fetches
    with hook.watching(fetches):
        keys, values = tail.update_and_fetch(new, new)
        ours = hook.attention(queries, keys, values, tail, 0.25, None)
        altered = hook.attention(queries, keys + 1, values, tail, 0.25, None)
        swapped = hook.attention(queries, keys, values * 2, tail, 0.25, None)
    plain = mx.fast.scaled_dot_product_attention
    assert mx.allclose(ours, plain(queries, keys, values, scale=0.25), atol=1e-6)
    assert mx.allclose(altered, plain(queries, keys + 1, values, scale=0.25), atol=1e-6)
    assert mx.allclose(swapped, plain(queries, keys, values * 2, scale=0.25), atol=1e-6)
    assert not fetches


def test_threads_do_not_see_each_others_caches() -> None:
    model = make("llama")
    want = logits_of_a_fork(model).tolist()
    found: list[object] = []

    def work() -> None:
        stream = mx.new_thread_local_stream(mx.default_device())
        with mx.stream(stream):
            for _ in range(5):
                found.append(logits_of_a_fork(model).tolist())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [want] * 15


def test_a_pass_that_breaks_off_leaves_a_fork_as_it_was() -> None:
    for name in ("llama", "qwen3_next", "falcon_h1"):
        model = make(name)
        caches = [SharedPrefixCache.for_model(model) for _ in range(2)]
        for cache in caches:
            cache.prefill([3, 1, 4, 1, 5], 32)
            cache.fork(2)
            mx.eval(cache.forward(mx.array([[7], [8]])))
        layer = model.layers[-1]
        kind = type(layer)
        original = kind.__call__

        def broken(self: object, *args: object, **kwargs: object) -> mx.array:
            if self is layer:  # noqa: B023
                raise KeyboardInterrupt
            return original(self, *args, **kwargs)  # noqa: B023

        kind.__call__ = broken
        try:
            with pytest.raises(KeyboardInterrupt):
                caches[0].forward(mx.array([[1], [2]]))
        finally:
            kind.__call__ = original
        got, want = (cache.forward(mx.array([[5], [6]])) for cache in caches)
        assert mx.array_equal(got, want)


def test_a_pass_over_the_prefix_that_breaks_off_spoils_the_cache_and_says_so() -> None:
    model = make("llama")
    cache = SharedPrefixCache.for_model(model)
    assert cache.is_intact
    with pytest.raises(ValueError, match="index"):
        cache.forward(_Unreadable((1, 1)))
    assert not cache.is_intact
    with pytest.raises(CacheError, match="half-way"):
        cache.forward(mx.array([[1]]))


class _Unreadable:
    """Passes for tokens until the model looks them up."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape, self.ndim = shape, len(shape)
