"""A finished answer: its text, and how it came about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msi_engine.errors import DecodeError
from msi_engine.events import Stats
from msi_engine.trace import Trace


@dataclass(frozen=True, slots=True)
class Generation:
    """A finished answer.

    Attributes:
        text: The answer, without the stop string that ended it.
        tokens: Its committed token ids, an end-of-sequence token included.
        finish_reason: ``eos``, ``stop`` or ``length``.
        stats: What it cost.
        seed: The seed in force, given or drawn.
        trace: How it came about.
    """

    text: str
    tokens: tuple[int, ...]
    finish_reason: str
    stats: Stats
    seed: int
    trace: Trace

    @classmethod
    def of(cls, trace: Trace) -> Generation:
        """The answer of a trace that is finished.

        Raises:
            DecodeError: If it is not.
        """
        done = trace.finished
        if done is None:
            raise DecodeError("the generation ended without a last event")
        return cls(trace.text, tuple(trace.tokens), done.reason, done.stats, done.seed, trace)

    def summary(self) -> dict[str, Any]:
        """The compact trace, plain JSON."""
        return self.trace.summary()
