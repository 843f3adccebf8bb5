"""Column arithmetic of windows: which columns are visible, and where they lie in a ring buffer.

Pure integers; knows neither arrays nor layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

Span: TypeAlias = tuple[int, int]  # start (included), stop (excluded)


def columns(count: int, keep: int, dropped: int) -> tuple[Span, ...]:
    """The visible ones of ``count`` columns when ``dropped`` after the first ``keep`` are not."""
    if dropped <= 0:
        return merge(((0, count),))
    keep = min(keep, count)
    return merge(((0, keep), (min(keep + dropped, count), count)))


def ring(length: int, index: int, keep: int, rotated: bool) -> tuple[Span, ...]:
    """The spans of a ring buffer, oldest token first.

    Args:
        length: Columns that the buffer has.
        index: Where the next token would be written.
        keep: Leading columns that are never overwritten.
        rotated: True if the buffer has been written to its end, so that all of it counts.
    """
    if not rotated:
        return merge(((0, index),))
    if index == length:
        return merge(((0, length),))
    return merge(((0, keep), (index, length), (keep, index)))


def take(spans: Sequence[Span], visible: Iterable[Span]) -> tuple[Span, ...]:
    """Map ``visible`` columns, counted along ``spans``, to where they lie; omit what is beyond."""
    found = []
    for first, last in visible:
        done = 0
        for start, stop in spans:
            a, b = max(first - done, 0), min(last - done, stop - start)
            if a < b:
                found.append((start + a, start + b))
            done += stop - start
    return merge(found)


def merge(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Without empty spans, and neighbours joined."""
    out: list[Span] = []
    for start, stop in spans:
        if start >= stop:
            continue
        if out and out[-1][1] == start:
            out[-1] = (out[-1][0], stop)
        else:
            out.append((start, stop))
    return tuple(out)
