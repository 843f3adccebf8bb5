"""The target of a pair: the model that checks what the draft has written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from msi_engine.errors import ConfigError, ModelError
from msi_engine.model.files import check_folder, is_residual, read_config
from msi_engine.model.load import (
    LoadedModel,
    context_length,
    eos_token_ids,
    num_logits,
    open_weights,
    take_into_memory,
    weights_nbytes,
)
from msi_engine.model.memory import free_memory
from msi_engine.model.pairs import check_pair
from msi_engine.model.policy import working_nbytes
from msi_engine.model.progress import OnProgress, Progress, ignore_progress
from msi_engine.model.resolve import resolve
from msi_engine.model.tensors import logical_nbytes

Kind = Literal["resident", "stream", "residual"]
Residency = Literal["auto", "resident", "stream"]

_MARGIN = 1.2  # a resident target's caches and activations, and other programs, need room too


@dataclass(frozen=True, slots=True)
class TargetModel:
    """A target, ready to be swept.

    Attributes:
        model: As mlx-lm's: token ids ``(B, L)`` and a ``cache`` to logits ``(B, L, V)``.
        kind: ``resident``: all weights in memory. ``stream``: one layer's at a time. ``residual``:
            the draft's weights, and what they lost.
        name: The name that it was found by.
        path: The folder that it is read from.
        bytes_per_sweep: Bytes of weights that one forward pass reads, at their stored size.
        nbytes: Most bytes of weights that it has in memory at once, those of the draft not
            counted. A stream has besides them, while it reads ahead, the next part as stored.
        context_length: Most tokens that it was made for; None if its config does not say.
        eos_token_ids: Tokens that end an answer by its config, beside those of the draft.
        vocab_size: Tokens that it has embeddings and gives logits of; None if nobody knows.
    """

    model: Any
    kind: Kind
    name: str
    path: Path
    bytes_per_sweep: int
    nbytes: int
    context_length: int | None = None
    eos_token_ids: frozenset[int] = frozenset()
    vocab_size: int | None = None

    @classmethod
    def of(
        cls,
        model: Any,
        kind: Kind,
        name: str,
        path: Path,
        *,
        nbytes: int,
        vocab_size: int | None,
        shared: int = 0,
    ) -> TargetModel:
        """A target with what its folder says of it.

        Args:
            model: See the attributes.
            kind: See the attributes.
            name: See the attributes.
            path: See the attributes.
            nbytes: See the attributes.
            vocab_size: See the attributes.
            shared: Bytes of the draft's weights that a forward pass reads, too.
        """
        return cls(
            model,
            kind,
            name,
            path,
            bytes_per_sweep=shared + logical_nbytes(path),
            nbytes=nbytes,
            context_length=context_length(read_config(path)),
            eos_token_ids=eos_token_ids(path),
            vocab_size=vocab_size,
        )


def load_target(
    draft: LoadedModel,
    *,
    name: str | None = None,
    residency: Residency = "auto",
    on_progress: OnProgress | None = None,
    trust_remote_code: bool = False,
) -> TargetModel:
    """Load the target of a draft, fetching it first if need be.

    Args:
        draft: The draft, in memory.
        name: The target's name, see `resolve`; of a pair, its target. None is the target of the
            pair that the draft belongs to.
        residency: ``resident``, ``stream``, or ``auto``: resident if there is memory for it.
        on_progress: Told of what takes long.
        trust_remote_code: Let the model's own Python code run.

    Raises:
        ConfigError: If a residual target is to be streamed.
        ModelError: If there is none, or it is no target for this draft, or cannot be used.
        DownloadError: If it has to be fetched and cannot be.
    """
    tell = on_progress or ignore_progress
    called, path = _find(draft, name, tell, trust_remote_code)
    check_folder(path)
    tell(Progress(f"loading the target {called}", 0, None, "files"))
    if is_residual(path):
        check_pair(draft.path, path, trust_remote_code=trust_remote_code)
        return _residual(draft, called, path, residency, trust_remote_code)
    model = open_weights(path, trust_remote_code=trust_remote_code)
    width = num_logits(path, model)
    sizes = draft.vocab_size, width
    check_pair(draft.path, path, sizes, trust_remote_code=trust_remote_code)
    kind = _kind(model, residency)
    if kind == "stream":
        from msi_engine.model.streaming import stream

        streamed = stream(model, path)
        nbytes = streamed.kept + streamed.largest
    else:
        take_into_memory(model)
        nbytes = weights_nbytes(model)
    return TargetModel.of(model, kind, called, path, nbytes=nbytes, vocab_size=width)


def _residual(
    draft: LoadedModel, name: str, path: Path, residency: Residency, trust_remote_code: bool
) -> TargetModel:
    from msi_engine.model.residual import load_residual

    if residency == "stream":
        raise ConfigError(
            f"target_residency stream cannot be used with {name}: a residual target computes with "
            "the draft, which is in memory; leave it out"
        )
    model = load_residual(draft, path, trust_remote_code=trust_remote_code)
    nbytes = weights_nbytes(model, besides=draft.model)
    shared = logical_nbytes(draft.path)
    return TargetModel.of(
        model,
        "residual",
        name,
        path,
        nbytes=nbytes,
        vocab_size=draft.vocab_size,
        shared=shared,
    )


def _kind(model: Any, residency: Residency) -> Literal["resident", "stream"]:
    """How to hold a target that has been opened and not read yet."""
    if residency != "auto":
        return residency
    free = free_memory()
    fits = free is None or working_nbytes(model) * _MARGIN <= free
    return "resident" if fits else "stream"


def target_folder(draft: str, target: str | None) -> Path | None:
    """Where the target of a draft lies; None if it has none, or nothing has been fetched yet.

    Args:
        draft: The draft's name.
        target: The target's name; of a pair, its target is meant. None: of the draft's own pair.
    """
    if target is None:
        return resolve(draft).target
    named = resolve(target)
    return named.target or named.path


def _find(
    draft: LoadedModel, name: str | None, tell: OnProgress, trust_remote_code: bool
) -> tuple[str, Path]:
    """Name and folder of the target."""
    called = draft.name if name is None else name
    resolved = resolve(called)
    if not resolved.is_fetched:
        from msi_engine.model.pull import pull

        pull(called, on_progress=tell, trust_remote_code=trust_remote_code)
        resolved = resolve(called)
    path = target_folder(draft.name, name)
    if path is None:
        raise ModelError(
            f"model {called!r} has no target to check it; name one with the option `target`, "
            "or pull it as a pair (--target or --quantize)"
        )
    return called, path
