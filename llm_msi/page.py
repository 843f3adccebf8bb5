"""Text for a terminal: its width, lines that fit it, and characters that do no harm there."""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Iterable

NARROWEST, WIDEST = 40, 100  # columns: below lines are torn to bits, above they are hard to read

_HARMFUL = ("C", "Zl", "Zp")  # categories of control, format and line-breaking characters


def page_width() -> int:
    """Columns to write in: the terminal's, within reason; 80 where there is no terminal."""
    return min(max(shutil.get_terminal_size().columns, NARROWEST), WIDEST)


def plain(text: str) -> str:
    """Text on one line, with an escape for each character that would move or recolour the rest."""
    return "".join(
        char.encode("unicode_escape").decode()
        if unicodedata.category(char).startswith(_HARMFUL)
        else char
        for char in text
    )


def cells(text: str) -> int:
    """Columns that a text takes: wide characters take two, combining ones none."""
    return sum(
        2 if unicodedata.east_asian_width(char) in "WF" else not unicodedata.combining(char)
        for char in text
    )


def wrapped(words: Iterable[str], width: int) -> list[str]:
    """Lines of at most ``width`` columns, broken between words; longer words are cut."""
    lines = [""]
    for word in words:
        gap = " " if lines[-1] else ""
        if cells(lines[-1] + gap + word) <= width:
            lines[-1] += gap + word
            continue
        if lines[-1]:
            lines.append("")
        for char in word:
            if lines[-1] and cells(lines[-1] + char) > width:
                lines.append("")
            lines[-1] += char
    return lines


def indented(text: str, indent: int, first: str = "") -> list[str]:
    """A text wrapped to the page, ``indent`` columns in; ``first`` stands before its first line.

    A ``first`` that needs more than the indent has a line to itself.
    """
    lines = wrapped(plain(text).split(), page_width() - indent)
    if first and cells(first) >= indent:
        return [first, *(" " * indent + line for line in lines)]
    head = first + " " * (indent - cells(first))
    return [head + lines[0], *(" " * indent + line for line in lines[1:])]
