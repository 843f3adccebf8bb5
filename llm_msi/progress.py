"""Progress on stderr: bars at a terminal, plain lines elsewhere, silence where nothing is slow.

stdout belongs to the answer.
"""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

if TYPE_CHECKING:
    from msi_engine.model import Progress

SLOW_S = 2.0  # what takes less is not worth a line
EVERY = 0.25  # share of the whole between two plain lines


def is_terminal() -> bool:
    """Whether stderr is a terminal."""
    return sys.stderr.isatty()


class Notice:
    """A line at the terminal that appears if something takes longer than `SLOW_S`.

    It is taken away again at the end; where stderr is no terminal nothing is ever shown.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._lock = threading.Lock()
        self._shown = 0  # width of what stands on the line
        self._over = False
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        if is_terminal():
            self._timer = threading.Timer(SLOW_S, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def update(self, text: str) -> None:
        """Change the text, on the screen too if it is there."""
        with self._lock:
            self._text = text
            if self._shown and not self._over:
                self._write(text)

    def close(self) -> None:
        """Take the line away; nothing is shown from now on."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            if self._shown:
                self._write("")
            self._over = True

    def _show(self) -> None:
        with self._lock:
            if not self._over:
                self._write(self._text)

    def _write(self, text: str) -> None:
        line = f"{text} ..." if text else ""
        sys.stderr.write("\r" + line.ljust(self._shown) + ("" if line else "\r"))
        sys.stderr.flush()
        self._shown = len(line)


class Reporter:
    """Shows the `Progress` that fetching and converting report."""

    def __init__(self) -> None:
        self._stage = ""
        self._next = 0.0  # share at which the next plain line is due
        self._drawn_s = 0.0
        self._open = False  # a terminal line that has not been ended

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end_line()

    def __call__(self, progress: Progress) -> None:
        """Show one report: a step of a bar at a terminal, else a line now and then."""
        if progress.stage != self._stage:
            self._end_line()
            self._stage, self._next = progress.stage, 0.0
        if is_terminal():
            self._bar(progress)
        else:
            self._line(progress)

    def _bar(self, progress: Progress) -> None:
        finished = progress.total is not None and progress.done >= progress.total
        now = time.monotonic()
        if self._open and not finished and now - self._drawn_s < 0.1:
            return
        self._drawn_s, self._open = now, True
        click.echo(f"\r\x1b[K{describe(progress)}", err=True, nl=False)
        if finished:
            self._end_line()

    def _line(self, progress: Progress) -> None:
        share = progress.done / progress.total if progress.total else 0.0
        if share < self._next:
            return
        self._next = min(1.0, share + EVERY) if share < 1 else 2.0
        click.echo(describe(progress), err=True)

    def _end_line(self) -> None:
        if self._open:
            click.echo(err=True)
            self._open = False


def describe(progress: Progress) -> str:
    """One report as text, such as ``Fetching  45%  42.0 of 93.0 MB``."""
    if not progress.total:
        return progress.stage if not progress.done else f"{progress.stage}  {amount(progress)}"
    share = min(1.0, progress.done / progress.total)
    return f"{progress.stage}  {share:4.0%}  {amount(progress)}"


def amount(progress: Progress) -> str:
    """What is done of how much, in its unit; bytes as MB."""
    scale, unit, digits = (
        (1e6, "MB", 1) if progress.unit in ("B", "bytes") else (1, progress.unit, 0)
    )
    of = f" of {progress.total / scale:.{digits}f}" if progress.total else ""
    return f"{progress.done / scale:.{digits}f}{of} {unit}"
