"""The boundary at a newline."""

from __future__ import annotations

from msi_engine.boundary.markdown import FenceScanner
from msi_engine.boundary.predicate import BoundaryContext


class ParagraphBoundary:
    """Reached when a newline follows text, outside of fenced code.

    One newline is enough: list items, table rows, headings and lines of verse are units as
    paragraphs are. A segment of white space alone is none, so the further newlines of a
    blank line do not count again. A code block is one unit, which ends with its closing line.
    """

    name = "paragraph"

    def __init__(self) -> None:
        self._fences = FenceScanner()

    def reached(self, context: BoundaryContext) -> bool:
        """See `BoundaryPredicate`."""
        segment = context.segment
        if not context.complete or not segment or not segment[-1].isspace():
            return False
        text = segment.rstrip()
        if not text or "\n" not in segment[len(text) :]:
            return False
        return not self._fences.inside(context.committed, segment)
