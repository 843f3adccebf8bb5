"""The path trace as text: a line for a collapse, each of its paths, and each word of the target."""

from __future__ import annotations

import unicodedata

from msi_engine.events import Collapsed, Event, PathReport, RolledBack, Verified


def event_lines(event: Event) -> list[str]:
    """What the trace says of an event; nothing of most."""
    match event:
        case Collapsed():
            return collapse_lines(event)
        case Verified():
            return [verified_line(event)]
        case RolledBack():
            return [rolled_back_line(event)]
    return []


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


def verified_line(verified: Verified) -> str:
    """How much of a segment the target looked at, and how much of it stands."""
    told = checked(verified.tokens, len(verified.checked), verified.accepted)
    return f"[{verified.segment}] target: {told}"


def rolled_back_line(undone: RolledBack) -> str:
    """What the target took back, and what it put instead."""
    return f"[{undone.segment}] target: {exchange(undone.text, undone.instead)}"


def checked(tokens: int, looked_at: int, accepted: int) -> str:
    """A verdict in words.

    Args:
        tokens: Of the segment.
        looked_at: Those that the target looked at, the first that it refused included.
        accepted: Those that stand.
    """
    stand = f"the first {accepted} stand" if accepted > 1 else "the first stands"
    if accepted in (0, tokens):
        stand = "all stand" if accepted else "none stands"
    return f"{looked_at} of {count(tokens, 'token')} checked, {stand}"


def exchange(undone: str, instead: str) -> str:
    """One text for another; a stop has none, nor has part of a character."""
    gone, come = (quoted(text) if text else "(no text)" for text in (undone, instead))
    return f"{gone} taken back, {come} instead"


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
