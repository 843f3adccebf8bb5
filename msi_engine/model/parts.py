"""Parts of a model whose weights come and go: layers, embeddings and heads.

A part's module stays where it is in the model and is given a class of its own, derived from the one
it had, so that the model's code, its caches and whoever looks at it notice nothing. Between two
calls its weights are empty arrays. Where they come from, a `Supply` knows.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import mlx.core as mx
import numpy as np
from mlx.nn.layers.base import Module
from mlx.nn.layers.embedding import Embedding
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.quantized import QuantizedEmbedding, QuantizedLinear
from mlx.utils import tree_map, tree_unflatten

from msi_engine.model.policy import is_quantized, plain_layer, to_float32, widened

EMBEDDINGS = (Embedding, QuantizedEmbedding)
HEADS = (Linear, QuantizedLinear)


class Supply(Protocol):
    """Where parts get their weights from."""

    is_real: bool  # False: a trial with weights that must not be looked at
    float32: bool  # weights are turned into float32 before they are used

    def take(self, part: Part) -> Iterable[tuple[str, mx.array]]:
        """All weights of a part, by their names in its module."""

    def take_rows(self, part: Part, rows: list[int]) -> Iterable[tuple[str, mx.array]]:
        """The weights of some rows of an embedding."""

    def prepare_next(self) -> None:
        """A part is in memory and about to compute: get the next one ready."""


class Part:
    """A module and its weights.

    Attributes:
        module: The module.
        tensors: Name of a weight in the module to the name of its tensor in the files.
        supply: Where the weights come from.
    """

    supply: Supply

    def __init__(self, module: Module, tensors: Mapping[str, str]) -> None:
        """Take the module's weights away and give it a class of its own."""
        self.module = module
        self.tensors = dict(tensors)
        self._kind: type = type(module)
        self._empty = mx.array([])
        self._packed = [(n, m) for n, m in module.named_modules() if is_quantized(type(m))]
        self.empty()
        module._part = self
        module.__class__ = self._derived(self._kind)

    def empty(self) -> None:
        """Drop the weights."""
        self.fill((name, self._empty) for name in self.tensors)

    def fill(self, weights: Iterable[tuple[str, mx.array]]) -> None:
        """Put weights in."""
        self.module.update(tree_unflatten(list(weights)))

    @staticmethod
    def _derived(kind: type) -> type:
        raise NotImplementedError


class Block(Part):
    """A layer: computed, and its weights dropped, before the model goes on."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Call the layer."""
        with self._filled():
            out = self._kind.__call__(self.module, *args, **kwargs)
            if self.supply.is_real:
                mx.eval(out, [_state(value) for value in (*args, *kwargs.values())])
        return out

    @contextlib.contextmanager
    def _filled(self) -> Iterator[None]:
        try:
            self.fill(self.supply.take(self))
            if self.supply.float32 and to_float32(self.module):
                for _, layer in self._packed:
                    layer.update(tree_map(lambda _: self._empty, layer.parameters()))
            self.supply.prepare_next()
            yield
        finally:
            if self._packed:
                self.module.update_modules(tree_unflatten(self._packed))
            self.empty()

    @staticmethod
    @functools.cache
    def _derived(kind: type) -> type:
        return _subclass(kind, {"__call__": lambda self, *a, **k: self._part.run(*a, **k)})


class Head(Part):
    """A linear layer outside of the layers. Lazy: its weights live until its output does.

    So that the logits of a prompt, which nobody looks at, are not computed.
    """

    def run(self, x: mx.array, method: str = "__call__") -> mx.array:
        """Call the layer."""
        try:
            layer, kind = self._ready(self.supply.take(self))
            self.supply.prepare_next()
            out: mx.array = getattr(kind, method)(layer, x)
            return out
        finally:
            self.empty()

    def _ready(self, weights: Iterable[tuple[str, mx.array]]) -> tuple[Any, type]:
        """A layer with these weights in their working form, and its true class."""
        self.fill(weights)
        if not self.supply.float32:
            return self.module, self._kind
        if is_quantized(self._kind):
            plain = plain_layer(self.module, self._kind)
            return plain, type(plain)
        self.module.update(tree_map(widened, self.module.parameters()))
        return self.module, self._kind

    @staticmethod
    @functools.cache
    def _derived(kind: type) -> type:
        return _subclass(kind, {"__call__": lambda self, x: self._part.run(x)})


class Table(Head):
    """An embedding: the rows that are asked for, or all of it where it is the head too."""

    def look_up(self, tokens: mx.array) -> mx.array:
        """The vectors of token ids of any shape."""
        ids, places = np.unique(np.array(tokens), return_inverse=True)
        try:
            layer, kind = self._ready(self.supply.take_rows(self, ids.tolist()))
            row = mx.array(places.reshape(tokens.shape).astype(np.uint32))
            out: mx.array = kind.__call__(layer, row)
            return out
        finally:
            self.empty()

    @staticmethod
    @functools.cache
    def _derived(kind: type) -> type:
        return _subclass(
            kind,
            {
                "__call__": lambda self, tokens: self._part.look_up(tokens),
                "as_linear": lambda self, x: self._part.run(x, "as_linear"),
            },
        )


def _subclass(kind: type, methods: dict[str, Callable[..., Any]]) -> type:
    # The module's name stays: attention is looked up in the module that defines a layer.
    return type(kind.__name__, (kind,), {**methods, "__module__": kind.__module__})


def _state(value: Any) -> Any:
    """What a layer's cache holds: left lazy, it would keep the weights alive."""
    if hasattr(value, "arrays"):  # tails over a shared prefix
        return value.arrays()
    is_cache = hasattr(value, "state") and hasattr(value, "empty")
    return value.state if is_cache and not value.empty() else None
