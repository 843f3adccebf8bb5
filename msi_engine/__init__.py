"""The MSI engine: K paths over one shared prefix.

Knows no host and no embedding library. Importing it imports no MLX: what needs it is looked up on
first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from msi_engine.config import PRESETS, DecodeConfig
from msi_engine.evidence import Embedder, Evidence
from msi_engine.grammar import JsonSchema
from msi_engine.path import PathView
from msi_engine.plugins import hookimpl
from msi_engine.scorer import ScoreContext, Scorer

if TYPE_CHECKING:
    from msi_engine.engine import Engine
    from msi_engine.generation import Generation

__version__ = "0.1.0"

__all__ = [
    "PRESETS",
    "DecodeConfig",
    "Embedder",
    "Engine",
    "Evidence",
    "Generation",
    "JsonSchema",
    "PathView",
    "ScoreContext",
    "Scorer",
    "hookimpl",
]

_LAZY = {"Engine": "msi_engine.engine", "Generation": "msi_engine.generation"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
