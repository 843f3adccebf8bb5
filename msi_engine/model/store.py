"""The models that have been fetched: where they lie, and the record of each.

A model is made in a staging folder and moved into place in one step, its manifest with it, so
that a folder with a manifest is a whole model. Knows nothing of how models are fetched or loaded.

    MSI_HOME/config.json              the default
    MSI_HOME/models/NAME/             msi.json (the manifest), draft/, target/
    MSI_HOME/staging/NAME/            one in the making
    MSI_HOME/locks/NAME.lock          held while it is made or removed
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from msi_engine.errors import ConfigError, ModelFileError, ModelNotFoundError
from msi_engine.model.files import check_sizes, file_sizes, read_json
from msi_engine.model.home import home
from msi_engine.model.settings import read_settings, reading, write_settings, writing

MANIFEST = "msi.json"
EMBEDDED = "embedded"
_VERSION = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

Part = Literal["draft", "target"]


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A model, or a pair of draft and target, in the store.

    Attributes:
        name: What the user calls it.
        source: Where the draft came from: a repository, a folder, or ``embedded``.
        target_source: Where the target came from; None without one.
        quantized: True if both were quantised here from one full-precision source.
        draft: Folder of the draft.
        target: Folder of the target; None without one.
        draft_bits: Bits of the draft, if it was quantised here.
        residual: True if the target is what the draft has lost, and no model by itself.
        decode: Which of the two plain decoding uses.
        nbytes: Bytes of the files that the store holds; 0 for folders it only refers to.
        is_default: True if it is what a call without a name uses.
    """

    name: str
    source: str
    target_source: str | None
    quantized: bool
    draft_bits: int
    residual: bool
    draft: Path
    target: Path | None
    decode: Part
    nbytes: int
    is_default: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is written down when a model is complete.

    Attributes:
        source: See `ModelRecord`.
        target_source: See `ModelRecord`.
        quantized: See `ModelRecord`.
        draft_bits: See `ModelRecord`.
        residual: See `ModelRecord`.
        decode: See `ModelRecord`.
        draft: Folder of the draft, relative to the manifest or absolute.
        target: The same for the target.
        files: Size in bytes of each file that the store holds.
        version: Format of the manifest.
    """

    source: str
    target_source: str | None = None
    quantized: bool = False
    draft_bits: int = 4
    residual: bool = False
    decode: Part = "draft"
    draft: str = "draft"
    target: str | None = None
    files: dict[str, int] = field(default_factory=dict)
    version: int = _VERSION


def check_name(name: str) -> str:
    """A name that a model may have in the store.

    Raises:
        ConfigError: If it holds other characters than letters, digits, dots, dashes, underscores.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"model name {name!r} may hold letters, digits, dots, dashes and underscores only"
        )
    return name


def model_folder(name: str) -> Path:
    """Where a complete model of this name lies."""
    return home() / "models" / check_name(name)


def staging_folder(name: str) -> Path:
    """Where a model of this name is made."""
    return home() / "staging" / check_name(name)


@contextlib.contextmanager
def locked(name: str, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock of one name; a second process or thread waits here.

    Args:
        name: Name of a model in the store.
        on_wait: Called once if somebody else holds the lock.
    """
    from filelock import FileLock, Timeout

    path = home() / "locks" / f"{check_name(name)}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        on_wait()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@reading()
def find_record(name: str) -> ModelRecord | None:
    """The record of a complete model; None if there is none of this name.

    Raises:
        ModelFileError: If its manifest is malformed or a file has another size than it should.
    """
    folder = model_folder(name)
    if not (folder / MANIFEST).is_file():
        return None
    manifest = _read_manifest(folder)
    check_sizes(folder, manifest.files)
    return _record(name, folder, manifest)


@reading()
def list_names() -> list[str]:
    """The names of all models in the store, those with an unreadable manifest included."""
    return sorted(path.parent.name for path in (home() / "models").glob(f"*/{MANIFEST}"))


def list_models() -> list[ModelRecord]:
    """Every model in the store whose manifest can be read, by name; files are not looked at."""
    found = []
    for name in list_names():
        folder = home() / "models" / name
        with contextlib.suppress(ModelFileError):
            found.append(_record(name, folder, _read_manifest(folder)))
    return found


def commit(name: str, manifest: Manifest) -> ModelRecord:
    """Move a staged model into place. The lock must be held.

    Args:
        name: What it will be called.
        manifest: Its manifest; ``files`` is filled in here.

    Returns:
        Its record.
    """
    staged, final = staging_folder(name), model_folder(name)
    content = {**asdict(manifest), "files": file_sizes(staged)}
    (staged / MANIFEST).write_text(json.dumps(content, indent=1), encoding="utf-8")
    _sync(staged)
    final.parent.mkdir(parents=True, exist_ok=True)
    _discard(final)
    os.rename(staged, final)
    record = find_record(name)
    if record is None:
        raise ModelFileError(f"{final} vanished while it was put in place")
    return record


def remove(name: str) -> None:
    """Delete a model and what is left of an unfinished pull. A folder it refers to stays.

    Raises:
        ModelNotFoundError: If there is no such model.
        ModelFileError: If the store cannot be written.
    """
    folder, staged = model_folder(name), staging_folder(name)
    with writing():
        if not folder.exists() and not staged.exists():
            raise ModelNotFoundError(f"no model {name!r} to remove; see: llm msi models")
        with locked(name):
            _discard(folder)
            shutil.rmtree(staged, ignore_errors=True)
            if read_settings().get("default") == name:
                write_settings({})


@reading()
def default_name() -> str:
    """The model that is used when none is named: the configured one, else ``embedded``."""
    return str(read_settings().get("default", EMBEDDED))


def set_default(name: str) -> None:
    """Use this model when none is named. Nothing is written if that is so already.

    Raises:
        ModelNotFoundError: If it is not in the store and not ``embedded``.
        ModelFileError: If the store cannot be written.
    """
    if name != EMBEDDED and find_record(name) is None:
        raise ModelNotFoundError(f"no model {name!r}; run: llm msi pull {name}")
    with contextlib.suppress(ModelFileError):  # damaged settings are replaced
        if name == default_name():
            return
    with writing():
        write_settings({"default": name})


def _record(name: str, folder: Path, manifest: Manifest) -> ModelRecord:
    return ModelRecord(
        name=name,
        source=manifest.source,
        target_source=manifest.target_source,
        quantized=manifest.quantized,
        draft_bits=manifest.draft_bits,
        residual=manifest.residual,
        draft=folder / manifest.draft,
        target=None if manifest.target is None else folder / manifest.target,
        decode=manifest.decode,
        nbytes=sum(manifest.files.values()),
        is_default=name == default_name(),
    )


def _read_manifest(folder: Path) -> Manifest:
    content = read_json(folder / MANIFEST)
    if content.get("version") != _VERSION:
        raise ModelFileError(
            f"{folder / MANIFEST} has version {content.get('version')!r}, known: {_VERSION}; "
            "update llm-msi or remove the model"
        )
    try:
        manifest = Manifest(**content)
    except TypeError as error:
        raise ModelFileError(f"{folder / MANIFEST} is malformed: {error}") from None
    if not _is_sound(manifest):
        raise ModelFileError(f"{folder / MANIFEST} is malformed: a value is of a wrong kind")
    return manifest


def _is_sound(manifest: Manifest) -> bool:
    """Whether what was read is what could have been written."""
    texts = (manifest.source, manifest.draft)
    maybe = (manifest.target_source, manifest.target)
    return (
        all(isinstance(value, str) for value in texts)
        and all(value is None or isinstance(value, str) for value in maybe)
        and manifest.decode in ("draft", *(("target",) if manifest.target else ()))
        and isinstance(manifest.draft_bits, int)
        and isinstance(manifest.residual, bool)
        and isinstance(manifest.files, dict)
        and all(isinstance(size, int) for size in manifest.files.values())
    )


def _discard(folder: Path) -> None:
    """Delete a model so that it is gone at once, even if deleting its files is interrupted."""
    if folder.is_symlink():  # what it leads to is somebody else's
        folder.unlink()
    elif folder.exists():
        (folder / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(folder)


def _sync(folder: Path) -> None:
    """Put the files on the disk, so that a power cut cannot leave a manifest without them."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
