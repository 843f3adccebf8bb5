"""Citations: each committed sentence ends with the number of the chunk that it is closest to."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from msi_engine import Embedder, Evidence
from msi_engine.boundary import BoundaryContext, make_boundaries
from msi_engine.events import Collapsed, Committed, Event, Finished
from msi_engine.vectors import unit_vectors

# Cosine below which a chunk is not close. With all-MiniLM-L6-v2, of sentences from 60 paragraphs of
# an encyclopaedia 92 % were that near to their own paragraph, none to any of six on other things.
LEAST = 0.4
_PIECE = 800  # characters of a chunk that are embedded at once
# Segments that end before their sentence does, and may have others in them.
_GOES_ON = ("length", "majority", "vote", "choice", "rollback")


class Citer:
    """Passes an answer's text on, with ``[n]`` after each sentence that has a source.

    White space at the end is held back until something follows it, so that the number stands
    before it.

    Args:
        evidence: The chunks; their ids are the numbers.
        embedder: What embeds them and the sentences.
        least: Least cosine of a sentence with a chunk that is cited for it.
        language: Of the answer, an ISO 639 code.
    """

    def __init__(
        self,
        evidence: Sequence[Evidence],
        embedder: Embedder,
        least: float = LEAST,
        *,
        language: str = "en",
    ) -> None:
        self._evidence = evidence
        self._embedder = embedder
        self._least = least
        self._sentence = ""  # handed out or held back since the last number
        self._held = ""
        self._taken = 0  # characters of the answer that have come
        self._collapsed = ""  # all segments
        self._begin = 0  # of the sentence under way, in characters of the answer
        self._boundaries = make_boundaries(("sentence", "paragraph"), language=language)
        self._ends: list[int] = []  # of sentences, in characters of the answer

    def take(self, event: Event) -> str:
        """What is to be shown for an event; often nothing."""
        if isinstance(event, Committed):
            return self._text(event.text)
        if isinstance(event, Collapsed):
            before = len(self._collapsed)
            self._collapsed += event.text
            if event.reason not in _GOES_ON:
                self._end(len(self._collapsed))
            else:
                self._find_ends(before)
            return self._text("")
        return self.end() if isinstance(event, Finished) else ""

    def cite(self, text: str) -> str:
        """What is to be shown for text that has no events; its sentences are looked for in it."""
        before = len(self._collapsed)
        self._collapsed += text
        self._find_ends(before)
        return self._text(text)

    def end(self) -> str:
        """What is still to be shown where the text, or this part of it, is over."""
        self._begin = len(self._collapsed)
        return self._number()

    def _find_ends(self, before: int) -> None:
        """Sentences that end inside a segment which is no sentence: a window, or what was kept."""
        for place in range(max(before, self._taken), len(self._collapsed)):
            if self._collapsed[place].isspace():
                context = BoundaryContext(
                    committed=self._collapsed[: self._begin],
                    segment=self._collapsed[self._begin : place + 1],
                    num_tokens=1,
                    complete=True,
                    end_mass=lambda: 1.0,
                )
                if any(boundary.reached(context) for boundary in self._boundaries):
                    self._end(place)

    def _end(self, place: int) -> None:
        self._ends.append(place)
        self._begin = place

    def _text(self, text: str) -> str:
        shown = ""
        while self._ends and self._ends[0] <= self._taken + len(text):
            cut = self._ends.pop(0) - self._taken
            shown += self._pass(text[:cut]) + self._number()
            text = text[cut:]
        return shown + self._pass(text)

    def _pass(self, text: str) -> str:
        self._taken += len(text)
        self._sentence += text
        text = self._held + text
        end = len(text.rstrip())
        self._held = text[end:]
        return text[:end]

    def _number(self) -> str:
        """The number of the sentence that ends here, and the white space after it."""
        sentence, held = self._sentence, self._held
        self._sentence = self._held = ""
        nearest = self._nearest(sentence)
        return (f" [{nearest.id}]" if nearest is not None else "") + held

    def _nearest(self, sentence: str) -> Evidence | None:
        text = " ".join(sentence.split())
        if not any(character.isalnum() for character in text):
            return None
        vectors, owners = self._chunks
        cosines = vectors @ unit_vectors(self._embedder, [text])[0]
        best = int(cosines.argmax())
        return self._evidence[owners[best]] if cosines[best] >= self._least else None

    @cached_property
    def _chunks(self) -> tuple[np.ndarray, list[int]]:
        """Vectors of the pieces of all chunks, and which chunk each piece is of."""
        pieces = [
            (piece, index)
            for index, chunk in enumerate(self._evidence)
            for piece in textwrap.wrap(chunk.text, _PIECE)
        ]
        texts, owners = zip(*pieces, strict=True)
        return unit_vectors(self._embedder, texts), list(owners)
