"""Fetch a repository from the model hub into a folder."""

from __future__ import annotations

import fnmatch
import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

from msi_engine.errors import DownloadError, UnsupportedModelError
from msi_engine.model.files import PICKLES, read_config
from msi_engine.model.hub_child import HubChild
from msi_engine.model.progress import OnProgress

_TEXT = ("*.json", "*.jsonl", "*.jinja", "*.txt", "*.tiktoken", "tokenizer.model")
_WEIGHTS = "model*.safetensors"
_CODE = "*.py"
_PIN = "msi-revision.json"


def fetch_repository(
    repository: str, folder: Path, on_progress: OnProgress, *, trust_remote_code: bool = False
) -> None:
    """Fetch the weights, config and tokenizer of a repository; files already there are kept.

    Code and pickles are not fetched.

    Args:
        repository: ``owner/name``.
        folder: Where to put them; may hold part of an earlier attempt.
        on_progress: Told of bytes; what it raises gives the pull up.
        trust_remote_code: Fetch the model's own Python code too.

    Raises:
        ModelNotFoundError: If there is no such repository, or no right to read it.
        UnsupportedModelError: If its weights are pickles, or mlx-lm cannot run its kind.
        DownloadError: If it cannot be fetched.
    """
    child = HubChild(repository, folder, on_progress)
    revision, sizes = child.listing()
    _refuse_pickles(repository, sizes)
    _start_clean_if_changed(folder, repository, revision)
    child.download(revision, list(_TEXT))
    check_model_type(repository, read_config(folder), trust_remote_code=trust_remote_code)
    patterns = [*_TEXT, _WEIGHTS, *([_CODE] if trust_remote_code else [])]
    wanted = {name: size for name, size in sizes.items() if _matches(name, patterns)}
    child.download(revision, patterns, sum(wanted.values()))
    for name, size in wanted.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != size:
            raise DownloadError(f"{repository}: {name} did not arrive whole; try again")
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    (folder / _PIN).unlink()


def is_unfinished(folder: Path) -> bool:
    """True if a folder holds part of a repository, with which a later attempt can go on."""
    return (folder / _PIN).is_file()


def check_model_type(source: str, config: dict[str, Any], *, trust_remote_code: bool) -> None:
    """Make sure that mlx-lm has a model for this config.

    Raises:
        UnsupportedModelError: If it has not.
    """
    if config.get("model_file") and trust_remote_code:
        return
    from mlx_lm.utils import MODEL_REMAPPING

    kind = str(config["model_type"])
    module = MODEL_REMAPPING.get(kind, kind)
    if not module.isidentifier() or not importlib.util.find_spec(f"mlx_lm.models.{module}"):
        raise UnsupportedModelError(f"{source}: mlx-lm has no model of type {kind!r}")


def _refuse_pickles(repository: str, sizes: dict[str, int]) -> None:
    if any(_matches(name, [_WEIGHTS]) for name in sizes):
        return
    pickled = next((n for n in sorted(sizes) if Path(n).suffix in PICKLES), None)
    if pickled is not None:
        raise UnsupportedModelError(
            f"{repository} has its weights in {pickled}, a pickle, which can run code when "
            "loaded; only safetensors are fetched"
        )
    raise UnsupportedModelError(f"{repository} has no weights ({_WEIGHTS})")


def _start_clean_if_changed(folder: Path, repository: str, revision: str) -> None:
    """Drop what an attempt at another repository or commit has left."""
    pin, wanted = folder / _PIN, {"repository": repository, "revision": revision}
    try:
        same = json.loads(pin.read_text(encoding="utf-8")) == wanted
    except (OSError, ValueError):
        same = False
    if not same:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        pin.write_text(json.dumps(wanted), encoding="utf-8")


def _matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
