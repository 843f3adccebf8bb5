"""What can be served: model and cache classes and combinations; all else is refused by name.

Does not run the decoder's kind of programs; the sweep over mlx-lm's model files does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from msi_engine.cache import proved
from msi_engine.cache.kinds import SERVED
from msi_engine.cache.upstream import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
    make_prompt_cache,
)
from msi_engine.errors import UnsupportedModelError


@dataclass(frozen=True, slots=True)
class Quantization:
    """When and how caches are quantised, with mlx-lm's meaning.

    Attributes:
        bits: Bits of an entry.
        group_size: Entries that share a scale.
        start: Tokens from which on.
    """

    bits: int
    group_size: int
    start: int

    def applied(self, cache: Any) -> Any:
        """``cache``, quantised if it is a plain one that is long enough."""
        if type(cache) is KVCache and cache.offset >= self.start:
            return self.quantized(cache)
        return cache

    def quantized(self, cache: KVCache) -> QuantizedKVCache:
        """A plain cache, quantised."""
        return cache.to_quantized(group_size=self.group_size, bits=self.bits)


def members(caches: Iterable[Any]) -> Iterator[Any]:
    """Every cache that is not a list of caches."""
    for cache in caches:
        if type(cache) is CacheList:
            yield from members(cache.caches)
        else:
            yield cache


def is_recurrent(caches: list[Any]) -> bool:
    """Whether some state cannot be taken back token by token."""
    return any(isinstance(c, ArraysCache) for c in members(caches))


def can_trim(cache: Any, num_tokens: int) -> bool:
    """Whether a layer's cache is exact after giving back its last tokens."""
    if isinstance(cache, CacheList):
        return all(can_trim(c, num_tokens) for c in cache.caches)
    if isinstance(cache, ChunkedKVCache):
        # Tokens of the chunk that becomes the current one must not have been trimmed in front.
        left = cache.offset - num_tokens
        return bool(cache.start_position <= left // cache.chunk_size * cache.chunk_size)
    return bool(cache.is_trimmable())


def type_of(model: Module) -> str:
    """The model's type as its configuration spells it, else the name of its module."""
    declared = getattr(model, "model_type", None)
    return declared if isinstance(declared, str) else type(model).__module__.rpartition(".")[2]


def check(model: Module, caches: list[Any], quantization: Quantization | None) -> None:
    """Refuse what is not known to be right.

    Raises:
        UnsupportedModelError: Naming the model type and the cache class or option.
    """
    name = type_of(model)
    for cache in members(caches):
        if type(cache) not in SERVED:
            raise UnsupportedModelError(
                f"model type {name!r} keeps its state in {type(cache).__name__}, which the "
                "shared-prefix cache does not know; use another model"
            )
    if quantization is None:
        return
    if any(type(c) is RotatingKVCache for c in members(caches)):
        raise UnsupportedModelError(
            f"kv_bits cannot be used with model type {name!r}: a sliding-window cache cannot be "
            "quantised; leave kv_bits out"
        )
    try:
        _try_quantized(model, quantization)
    except Exception as error:
        raise UnsupportedModelError(
            f"kv_bits cannot be used with model type {name!r}: its attention does not take a "
            f"quantised cache ({_first_line(error)}); leave kv_bits out"
        ) from error


def check_window(model: Module) -> None:
    """Make sure that ``max_kv_size`` is not in vain.

    Raises:
        UnsupportedModelError: If the model makes caches of its own.
    """
    if hasattr(model, "make_cache"):
        raise UnsupportedModelError(
            f"max_kv_size cannot be used with model type {type_of(model)!r}: it decides itself "
            "which layers have a window; leave max_kv_size out"
        )


def check_proof(model: Module, opened: Callable[[], Any]) -> None:
    """Refuse a model that is neither proved nor passes the trial; ``opened`` makes its cache.

    Raises:
        UnsupportedModelError: Naming the model type.
    """
    if proved.is_proved(model):
        return
    try:
        deviation = proved.deviation(model, opened)
    except Exception as error:
        raise UnsupportedModelError(
            f"model type {type_of(model)!r} is not known to the shared-prefix cache and failed the "
            f"trial ({_first_line(error)}); use another model"
        ) from error
    if not deviation <= 1:
        raise UnsupportedModelError(
            f"model type {type_of(model)!r} is not known to the shared-prefix cache and gave other "
            f"logits in the trial, {deviation:.3g} times what rounding explains; use another model"
        )


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _try_quantized(model: Module, quantization: Quantization) -> None:
    """Build one step of the model over quantised caches, lazily: shapes and types are checked."""
    at_once = Quantization(quantization.bits, quantization.group_size, 0)
    model(mx.array([[0]]), cache=[at_once.applied(c) for c in make_prompt_cache(model)])
