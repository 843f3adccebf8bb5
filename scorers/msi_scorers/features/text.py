"""A text taken apart once, for every feature that looks at it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

_WORD = re.compile(r"[^\W\d_]+(?:['\u2019\-][^\W\d_]+)*")
_SENTENCE_END = re.compile(r"(?<=[.!?\u2026])[\"'\u201d\u2019)\]]*\s+|\s*\n\s*")
_MID_CAPITAL = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]")


@dataclass(frozen=True)
class TakenApart:
    """A text, and its words, lines and sentences.

    Attributes:
        text: As it is.
    """

    text: str

    @cached_property
    def plain(self) -> str:
        """The text in small letters, with straight apostrophes."""
        return self.text.replace("\u2019", "'").lower()

    @cached_property
    def words(self) -> list[str]:
        """Words of letters, in small letters, with apostrophes and hyphens inside them."""
        return _WORD.findall(self.plain)

    @cached_property
    def lines(self) -> list[str]:
        """Lines that have text."""
        return [line for line in self.text.splitlines() if line.strip()]

    @cached_property
    def sentences(self) -> list[str]:
        """Sentences, and lines as if they were."""
        return [s for s in _SENTENCE_END.split(self.text) if s.strip()]

    @cached_property
    def openers(self) -> list[str]:
        """The first word of each sentence that has one, in small letters."""
        found = (_WORD.search(s) for s in self.sentences)
        return [match[0].replace("\u2019", "'").lower() for match in found if match]

    @cached_property
    def num_names(self) -> int:
        """Words with a capital that begin no sentence."""
        return len(_MID_CAPITAL.findall(self.text))
