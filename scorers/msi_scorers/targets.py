"""Options of the scorers that compare a text with a target, `register` and `archetype`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class TargetOptions(BaseModel):
    """Options that `register` and `archetype` have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scope: Literal["segment", "text"] = Field(
        default="text", description="What is judged: the segment, or the answer's last words"
    )
    window: int = Field(default=80, ge=5, le=5000, description="Words at the end that are judged")
    file: str | None = Field(
        default=None, min_length=1, description="TOML file of exemplars in place of the shipped one"
    )
    control: Literal["none", "shuffle"] = Field(
        default="none", description="shuffle: another target in place of the one asked for"
    )
    control_seed: int = Field(default=0, ge=0, description="Which other target")


class RegisterOptions(TargetOptions):
    """Options of scorer `register`."""

    target: str | None = Field(default=None, min_length=1, description="Name of a register")
    example: str | None = Field(
        default=None, min_length=1, description="Text that sounds as the answer should"
    )

    @model_validator(mode="after")
    def _one_target(self) -> RegisterOptions:
        if (self.target is None) == (self.example is None):
            raise ValueError("give either a target (a register's name) or an example (a text)")
        return self


class ArchetypeOptions(TargetOptions):
    """Options of scorer `archetype`."""

    target: str = Field(min_length=1, description="Name of an archetype")
