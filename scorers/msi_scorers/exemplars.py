"""Exemplar files: named sets of texts that show what a register or an archetype is.

A file is TOML: ``space`` names the feature space, each table ``[[register]]`` or ``[[archetype]]``
has a ``name`` and ``exemplars``, and ``[norms]`` gives for each feature its mean and deviation.
Without ``[norms]`` they are computed from the file's own exemplars.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from msi_engine.config import one_line
from msi_engine.errors import ConfigError


class Entry(BaseModel):
    """A register or an archetype, as it stands in a file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    description: str = ""
    axes: dict[str, float] = Field(default_factory=dict)
    exemplars: tuple[str, ...] = Field(min_length=1)


class BoundarySettings(BaseModel):
    """Table ``[boundary]`` of a file of registers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    span: int = Field(default=40, ge=5, le=500)
    threshold: float = Field(default=0.4, ge=0, le=2)


class ExemplarFile(BaseModel):
    """A file of registers or archetypes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    space: str = "register"
    temperature: float = Field(default=0.25, gt=0, le=100)
    norms: dict[str, tuple[float, float]] | None = None
    boundary: BoundarySettings = BoundarySettings()
    register_: tuple[Entry, ...] = Field(default=(), alias="register")
    archetype: tuple[Entry, ...] = ()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What the file holds, of either kind."""
        return self.register_ + self.archetype

    @model_validator(mode="after")
    def _named_once(self) -> ExemplarFile:
        names = [entry.name for entry in self.entries]
        if not names:
            raise ValueError("it holds no [[register]] and no [[archetype]]")
        if len(set(names)) != len(names):
            raise ValueError(f"a name is given twice among {', '.join(names)}")
        return self


def read_exemplars(path: str) -> ExemplarFile:
    """The content of a file.

    Raises:
        ConfigError: If it is not as described.
    """
    try:
        content: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return ExemplarFile(**content)
    except ValidationError as error:
        raise ConfigError(f"{path!r}: {one_line(error)}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError) as error:
        raise ConfigError(f"{path!r} is not valid TOML: {error}") from None
