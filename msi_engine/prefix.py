"""What the last generation left in the cache, for the next one to start from.

A chat sends its whole history every turn. Kept here, the cache of the turn before serves all of it
that is unchanged, and only the rest is prefilled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msi_engine.cache import SharedPrefixCache
from msi_engine.config import DecodeConfig


@dataclass(slots=True)
class _Kept:
    key: tuple[Any, ...]
    cache: SharedPrefixCache
    tokens: tuple[int, ...]  # those in the prefix, in order


class PrefixKeeper:
    """Holds at most one cache of a model between generations.

    Args:
        model: The mlx-lm model that the caches belong to.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._kept: _Kept | None = None

    def take(self, tokens: Sequence[int], config: DecodeConfig) -> tuple[SharedPrefixCache, int]:
        """A cache in linear mode whose prefix begins the prompt, and the prefix's length.

        At least the prompt's last token is left to be fed: its logits are wanted.
        """
        kept, self._kept = self._kept, None
        if kept is not None and kept.key == _key(config):
            common = min(_common(kept.tokens, tokens), len(tokens) - 1)
            surplus = len(kept.tokens) - common
            if common and kept.cache.can_trim(surplus):
                kept.cache.trim(surplus)
                return kept.cache, common
        return self._fresh(config), 0

    def keep(self, cache: SharedPrefixCache, tokens: Sequence[int], config: DecodeConfig) -> None:
        """Keep a cache, in linear mode, whose prefix holds the first of ``tokens``."""
        self._kept = _Kept(_key(config), cache, tuple(tokens[: cache.prefix_length]))

    def clear(self) -> None:
        """Let go of the memory."""
        self._kept = None

    def _fresh(self, config: DecodeConfig) -> SharedPrefixCache:
        return SharedPrefixCache.for_model(
            self._model,
            segment_length=config.segment_length,
            max_kv_size=config.max_kv_size,
            kv_bits=config.kv_bits,
            kv_group_size=config.kv_group_size,
            quantized_kv_start=config.quantized_kv_start,
        )


def _key(config: DecodeConfig) -> tuple[Any, ...]:
    return (
        config.segment_length,
        config.max_kv_size,
        config.kv_bits,
        config.kv_group_size,
        config.quantized_kv_start,
    )


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    """Number of leading tokens that are the same."""
    for count, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return count
    return min(len(left), len(right))
