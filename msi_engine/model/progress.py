"""What a long task about models tells while it runs."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.25


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


@contextlib.contextmanager
def watched(folder: Path, stage: str, total: int, on_progress: OnProgress) -> Iterator[None]:
    """Report the bytes below a folder while the block runs, from a helper thread.

    Args:
        folder: Where files grow.
        stage: See `Progress`.
        total: Bytes that are expected; more are reported as this many.
        on_progress: Told several times a second, and once at the end.
    """
    stop = threading.Event()

    def report() -> None:
        on_progress(Progress(stage, min(_bytes_below(folder), total), total, "bytes"))

    def watch() -> None:
        while not stop.wait(_POLL_S):
            report()

    thread = threading.Thread(target=watch, name="msi-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    report()


def _bytes_below(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            # Downloads move their files while we look.
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total
