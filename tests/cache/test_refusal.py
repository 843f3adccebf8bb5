"""What cannot be served is refused by name, before anything is decoded."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.models.cache import KVCache
from tiny_models import VOCAB, make

from msi_engine.cache import SharedPrefixCache
from msi_engine.errors import UnsupportedModelError


class Toy(nn.Module):
    """A model of one's own: one attention layer over one of mlx-lm's caches."""

    model_type = "toy"

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 16)
        self.layers = [self.embedding]

    def attend(self, h: mx.array, cache: KVCache) -> mx.array:
        queries = h[:, None]
        mask = cache.make_mask(h.shape[1], window_size=None, return_array=False)
        keys, values = cache.update_and_fetch(queries, queries)
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=1.0, mask=mask)

    def __call__(self, inputs: mx.array, cache: list[Any]) -> mx.array:
        return self.embedding.as_linear(self.attend(self.embedding(inputs), cache[0])[:, 0])


class Wrong(Toy):
    """Looks at its cache's buffer behind the cache's back."""

    model_type = "wrong"

    def attend(self, h: mx.array, cache: KVCache) -> mx.array:
        super().attend(h, cache)
        return h[:, None] + cache.keys[:, :, : cache.offset].mean(axis=2, keepdims=True)


class Counting(Toy):
    """Counts its passes."""

    passes = 0

    def __call__(self, inputs: mx.array, cache: list[Any]) -> mx.array:
        type(self).passes += 1
        return super().__call__(inputs, cache)


class OwnCache(KVCache):
    """A subclass may do anything."""


class Foreign(Toy):
    model_type = "foreign"

    def make_cache(self) -> list[Any]:
        return [OwnCache()]


def test_an_unknown_cache_class_is_named() -> None:
    with pytest.raises(UnsupportedModelError, match=r"'foreign'.*OwnCache"):
        SharedPrefixCache.for_model(Foreign())
    with pytest.raises(UnsupportedModelError, match=r"'deepseek_v41'.*LayerCache"):
        SharedPrefixCache.for_model(make("deepseek_v41"))


def test_a_model_of_ones_own_is_tried_once_and_served_if_right() -> None:
    model = Counting()
    cache = SharedPrefixCache.for_model(model)
    assert Counting.passes > 0
    Counting.passes = 0
    SharedPrefixCache.for_model(model)
    assert Counting.passes == 0
    cache.prefill([1, 2], 8)
    cache.fork(2)
    assert cache.forward(mx.array([[1], [2]])).shape == (2, 1, VOCAB)


def test_a_model_that_gives_other_logits_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="'wrong'"):
        SharedPrefixCache.for_model(Wrong())


def test_max_kv_size_is_refused_where_it_would_be_ignored() -> None:
    assert SharedPrefixCache.for_model(make("mixtral"), max_kv_size=16)
    for name in ("llama", "gemma3_text"):
        with pytest.raises(UnsupportedModelError, match=rf"max_kv_size.*'{name}'.*leave"):
            SharedPrefixCache.for_model(make(name), max_kv_size=16)


def test_kv_bits_is_refused_on_windows_and_on_attention_that_cannot_take_it() -> None:
    with pytest.raises(UnsupportedModelError, match=r"kv_bits.*'gemma3_text'.*window"):
        SharedPrefixCache.for_model(make("gemma3_text"), kv_bits=8)
    with pytest.raises(UnsupportedModelError, match=r"kv_bits.*'mixtral'.*window"):
        SharedPrefixCache.for_model(make("mixtral"), kv_bits=8, max_kv_size=16)
    with pytest.raises(UnsupportedModelError, match=r"kv_bits.*'deepseek_v3'"):
        SharedPrefixCache.for_model(make("deepseek_v3"), kv_bits=8, kv_group_size=32)
    with pytest.raises(UnsupportedModelError, match=r"kv_bits.*'llama'"):
        SharedPrefixCache.for_model(make("llama"), kv_bits=8, kv_group_size=64)  # heads of 16
