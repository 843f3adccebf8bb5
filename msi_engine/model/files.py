"""What a model folder must hold, checked without loading it.

Knows the files of an MLX or Hugging Face model folder and the outline of safetensors.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msi_engine.errors import ModelFileError, ModelNotFoundError, UnsupportedModelError

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tiktoken.model", "vocab.json")
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
RESIDUAL_KEY = "msi_residual"  # in the config of what `residual.split` writes
_MAX_HEADER = 100_000_000  # bytes; safetensors' own bound


def check_folder(folder: Path) -> None:
    """Make sure that a folder holds a whole model that may be loaded.

    Raises:
        ModelNotFoundError: If there is no such folder.
        ModelFileError: If a file is missing, malformed or truncated.
        UnsupportedModelError: If its weights are pickled.
    """
    if not folder.is_dir():
        raise ModelNotFoundError(f"no model folder {folder}")
    read_config(folder)
    weights = sorted(folder.glob("model*.safetensors"))
    if not weights:
        _refuse_without_weights(folder)
    for path in weights:
        check_safetensors(path)
    _check_index(folder)
    if not any((folder / name).is_file() for name in TOKENIZER_FILES) and not any(
        folder.glob("*.tiktoken")
    ):
        raise ModelFileError(f"{folder} has no tokenizer (tokenizer.json); fetch the model again")


def read_config(folder: Path) -> dict[str, Any]:
    """The content of ``config.json``.

    Raises:
        ModelFileError: If it is missing or no JSON object with a ``model_type``.
    """
    config = read_json(folder / "config.json")
    if "model_type" not in config:
        raise ModelFileError(f"{folder / 'config.json'} names no model_type")
    return config


def is_residual(folder: Path) -> bool:
    """True for a folder that holds what a draft has lost, and no model that runs by itself.

    Raises:
        ModelFileError: If its config cannot be read.
    """
    return RESIDUAL_KEY in read_config(folder)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        ModelFileError: If it is missing or no JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelFileError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path} cannot be read: {error}; fetch the model again") from None
    if not isinstance(content, dict):
        raise ModelFileError(f"{path} holds no JSON object")
    return content


def check_safetensors(path: Path) -> None:
    """Make sure that a safetensors file is as long as its header says.

    Raises:
        ModelFileError: If it is shorter or longer, or has no readable header.
    """
    actual = path.stat().st_size
    header, start = read_header(path)
    expected = start + max((entry["data_offsets"][1] for entry in header.values()), default=0)
    if actual != expected:
        raise ModelFileError(
            f"{path} has {actual} bytes and should have {expected}; fetch the model again"
        )


def read_header(path: Path) -> tuple[dict[str, dict[str, Any]], int]:
    """The header of a safetensors file: each tensor's entry, and the byte that its data begin at.

    An entry holds ``dtype``, ``shape`` and ``data_offsets``, two integers counted from there.

    Raises:
        ModelFileError: If it has no readable header.
    """
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > _MAX_HEADER:
                raise ValueError(f"header of {length} bytes")
            header = json.loads(file.read(length))
        tensors = {name: entry for name, entry in header.items() if name[:2] != "__"}
        for entry in tensors.values():
            entry["dtype"], entry["shape"]
            first, last = entry["data_offsets"]
            if not 0 <= int(first) <= int(last):
                raise ValueError(f"data from {first} to {last}")
    except (struct.error, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ModelFileError(
            f"{path} is truncated or no safetensors file ({error}); fetch the model again"
        ) from None
    return tensors, 8 + length


def file_sizes(folder: Path) -> dict[str, int]:
    """Size in bytes of each file below a folder, by relative path."""
    return {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def check_sizes(folder: Path, expected: Mapping[str, int]) -> None:
    """Make sure that files have the sizes that were written down when they were complete.

    Raises:
        ModelFileError: Naming the first that is missing or of another size.
    """
    for name, size in expected.items():
        path = folder / name
        if not path.is_file():
            raise ModelFileError(f"{path} is missing; fetch the model again")
        if path.stat().st_size != size:
            raise ModelFileError(
                f"{path} has {path.stat().st_size} bytes and should have {size}; "
                "fetch the model again"
            )


def _refuse_without_weights(folder: Path) -> None:
    pickled = next((p for p in sorted(folder.iterdir()) if p.suffix in PICKLES), None)
    if pickled is not None:
        raise UnsupportedModelError(
            f"{pickled} is a pickle, which can run code when loaded; "
            "only safetensors and GGUF are read"
        )
    raise ModelFileError(f"{folder} has no weights (model*.safetensors)")


def _check_index(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        parts = read_json(index).get("weight_map", {})
        missing = next((p for p in sorted(set(parts.values())) if not (folder / p).exists()), None)
        if missing is not None:
            raise ModelFileError(f"{folder / missing} is missing; fetch the model again")
