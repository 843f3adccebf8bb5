"""MSI's warnings at the terminal: one line each, as `llm` shows errors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import click

_OURS = ("msi_engine", "msi_scorers")  # packages whose kinds of warning are meant for the user


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show MSI's own warnings as ``Warning: ...`` on stderr, without file and line.

    In Python, outside of any command, and for everybody else's warnings nothing changes.
    """
    if click.get_current_context(silent=True) is None:
        yield
        return
    usual = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if category.__module__.partition(".")[0] in _OURS:
            click.echo(f"Warning: {' '.join(str(message).split())}", file=file, err=True)
        else:
            usual(message, category, filename, lineno, file, line)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = usual
