"""What is settled for every call: one small file in MSI's folder. Today it names the default model.

Knows what it means that the folder cannot be read or changed.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator

from msi_engine.errors import ModelFileError
from msi_engine.model.files import read_json
from msi_engine.model.home import home


def read_settings() -> dict[str, str]:
    """What is settled; empty if nothing is.

    Raises:
        ModelFileError: If the file is malformed.
    """
    path = home() / "config.json"
    return read_json(path) if path.exists() else {}


def write_settings(settings: dict[str, str]) -> None:
    """Settle this, and nothing else; in one step."""
    path = home() / "config.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"config.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(settings), encoding="utf-8")
    os.replace(temporary, path)


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Say in one line that MSI's folder cannot be read."""
    try:
        yield
    except OSError as error:
        raise ModelFileError(
            f"{home()} cannot be read: {error}; make it readable, or set MSI_HOME"
        ) from error


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Say in one line that MSI's folder cannot be changed."""
    try:
        yield
    except OSError as error:
        raise ModelFileError(f"{home()} cannot be changed: {error}") from error
