"""The little of Markdown that boundaries must see: code fences."""

from __future__ import annotations

import re

_FENCE = re.compile(r"^[ \t]*(?:>[ \t]?)*[ \t]*(`{3,}|~{3,})([^\n]*)", re.MULTILINE)

Fence = tuple[str, int]


class FenceScanner:
    """Tells whether a text ends inside a fenced code block.

    The state at the end of the committed text is kept until another committed text comes: it
    is the same object for every path and step of a segment.
    """

    def __init__(self) -> None:
        self._committed = ""
        self._state: tuple[Fence | None, int] = (None, 0)

    def inside(self, committed: str, segment: str) -> bool:
        """Whether ``committed + segment`` ends within a fence, its opening line included."""
        if committed is not self._committed:
            # The last line may go on in the segment, so it is left to be read with it.
            line_start = committed.rfind("\n") + 1
            self._state = (_open_fence(committed[:line_start], None), line_start)
            self._committed = committed
        fence, line_start = self._state
        return _open_fence(committed[line_start:] + segment, fence) is not None


def _open_fence(text: str, fence: Fence | None) -> Fence | None:
    """The fence that is open after ``text``, if ``fence`` was open before it."""
    if "```" not in text and "~~~" not in text:
        return fence
    for match in _FENCE.finditer(text):
        marks, rest = match[1], match[2]
        if fence is None:
            if "`" not in rest or marks[0] == "~":  # else it is code within a line
                fence = (marks[0], len(marks))
        elif marks[0] == fence[0] and len(marks) >= fence[1] and not rest.strip():
            fence = None
    return fence
