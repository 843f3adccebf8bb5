"""The path trace as text: one line for a collapse, one for each of its paths."""

from __future__ import annotations

import unicodedata

from msi_engine.events import Collapsed, PathReport


def collapse_lines(collapse: Collapsed) -> list[str]:
    """A collapse in words, its paths below it in order of credence, the winner starred."""
    paths = sorted(collapse.paths, key=lambda path: -path.credence)
    head = (
        f"[{collapse.segment}] {count(len(paths), 'path')}, {collapse.reason}, {collapse.mode}, "
        f"effective {collapse.effective_sample_size:.2f}: {quoted(collapse.text)}"
    )
    if collapse.note:
        head += f" ({collapse.note})"
    return [head, *(path_line(path, collapse.winner) for path in paths)]


def path_line(path: PathReport, winner: int | None) -> str:
    """A path: credence, logprob, signals, why it stands where it stands, text."""
    signals = "".join(f" {name} {value:+.3f}" for name, value in path.signals.items())
    return (
        f"  {'*' if path.index == winner else ' '} {path.index} credence {path.credence:.3f} "
        f"logprob {path.logprob:.2f}{signals} {path.boundary or path.status}: {quoted(path.text)}"
    )


def count(number: int, noun: str) -> str:
    """A number with its noun, in the plural where that is due."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def quoted(text: str) -> str:
    """Text on one line, in quotes; what could move the terminal's cursor is spelled out."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if unicodedata.category(character) in ("Cc", "Zl", "Zp"):  # controls and line separators
        return character.encode("unicode_escape").decode()
    return character
