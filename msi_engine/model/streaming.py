"""A model that holds one part of its weights at a time, read from its files in every pass.

The model stays mlx-lm's own, code and caches; only its layers, embeddings and head are made parts.
While one computes, a helper thread reads the weights of the next. What a part computes is what it
computes with its weights in memory, to the bit.

In memory are one part as it is computed with, and the next as it is stored; while a part is made
ready, it and its stored form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models.cache import make_prompt_cache

from msi_engine.errors import UnsupportedModelError
from msi_engine.model.parts import EMBEDDINGS, HEADS, Block, Head, Part, Table
from msi_engine.model.policy import (
    is_quantized,
    plain_layer,
    wants_float32,
    widened,
    working_nbytes,
)
from msi_engine.model.reader import Raw, TensorReader
from msi_engine.model.tensors import Place, find_tensors

_LEFT = 0.01  # share of a part that a rearranged weight may have


@dataclass(frozen=True, slots=True)
class Streamed:
    """What streaming a model takes.

    Attributes:
        kept: Bytes of weights that stay in memory: those in no part.
        largest: Bytes of the largest part, as it is computed with.
    """

    kept: int
    largest: int


def stream(model: Module, folder: Path) -> Streamed:
    """Make a model stream its weights.

    Args:
        model: As `open_weights` opens it: nothing of it may have been read yet. Changed in place.
        folder: Where it was opened from.

    Raises:
        UnsupportedModelError: If this kind of model cannot be streamed.
        ModelFileError: If a file cannot be read.
    """
    stored = _Stored(model, folder)
    modules = _find_modules(model, stored)
    largest = max(working_nbytes(module) for module, _, _ in modules)
    in_parts = {f"{name}.{inner}" for _, name, kind in modules for inner in stored.weights(name)}
    parts = [kind(module, stored.weights(name)) for module, name, kind in modules]
    order = _trial(model, parts, stored)
    files = _Files(stored, parts, order)
    for part in parts:
        part.supply = files
    return Streamed(_keep(model, in_parts), largest)


class _Stored:
    """Which weights of a model are tensors of its files, just as they are."""

    def __init__(self, model: Module, folder: Path) -> None:
        self.folder = folder
        self.places: dict[str, Place] = find_tensors(folder)
        self.lazy: dict[str, mx.array] = {}
        for path in {place.path for place in self.places.values()}:
            self.lazy.update(mx.load(str(path)))  # type: ignore[arg-type]
        origins = {id(array): name for name, array in self.lazy.items()}
        used = _rearranged(model, self.lazy)
        # Arrays that the model's loader has computed with are no tensors of the file any more.
        self._origins = {name: origins[id(a)] for name, a in used.items() if id(a) in origins}
        self._weights = dict(tree_flatten(model.parameters()))
        named = dict(model.named_modules())
        self._packed = {name for name, module in named.items() if is_quantized(type(module))}

    def weights(self, module: str) -> dict[str, str]:
        """Each weight below a module, by its name there, to its tensor.

        Small ones that the model's loader has rearranged are left out, and stay in memory.

        Raises:
            UnsupportedModelError: If a large one, or one of a quantised layer, is rearranged.
        """
        found, left = {}, {}
        for name, array in self._weights.items():
            if name.startswith(f"{module}."):
                origin = self._origins.get(name)
                if origin is not None and self._is_same(self.lazy[origin], array, origin):
                    found[name.removeprefix(f"{module}.")] = origin
                else:
                    left[name] = array.nbytes
        most = sum(self.places[name].nbytes for name in found.values()) * _LEFT
        for name, nbytes in left.items():
            if nbytes > most or name.rpartition(".")[0] in self._packed:
                raise UnsupportedModelError(
                    f"{self.folder} cannot be streamed: {name} is not stored as the model uses it; "
                    "convert the model to MLX format, or set target_residency resident"
                )
        return found

    def _is_same(self, stored: mx.array, used: mx.array, name: str) -> bool:
        same = stored.shape == used.shape and stored.dtype == used.dtype
        return same and self.places[name].nbytes == used.nbytes


def _rearranged(model: Module, weights: Mapping[str, mx.array]) -> Mapping[str, mx.array]:
    """The weights as the model's loader hands them on."""
    if not hasattr(model, "sanitize"):
        return weights
    try:
        found: Mapping[str, mx.array] = model.sanitize(dict(weights))
    except KeyError:  # it takes a head away, and this model has lost it when it was opened
        if not hasattr(model, "args"):
            raise
        fresh: Any = type(model)
        found = fresh(model.args).sanitize(dict(weights))
    return found


def _find_modules(model: Module, stored: _Stored) -> list[tuple[Module, str, type[Part]]]:
    """The modules to stream, each with its name and the kind of part that it becomes."""
    layers = [m for m in getattr(model, "layers", ()) if isinstance(m, Module)]
    ids = {id(layer) for layer in layers}
    found: list[tuple[Module, str, type[Part]]] = []
    seen: set[int] = set()
    inside: tuple[str, ...] = ()
    named = sorted(model.named_modules(), key=lambda pair: pair[0].count("."))
    for name, module in named:
        if id(module) in seen or name.startswith(inside):
            continue
        seen.add(id(module))
        if id(module) in ids:
            inside = (*inside, f"{name}.")
            if stored.weights(name):
                found.append((module, name, Block))
        elif type(module) in EMBEDDINGS:
            found.append((module, name, Table))
        elif type(module) in HEADS:
            found.append((module, name, Head))
    if not any(kind is Block for _, _, kind in found):
        raise UnsupportedModelError(
            f"{stored.folder} cannot be streamed: its model has no list of layers; "
            "set target_residency resident"
        )
    return found


class _Outline:
    """Hands out weights of which only shape and type are known, and notes what is asked for."""

    is_real = False
    float32 = False

    def __init__(self, lazy: Mapping[str, mx.array]) -> None:
        self._lazy = lazy
        self.order: list[Part] = []

    def take(self, part: Part) -> Iterator[tuple[str, mx.array]]:
        self.order.append(part)
        yield from self.take_rows(part, [])

    def take_rows(self, part: Part, rows: list[int]) -> Iterator[tuple[str, mx.array]]:
        for inner, name in part.tensors.items():
            yield inner, self._lazy[name]

    def prepare_next(self) -> None:
        pass


class _Files:
    """Reads weights from the files, those of the next part ahead."""

    is_real = True

    def __init__(self, stored: _Stored, parts: list[Part], order: list[Part]) -> None:
        tensors = {name for part in parts for name in part.tensors.values()}
        self._places = {name: stored.places[name] for name in tensors}
        self._reader = TensorReader(self._places)
        self._dtypes = {name: stored.lazy[name].dtype for name in tensors}
        self._order = order
        self._at = -1  # place in the order of the part that was asked for last
        self._last: list[tuple[int, ...]] = []
        self.float32 = wants_float32()

    def take(self, part: Part) -> Iterator[tuple[str, mx.array]]:
        if (shapes := self._shapes(part)) != self._last:
            # The buffers that the last part has left behind in MLX's cache do not fit this one.
            mx.clear_cache()
            self._last = shapes
        later = part in self._order[self._at + 1 :]
        self._at = self._order.index(part, self._at + 1 if later else 0)
        raw = self._reader.read(list(part.tensors.values()))
        for inner, name in part.tensors.items():
            yield inner, self._array(raw.pop(name), name)

    def take_rows(self, part: Part, rows: list[int]) -> Iterator[tuple[str, mx.array]]:
        for inner, name in part.tensors.items():
            yield inner, self._array(self._reader.read_rows(name, rows), name)

    def prepare_next(self) -> None:
        # The buffers of this part's stored form, before the next one's are filled.
        mx.clear_cache()
        following = self._order[self._at + 1 : self._at + 2]
        for part in following:
            self._reader.read_ahead(list(part.tensors.values()))

    def _shapes(self, part: Part) -> list[tuple[int, ...]]:
        return [self._places[name].shape for name in part.tensors.values()]

    def _array(self, raw: Raw, name: str) -> mx.array:
        array, dtype = mx.array(raw), self._dtypes[name]
        return array if array.dtype == dtype else array.view(dtype)


def _trial(model: Any, parts: list[Part], stored: _Stored) -> list[Part]:
    """Build a pass without computing it; the parts in the order in which it asks for all of them.

    Every other weight of a part is empty, so that a model which uses a layer's weights past the
    layer fails here.

    Raises:
        UnsupportedModelError: If it fails.
    """
    outline = _Outline(stored.lazy)
    for part in parts:
        part.supply = outline
    try:
        model(mx.array([[0, 0]]), cache=make_prompt_cache(model))
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UnsupportedModelError(
            f"{stored.folder} cannot be streamed: its model uses its weights past its layers "
            f"({first}); set target_residency resident"
        ) from error
    if not all(part in outline.order for part in parts if isinstance(part, Block)):
        raise UnsupportedModelError(
            f"{stored.folder} cannot be streamed: its model does not run all of its layers; "
            "set target_residency resident"
        )
    return outline.order


def _keep(model: Module, in_parts: set[str]) -> int:
    """Read what is in no part, once and for all; its bytes."""
    float32 = wants_float32()
    for name, layer in model.named_modules():
        loose = is_quantized(type(layer)) and f"{name}.weight" not in in_parts
        if float32 and loose:
            model.update_modules(tree_unflatten([(name, plain_layer(layer))]))
    weights = dict(tree_flatten(model.parameters()))
    kept = {name: array for name, array in weights.items() if name not in in_parts}
    if float32:
        kept = {name: widened(array) for name, array in kept.items()}
    mx.eval(kept)
    model.update(tree_unflatten(list(kept.items())))
    return sum(int(array.nbytes) for array in kept.values())
