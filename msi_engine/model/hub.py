"""Fetch a repository from the model hub into a folder."""

from __future__ import annotations

import contextlib
import fnmatch
import importlib.util
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msi_engine.errors import DownloadError, ModelNotFoundError, MSIError, UnsupportedModelError
from msi_engine.model.disk import is_disk_full
from msi_engine.model.files import PICKLES, read_config
from msi_engine.model.progress import OnProgress, watched

_TEXT = ("*.json", "*.jsonl", "*.jinja", "*.txt", "*.tiktoken", "tokenizer.model")
_WEIGHTS = "model*.safetensors"
_CODE = "*.py"
_PIN = "msi-revision.json"


@dataclass(frozen=True, slots=True)
class _Listing:
    revision: str  # a commit, so that a resumed download cannot mix two
    sizes: dict[str, int]  # bytes, by file name


def fetch_repository(
    repository: str, folder: Path, on_progress: OnProgress, *, trust_remote_code: bool = False
) -> None:
    """Fetch the weights, config and tokenizer of a repository; files already there are kept.

    Code and pickles are not fetched.

    Args:
        repository: ``owner/name``.
        folder: Where to put them; may hold part of an earlier attempt.
        on_progress: Told of bytes.
        trust_remote_code: Fetch the model's own Python code too.

    Raises:
        ModelNotFoundError: If there is no such repository, or no right to read it.
        UnsupportedModelError: If its weights are pickles, or mlx-lm cannot run its kind.
        DownloadError: If it cannot be fetched.
    """
    with _explained(repository):
        listing = _list(repository)
        _refuse_pickles(repository, listing)
        _start_clean_if_changed(folder, repository, listing.revision)
        _download(repository, listing.revision, folder, list(_TEXT))
        check_model_type(repository, read_config(folder), trust_remote_code=trust_remote_code)
        patterns = [*_TEXT, _WEIGHTS, *([_CODE] if trust_remote_code else [])]
        wanted = {n: s for n, s in listing.sizes.items() if _matches(n, patterns)}
        with watched(folder, f"fetching {repository}", sum(wanted.values()), on_progress):
            _download(repository, listing.revision, folder, patterns)
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


def _list(repository: str) -> _Listing:
    from huggingface_hub import HfApi

    info = HfApi().model_info(repository, files_metadata=True)
    sizes = {f.rfilename: f.size or 0 for f in info.siblings or []}
    return _Listing(str(info.sha), sizes)


def _refuse_pickles(repository: str, listing: _Listing) -> None:
    if any(_matches(name, [_WEIGHTS]) for name in listing.sizes):
        return
    pickled = next((n for n in sorted(listing.sizes) if Path(n).suffix in PICKLES), None)
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


def _download(repository: str, revision: str, folder: Path, patterns: list[str]) -> None:
    from huggingface_hub import snapshot_download

    with _without_bars():
        snapshot_download(repository, revision=revision, local_dir=folder, allow_patterns=patterns)


@contextlib.contextmanager
def _without_bars() -> Iterator[None]:
    """Keep the hub's own progress bars off the terminal: progress is read off the folder."""
    from huggingface_hub import utils

    hub: Any = utils
    shown = not hub.are_progress_bars_disabled()
    hub.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            hub.enable_progress_bars()


def _matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


@contextlib.contextmanager
def _explained(repository: str) -> Iterator[None]:
    """Turn what huggingface_hub and its HTTP client raise into one line."""
    from huggingface_hub import errors

    try:
        yield
    except MSIError:
        raise
    except errors.GatedRepoError:
        raise ModelNotFoundError(
            f"{repository} is gated: accept its terms on its page, then run: hf auth login"
        ) from None
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        raise ModelNotFoundError(f"no repository {repository!r}, or no right to read it") from None
    except Exception as error:
        if is_disk_full(error):
            raise
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DownloadError(
            f"{repository} could not be fetched: {first}; try again to go on"
        ) from error
