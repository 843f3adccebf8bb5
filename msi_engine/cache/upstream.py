"""The one place that names what this package needs from mlx-lm.

Knows which classes and attributes of mlx-lm's cache and attention modules we build on, and says so
in one line when an mlx-lm without them is installed. Nothing here computes anything.

Beyond the public names we rely on: a layer cache has ``keys``, ``values``, ``offset`` and the tuple
``state``; ``RotatingKVCache.state`` ends in ``(offset, keep, max_size, write index)``;
``ChunkedKVCache`` has ``chunk_size`` and ``start_position``; every model module reaches attention
through a global called ``scaled_dot_product_attention``.
"""

from __future__ import annotations

from msi_engine.errors import ModelError

try:
    from mlx_lm.models.base import create_causal_mask, scaled_dot_product_attention
    from mlx_lm.models.cache import (
        ArraysCache,
        CacheList,
        ChunkedKVCache,
        KVCache,
        QuantizedKVCache,
        RotatingKVCache,
        make_prompt_cache,
        trim_prompt_cache,
    )
except ImportError as error:  # pragma: no cover - only with another mlx-lm
    raise ModelError(
        f"the installed mlx-lm lacks a name that the shared-prefix cache needs ({error}); "
        "install a version within the range that this package asks for"
    ) from error

__all__ = [
    "ArraysCache",
    "CacheList",
    "ChunkedKVCache",
    "KVCache",
    "QuantizedKVCache",
    "RotatingKVCache",
    "create_causal_mask",
    "make_prompt_cache",
    "scaled_dot_product_attention",
    "trim_prompt_cache",
]
