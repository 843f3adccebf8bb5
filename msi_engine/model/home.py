"""Where MSI keeps what it fetches and converts."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def expanded(path: str) -> Path:
    """A path as the user wrote it, ``~`` expanded; left as it is where there is no such user."""
    return Path(os.path.expanduser(path))  # pathlib's raises


def local_folder(name: str) -> Path | None:
    """The folder that a name leads to; None if it leads to none, whatever it looks like."""
    folder = expanded(name).absolute()
    return folder if name and os.path.isdir(folder) else None  # pathlib's raises on long names


def home() -> Path:
    """MSI's folder: ``MSI_HOME`` if set, else one in the user's cache folder.

    It need not exist yet.
    """
    if override := os.environ.get("MSI_HOME"):
        return expanded(override).absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "msi"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "msi"
