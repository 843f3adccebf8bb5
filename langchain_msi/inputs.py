"""Inputs of a step in a chain: dictionaries with keys that the step cannot do without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msi_engine.errors import ConfigError


def check_keys(step: str, given: Any, *needed: str) -> None:
    """Make sure that a step was given what it needs.

    Args:
        step: What the step is called, for the error.
        given: Its input.
        needed: Keys that it has to have.

    Raises:
        ConfigError: If it is no dictionary, or lacks one; the keys that it has are named.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(f"{step} takes a dictionary, got {type(given).__name__}")
    missing = next((key for key in needed if key not in given), None)
    if missing is not None:
        has = ", ".join(repr(key) for key in given) or "nothing"
        raise ConfigError(f"{step} needs {missing!r} in its input, which has {has}")
