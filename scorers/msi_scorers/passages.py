"""What scorers with evidence have in common: their options, the chunks, the text judged."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from msi_engine import Evidence, PathView
from msi_scorers.control import control_passages


class PassageOptions(BaseModel):
    """Options of every scorer that holds a text to passages."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scope: Literal["segment", "text"] = Field(
        default="segment", description="What is judged: the segment, or the whole answer so far"
    )
    chunk_size: int = Field(
        default=800,
        ge=40,
        le=100_000,
        description="Characters; longer evidence is taken in pieces, each a chunk",
    )
    control: Literal["none", "shuffle"] = Field(
        default="none", description="shuffle: chunks of another query in place of the evidence"
    )
    control_evidence: tuple[str, ...] = Field(
        default=(), description="Those chunks; by default shipped passages about other things"
    )
    control_seed: int = Field(default=0, ge=0, description="Where to begin among the shipped ones")


def chunk_texts(options: PassageOptions, evidence: Sequence[Evidence]) -> list[str]:
    """The texts that stand for the evidence, none longer than ``chunk_size``."""
    texts: Sequence[str] = [passage.text for passage in evidence]
    if options.control == "shuffle":
        texts = options.control_evidence or control_passages(len(texts), options.control_seed)
    return [piece for text in texts for piece in textwrap.wrap(text, options.chunk_size)]


def judged_text(options: PassageOptions, path: PathView) -> str:
    """What of a path is judged, with single spaces; without a letter or digit if nothing is.

    A segment that says nothing is judged by the end of what is committed: the path may end here,
    and is not to pay for that.
    """
    text = path.text if options.scope == "text" else path.segment
    if not says_something(text):
        text = path.committed[-options.chunk_size :]
    return " ".join(text.split())


def says_something(text: str) -> bool:
    """Whether there is a letter or a digit."""
    return any(character.isalnum() for character in text)
