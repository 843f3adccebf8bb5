"""Where each tensor of a model folder lies in its files, and what a forward pass reads of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from msi_engine.model.files import read_header

# What input embeddings and heads of their own are called.
_EMBEDDINGS = ("embed_tokens", "wte", "tok_embeddings", "word_embeddings", "embeddings")
_HEADS = ("lm_head", "output", "embed_out")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies.

    Attributes:
        path: The safetensors file.
        offset: First byte in it.
        nbytes: Bytes that it takes there.
        dtype: As safetensors spells it, such as ``U32`` or ``BF16``.
        shape: Its dimensions.
    """

    path: Path
    offset: int
    nbytes: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many entries it has."""
        return math.prod(self.shape)


def find_tensors(folder: Path) -> dict[str, Place]:
    """Every tensor of a model folder, by name.

    Raises:
        ModelFileError: If a file has no readable header.
    """
    found = {}
    for path in sorted(folder.glob("model*.safetensors")):
        header, start = read_header(path)
        for name, entry in header.items():
            first, last = entry["data_offsets"]
            shape = tuple(entry["shape"])
            found[name] = Place(path, start + first, last - first, entry["dtype"], shape)
    return found


def logical_nbytes(folder: Path) -> int:
    """Bytes of weights that one forward pass reads, at the size they are stored in.

    All of them, save an input embedding that is not the head too: of that a pass reads a few rows.
    Every expert is counted, though a short pass may choose some of them only.

    Args:
        folder: A model folder.

    Raises:
        ModelFileError: If a file has no readable header.
    """
    tensors = find_tensors(folder)
    has_head = any(_module(name) in _HEADS for name in tensors)
    return sum(
        place.nbytes
        for name, place in tensors.items()
        if not (has_head and _module(name) in _EMBEDDINGS)
    )


def _module(name: str) -> str:
    """The module that holds a tensor, without its place in the model."""
    return name.rpartition(".")[0].rpartition(".")[2]
