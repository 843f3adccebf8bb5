"""Boundary `register`: where a path begins to sound different."""

from __future__ import annotations

import numpy as np

from msi_engine.boundary import BoundaryContext
from msi_scorers.gallery import Gallery, cosines, open_gallery
from msi_scorers.register import DEFAULT_FILE
from msi_scorers.words import last_words

_WORD_ENDS = 0.5  # probability of white space or the end after the token, as at a sentence's end


class RegisterBoundary:
    """Reached when the dominant register of a path's text has changed.

    The last ``span`` words of the answer are compared with the ``span`` words before them. Let a
    be the register nearest to the earlier words and b the one nearest to the later ones (by
    cosine, as in scorer `register`). The register has changed if

        a != b and cos(later, b) - cos(later, a) > threshold

    The boundary is reached at the end of a word where it has, unless it had at the end of the
    committed text: a change counts once.

    ``span`` and ``threshold`` stand in the table ``[boundary]`` of the file of registers: the one
    in MSI's folder, else the shipped one.
    """

    name = "register"

    def __init__(self, gallery: Gallery) -> None:
        self._gallery = gallery
        self._settings = gallery.file.boundary

    @classmethod
    def of(cls, language: str) -> RegisterBoundary:
        """The boundary of one generation. The shipped registers are English, whatever is asked."""
        return cls(open_gallery(None, DEFAULT_FILE))

    def reached(self, context: BoundaryContext) -> bool:
        """See `BoundaryPredicate`."""
        segment, committed = context.segment, context.committed
        if not context.complete or not segment or not self._has_changed(committed + segment):
            return False
        if self._has_changed(committed):
            return False
        return segment[-1].isspace() or context.end_mass() >= _WORD_ENDS

    def _has_changed(self, text: str) -> bool:
        span = self._settings.span
        both = last_words(text, 2 * span)
        later = last_words(both, span)
        earlier = both[: len(both) - len(later)]
        if len(earlier.split()) < span:
            return False
        likeness = cosines(self._gallery.vectors([earlier, later]), self._gallery.targets)
        before, now = np.argmax(likeness, axis=1)
        return bool(likeness[1, now] - likeness[1, before] > self._settings.threshold)
