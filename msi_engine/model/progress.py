"""What a long task about models tells while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a task has come.

    Attributes:
        stage: What is being done, in words for a person, such as ``fetching embedded``.
        done: Units done so far.
        total: Units in all; None if unknown.
        unit: ``bytes``, ``tensors`` or ``files``.
    """

    stage: str
    done: int
    total: int | None
    unit: str


# May be called from a helper thread.
OnProgress = Callable[[Progress], None]


def ignore_progress(_: Progress) -> None:
    """Tell nobody."""
