"""Embedders in ONNX format, run by onnxruntime alone: no torch, which takes seconds to import.

Reads the folders of sentence-transformers models that hold ``onnx/model.onnx``, as most of those on
the hub do. sentence-transformers' own ONNX backend needs optimum-onnx, which asks for an older
transformers than mlx-lm does: the two cannot be installed together.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from msi_engine.errors import ConfigError
from msi_engine.vectors import unit

PREFIX = "onnx:"
INSTALL_ONNX = 'pip install "llm-msi[onnx]"'
_BATCH = 64
_PLACES = ("onnx/model.onnx", "model.onnx")
_POOLINGS = ("mean", "cls")
_MODULES = ("Transformer", "Pooling", "Normalize")
_FILES = ["*.json", "*/config.json", "onnx/model.onnx*", "model.onnx*"]


class OnnxEmbedder:
    """A sentence-transformers model in ONNX format.

    A text that is longer than the model's window counts with its beginning.

    Args:
        name: Name of the model on the hub, or path of its folder.

    Attributes:
        name: The name, after ``onnx:``.
        works_apart: As of `msi_scorers.embedders.SentenceTransformerEmbedder`.

    Raises:
        ConfigError: If it cannot be loaded, or does what only sentence-transformers knows.
    """

    works_apart = True

    def __init__(self, name: str) -> None:
        if importlib.util.find_spec("onnxruntime") is None:
            raise ConfigError(f"embedder {PREFIX}{name} needs onnxruntime: {INSTALL_ONNX}")
        self.name = f"{PREFIX}{name}"
        folder = _folder(name)
        self._pooling, self._is_unit = _read_modules(self.name, folder)
        self._tokenizer = _read_tokenizer(self.name, folder)
        self._session = _read_session(self.name, folder)
        self._inputs = [given.name for given in self._session.get_inputs()]

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """See `msi_engine.Embedder`."""
        batches = [texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
        return np.concatenate([self._embed(list(batch)) for batch in batches])

    def _embed(self, texts: list[str]) -> np.ndarray:
        encoded = self._tokenizer.encode_batch(texts)
        given = {
            "input_ids": np.array([e.ids for e in encoded], dtype=np.int64),
            "attention_mask": np.array([e.attention_mask for e in encoded], dtype=np.int64),
            "token_type_ids": np.array([e.type_ids for e in encoded], dtype=np.int64),
        }
        (states, *_) = self._session.run(None, {name: given[name] for name in self._inputs})
        if self._pooling == "cls":
            pooled = states[:, 0]
        else:
            mask = given["attention_mask"][:, :, None]  # (texts, tokens, 1)
            pooled = (states * mask).sum(axis=1) / np.maximum(mask.sum(axis=1), 1)
        vectors = np.asarray(pooled, dtype=np.float32)
        return unit(vectors) if self._is_unit else vectors


def _folder(name: str) -> Path:
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=_FILES))
    except Exception as error:  # of the hub, of the network, of the name: anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(
            f"embedder {PREFIX}{name} cannot be fetched ({reason:.160}); give the folder of a "
            "sentence-transformers model, or its name on the hub"
        ) from error


def _read_modules(name: str, folder: Path) -> tuple[str, bool]:
    """How token states become a vector, and whether it is brought to length 1."""
    modules = _json(folder / "modules.json", [])
    kinds = {module["type"].rsplit(".", 1)[-1]: folder / module["path"] for module in modules}
    unknown = [kind for kind in kinds if kind not in _MODULES]
    if unknown or "Pooling" not in kinds:
        raise ConfigError(
            f"embedder {name} has the modules {', '.join(kinds) or 'none'}; here only "
            f"{', '.join(_MODULES)} are known: name it without {PREFIX}"
        )
    pooling = _json(kinds["Pooling"] / "config.json", {})
    modes = [key for key, on in pooling.items() if key.startswith("pooling_mode") and on]
    mode = modes[0].removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
    if isinstance(pooling.get("pooling_mode"), str):  # as newer versions write it
        mode = pooling["pooling_mode"]
    if mode not in _POOLINGS or len(modes) > 1:
        raise ConfigError(
            f"embedder {name} pools by {mode}; here only {' and '.join(_POOLINGS)} are known: "
            f"name it without {PREFIX}"
        )
    return mode, "Normalize" in kinds


def _read_tokenizer(name: str, folder: Path) -> Any:
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ConfigError(f"embedder {name} has no tokenizer.json in {str(folder)!r}")
    tokenizer = Tokenizer.from_file(str(path))
    window = _json(folder / "sentence_bert_config.json", {}).get("max_seq_length")
    longest = _json(folder / "config.json", {}).get("max_position_embeddings")
    limits = [limit for limit in (window, longest) if limit]
    if limits:
        tokenizer.enable_truncation(min(limits))
    else:
        tokenizer.no_truncation()
    pad = (tokenizer.padding or {}).get("pad_token", "[PAD]")
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id(pad) or 0, pad_token=pad)
    return tokenizer


def _read_session(name: str, folder: Path) -> Any:
    import onnxruntime

    found = [folder / place for place in _PLACES if (folder / place).is_file()]
    if not found:
        raise ConfigError(
            f"embedder {name} has no {_PLACES[0]} in {str(folder)!r}; name it without {PREFIX}"
        )
    options = onnxruntime.SessionOptions()
    # Beside a language model that needs the cores, too: half of them, and none that spins.
    options.intra_op_num_threads = max(1, (os.cpu_count() or 1) // 2)
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(
            str(found[0]), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # of the runtime: its own kinds
        reason = " ".join(str(error).split())
        raise ConfigError(f"embedder {name} cannot be read ({reason:.160})") from error


def _json(path: Path, default: Any) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else default
