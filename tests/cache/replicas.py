"""The truth: one full copy of mlx-lm's own caches for every path, each stepped alone."""

from __future__ import annotations

import copy
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.generate import maybe_quantize_kv_cache
from mlx_lm.models.cache import ArraysCache, make_prompt_cache, trim_prompt_cache


class Replicas:
    """Does what `SharedPrefixCache` says it does, with K copies and batch 1 throughout."""

    def __init__(
        self,
        model: nn.Module,
        *,
        max_kv_size: int | None = None,
        kv_bits: int | None = None,
        kv_group_size: int = 64,
        quantized_kv_start: int = 5000,
    ) -> None:
        self.model = model
        self.base: list[Any] = make_prompt_cache(model, max_kv_size)
        self.quantize = {
            "quantized_kv_start": quantized_kv_start,
            "kv_group_size": kv_group_size,
            "kv_bits": kv_bits,
        }
        self.crossed = False  # a cache has been quantised since the fork
        self.paths: dict[int, list[Any]] = {}
        self.fed: dict[int, list[list[int]]] = {}  # since the fork, pass by pass

    def feed(self, cache: list[Any], tokens: list[int]) -> mx.array:
        logits = self.model(mx.array([tokens]), cache=cache)
        maybe_quantize_kv_cache(cache, **self.quantize)
        mx.eval(logits, [c.state for c in cache])
        return logits

    def forward(self, tokens: list[int]) -> mx.array:
        return self.feed(self.base, tokens)

    def fork(self, num_paths: int) -> None:
        self.paths = {i: copy.deepcopy(self.base) for i in range(num_paths)}
        self.fed = {i: [] for i in range(num_paths)}
        self.crossed = False

    def forward_path(self, path: int, tokens: list[int]) -> mx.array:
        before = _plain(self.paths[path])
        logits = self.feed(self.paths[path], tokens)
        self.fed[path].append(tokens)
        self.crossed |= _plain(self.paths[path]) != before
        return logits

    def level(self) -> None:
        """Quantise what waits at a boundary along with the rest."""
        if self.crossed:
            for cache in self.paths.values():
                maybe_quantize_kv_cache(cache, **{**self.quantize, "quantized_kv_start": 0})

    def branch(self, path: int) -> None:
        self.paths[path] = copy.deepcopy(self.base)
        self.fed[path] = []
        self.level()

    def truncate(self, path: int, length: int) -> None:
        """Start from the fork once more and feed the tokens that remain.

        In the same passes: with a sliding window that keeps its first tokens, a token that comes
        in a chunk sees less of them than one that comes alone, in mlx-lm.
        """
        fed = self.fed[path]
        if length == sum(map(len, fed)):
            return
        self.paths[path], self.fed[path] = copy.deepcopy(self.base), []
        if any(isinstance(c, ArraysCache) for c in self.base):
            self.level()  # the real one has to feed these tokens again, too
        for tokens in fed:
            kept = tokens[: length - sum(map(len, self.fed[path]))]
            if kept:
                self.forward_path(path, kept)
        self.level()

    def collapse(self, path: int, length: int) -> None:
        self.truncate(path, length)
        self.base = self.paths[path]
        self.paths, self.fed = {}, {}

    def trim(self, num_tokens: int) -> None:
        trim_prompt_cache(self.base, num_tokens)


def _plain(cache: list[Any]) -> list[str]:
    return [type(c).__name__ for c in cache]


def relative_error(got: mx.array, want: mx.array) -> float:
    """Greatest difference over the greatest magnitude."""
    got, want = got.astype(mx.float32), want.astype(mx.float32)
    return (mx.max(mx.abs(got - want)) / mx.max(mx.abs(want))).item()
