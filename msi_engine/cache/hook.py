"""Routes a model's attention over shared prefixes to `split_attention`.

Model modules of mlx-lm call a global, ``scaled_dot_product_attention``. The hook replaces that
global by a function which looks whether the very key and value objects it is given came out of one
of our caches during the forward pass that runs on this thread. If so it computes the same result
from the pieces; if not (another model, mlx-lm's own caches, arrays that the model has altered) it
calls the original. Installing twice does nothing more; `uninstall` restores every module.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from msi_engine.cache.attention import Packing, Stored, split_attention
from msi_engine.cache.upstream import scaled_dot_product_attention as original

NAME = "scaled_dot_product_attention"

_patched: set[ModuleType] = set()
_lock = threading.Lock()
_running = threading.local()  # .fetches: what the forward pass of this thread has been given


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one layer's cache handed out, and the pieces it is made of.

    Attributes:
        keys: The keys as handed out: a lazy concatenation, never computed when the hook is used.
        values: The values as handed out.
        shared: Keys and values of the visible prefix, batch 1, in order.
        tail: Keys and values of the visible tails, one row a path.
        packing: Set when quantised.
    """

    keys: Stored
    values: Stored
    shared: tuple[tuple[Stored, Stored], ...]
    tail: tuple[Stored, Stored]
    packing: Packing | None = None

    def pieces(
        self, values: Stored
    ) -> tuple[tuple[tuple[Stored, Stored], ...], tuple[Stored, Stored]] | None:
        """Shared pieces and tail for these ``values``; None if they are not ours.

        Latent attention passes the keys as values.
        """
        if values is self.values:
            return self.shared, self.tail
        if values is self.keys:
            return tuple((k, k) for k, _ in self.shared), (self.tail[0], self.tail[0])
        return None


@contextmanager
def watching(fetches: dict[int, Fetched]) -> Iterator[None]:
    """Let the hook see ``fetches`` (by ``id`` of the keys) on this thread; empty them at the end.

    They must not outlive the pass: whoever holds a view of a buffer makes the next append copy it.
    """
    outer = getattr(_running, "fetches", None)
    _running.fetches = fetches
    try:
        yield
    finally:
        _running.fetches = outer
        fetches.clear()


def attention(
    queries: mx.array,
    keys: Stored,
    values: Stored,
    cache: Any,
    scale: float,
    mask: Any,
    sinks: mx.array | None = None,
) -> mx.array:
    """What stands in place of mlx-lm's function of the same signature."""
    fetches = getattr(_running, "fetches", None)
    if fetches:
        fetched = fetches.get(id(keys))
        if fetched is not None and fetched.keys is keys:
            pieces = fetched.pieces(values)
            if pieces is not None:
                shared, tail = pieces
                return split_attention(queries, shared, tail, scale, mask, sinks, fetched.packing)
    out: mx.array = original(
        queries, keys, values, cache=cache, scale=scale, mask=mask, sinks=sinks
    )
    return out


def defining_modules(model: Module) -> frozenset[ModuleType]:
    """The modules that define a part of ``model``."""
    return frozenset(sys.modules[type(part).__module__] for part in model.modules())


def install(modules: Iterable[ModuleType]) -> None:
    """Put the hook into the ``modules`` that reach attention through the global. Idempotent."""
    with _lock:
        for module in modules:
            if vars(module).get(NAME) is original:
                setattr(module, NAME, attention)
                _patched.add(module)


def uninstall() -> None:
    """Give every module its own attention back. Models go on working, on gathered arrays."""
    with _lock:
        for module in _patched:
            if vars(module).get(NAME) is attention:
                setattr(module, NAME, original)
        _patched.clear()
