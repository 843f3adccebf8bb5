"""A child process: work that can be ended at any moment, as threads of others cannot."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from msi_engine.model.progress import OnProgress, Progress

_POLL_S = 0.25


def run_child(
    command: Sequence[str],
    folder: Path,
    stage: str,
    total: int | None,
    on_progress: OnProgress,
    environment: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Run a command to its end, and report the bytes below a folder meanwhile.

    Whatever is raised in between ends the command: Ctrl-C, or ``on_progress`` of a caller who has
    given the work up.

    Args:
        command: The program and its arguments.
        folder: Where files grow; need not exist yet.
        stage: See `Progress`.
        total: Bytes that are expected, more being reported as this many; None if unknown.
        on_progress: Told several times a second, and at the end if there is a total.
        environment: Of the child; None is that of this process.

    Returns:
        Its exit code, and what it has written to stdout and stderr.
    """

    def report() -> None:
        found = _bytes_below(folder)
        on_progress(Progress(stage, found if total is None else min(found, total), total, "bytes"))

    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
    )
    with child:
        try:
            while (output := _output(child)) is None:
                report()
        except BaseException:
            child.kill()
            raise
    if total is not None:
        report()
    return child.returncode, output


def _output(child: subprocess.Popen[str]) -> str | None:
    """What a child has written, once it has ended; None if it is still at it after a while."""
    try:
        return child.communicate(timeout=_POLL_S)[0]
    except subprocess.TimeoutExpired:
        return None


def _bytes_below(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:
                continue  # downloads move their files while we look
    return total
