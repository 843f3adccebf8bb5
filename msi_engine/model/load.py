"""Load a model into memory, ready to decode on this machine."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msi_engine.errors import ModelError, ModelFileError, UnsupportedModelError
from msi_engine.model.backend import prepare_backend
from msi_engine.model.files import check_folder, is_residual, read_config
from msi_engine.model.policy import to_float32, wants_float32
from msi_engine.model.progress import OnProgress, Progress, ignore_progress
from msi_engine.model.resolve import ResolvedModel, resolve
from msi_engine.model.store import Part

_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory.

    Attributes:
        model: The ``mlx.nn.Module``: token ids ``(B, L)`` to logits ``(B, L, V)``.
        tokenizer: mlx-lm's ``TokenizerWrapper``.
        name: The name it was asked for by.
        path: The folder it was read from.
        context_length: Most tokens that it was made for; None if its config does not say.
        vocab_size: Tokens that it has embeddings and gives logits of; None if nobody knows.
        eos_token_ids: Tokens that end an answer.
        nbytes: Bytes of its weights in memory.
        has_chat_template: True if the tokenizer can lay out messages.
    """

    model: Any
    tokenizer: Any
    name: str
    path: Path
    context_length: int | None
    vocab_size: int | None
    eos_token_ids: frozenset[int]
    nbytes: int
    has_chat_template: bool


def load_model(
    name: str | None = None,
    on_progress: OnProgress | None = None,
    *,
    part: Part | None = None,
    trust_remote_code: bool = False,
) -> LoadedModel:
    """Load a model by name, fetching it first if need be.

    Args:
        name: See `resolve`; None is the default.
        on_progress: Told of what takes long.
        part: Which of a pair to load; None is the one that plain decoding uses.
        trust_remote_code: Let the model's own Python code run.

    Raises:
        ModelError: If it cannot be found, read or used.
        DownloadError: If it has to be fetched and cannot be.
    """
    tell = on_progress or ignore_progress
    prepare_backend()
    resolved = resolve(name)
    if not resolved.is_fetched:
        from msi_engine.model.pull import pull

        pull(resolved.name, on_progress=tell)
        resolved = resolve(name)
    path = _part(resolved, part)
    check_folder(path)
    if is_residual(path):
        raise ModelError(
            f"{path} holds what a draft has lost; it works as that draft's target only"
        )
    tell(Progress(f"loading {resolved.name}", 0, None, "files"))
    model = load_weights(path, trust_remote_code=trust_remote_code)
    tokenizer = load_tokenizer(path, trust_remote_code=trust_remote_code)
    config = read_config(path)
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        name=resolved.name,
        path=path,
        context_length=context_length(config),
        vocab_size=num_logits(path, model),
        eos_token_ids=frozenset(tokenizer.eos_token_ids),
        nbytes=weights_nbytes(model),
        has_chat_template=bool(tokenizer.has_chat_template),
    )


def context_length(config: dict[str, Any]) -> int | None:
    """Most tokens that a model was made for, by its config; None if it does not say."""
    return _positive(config, *_CONTEXT_KEYS)


def eos_token_ids(path: Path) -> frozenset[int]:
    """Tokens that end an answer by a model's configuration; none if it leaves that to others.

    Raises:
        ModelError: If it cannot be read, in one line.
    """
    from mlx_lm import utils

    with _one_line(path):
        ends = utils.load_config(path).get("eos_token_id")
    return frozenset([ends] if isinstance(ends, int) else ends or ())


def vocab_size(config: dict[str, Any]) -> int | None:
    """How many tokens a model gives logits of, by its config; None if it does not say."""
    return _positive(config, "vocab_size")


def num_logits(path: Path, model: Any) -> int:
    """How many logits a model gives.

    By its config; where that leaves it to the model's code, by a pass that is not computed.

    Args:
        path: The model's folder.
        model: The model, opened; nothing of it need be in memory.

    Raises:
        ModelError: If the pass fails, in one line.
    """
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    if (said := vocab_size(read_config(path))) is not None:
        return said
    with _one_line(path):
        return int(model(mx.array([[0]]), cache=make_prompt_cache(model)).shape[-1])


def _positive(config: dict[str, Any], *keys: str) -> int | None:
    """The first positive integer under one of ``keys``, of the model or of its text part."""
    for block in (config, config.get("text_config") or {}):
        for key in keys:
            value = block.get(key)
            if isinstance(value, int) and value > 0:
                return value
    return None


def _part(resolved: ResolvedModel, part: Part | None) -> Path:
    path = {"draft": resolved.draft, "target": resolved.target, None: resolved.path}[part]
    if path is None:
        raise ModelError(f"model {resolved.name!r} has no {part or 'weights'}; pull it as a pair")
    return path


def load_weights(path: Path, *, trust_remote_code: bool = False) -> Any:
    """The model of a folder, in the numbers that this machine computes with, in memory.

    Raises:
        ModelError: If it cannot be read or used, in one line.
    """
    model = open_weights(path, trust_remote_code=trust_remote_code)
    take_into_memory(model)
    return model


def take_into_memory(model: Any) -> None:
    """Read the weights of a model that `open_weights` has opened."""
    import mlx.core as mx

    if wants_float32():
        to_float32(model)
    else:
        mx.eval(model.parameters())


def open_weights(path: Path, *, trust_remote_code: bool = False) -> Any:
    """The model of a folder as it is stored, nothing read yet but the outlines of the files.

    Raises:
        ModelError: If it cannot be read or used, in one line.
    """
    from mlx_lm import utils

    with _one_line(path):
        return utils.load_model(path, lazy=True, trust_remote_code=trust_remote_code)[0]


def load_tokenizer(path: Path, *, trust_remote_code: bool = False) -> Any:
    """mlx-lm's tokenizer of a folder.

    Raises:
        ModelError: If it cannot be read or used, in one line.
    """
    from mlx_lm import utils

    read: Callable[..., Any] = utils.load_tokenizer
    options = {
        "trust_remote_code": trust_remote_code,
        # The engine compares the prompt with the context and says so in its own words.
        "model_max_length": sys.maxsize,
    }
    ends = list(eos_token_ids(path)) or None
    with _one_line(path):
        return read(path, options, eos_token_ids=ends)


@contextlib.contextmanager
def _one_line(path: Path) -> Iterator[None]:
    """Whatever mlx-lm and transformers raise becomes one line."""
    try:
        yield
    except Exception as error:
        raise _explained(path, error) from error


def _explained(path: Path, error: Exception) -> ModelError:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    first = lines[0].rstrip(" .:")
    if "not supported" in first:
        return UnsupportedModelError(f"{path}: {first}; mlx-lm cannot run this kind of model")
    if "trust_remote_code" in str(error) or "custom code" in str(error):
        return UnsupportedModelError(
            f"{path} brings its own Python code, which is not run unless trust_remote_code is set"
        )
    return ModelFileError(f"{path} cannot be loaded: {type(error).__name__}: {first}")


def weights_nbytes(model: Any, besides: Any = None) -> int:
    """Bytes of a model's weights, one that is held in two places counted once.

    Args:
        model: An ``mlx.nn.Module``.
        besides: Another one, whose weights are not counted.
    """
    from mlx.utils import tree_flatten

    arrays = {id(array): array for array in dict(tree_flatten(model.parameters())).values()}
    counted = {} if besides is None else dict(tree_flatten(besides.parameters()))
    for array in counted.values():
        arrays.pop(id(array), None)
    return sum(int(array.nbytes) for array in arrays.values())
