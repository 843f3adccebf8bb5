"""Where MSI keeps what it fetches and converts."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def home() -> Path:
    """MSI's folder: ``MSI_HOME`` if set, else one in the user's cache folder.

    It need not exist yet.
    """
    if override := os.environ.get("MSI_HOME"):
        return Path(override).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "msi"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "msi"
