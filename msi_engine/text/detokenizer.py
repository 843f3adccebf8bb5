"""What every way of decoding has in common: the interface, and how a text is started."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

_CONTEXT = 16  # text tokens that decide how the next one joins; a character has at most 4 bytes


class Detokenizer(ABC):
    """The text of a growing token sequence. Made by `Vocabulary.detokenizer`.

    Attributes:
        text: Every character completed so far. Never ends in part of a character.
    """

    text: str = ""

    @property
    @abstractmethod
    def complete(self) -> bool:
        """False while the last tokens are the beginning of a character."""

    @abstractmethod
    def push(self, token: int) -> str:
        """Append a token and return the text that it completed, which may be empty."""

    @abstractmethod
    def flush(self) -> str:
        """End the sequence and return what is left, with U+FFFD for broken characters."""

    def fork(self) -> Self:
        """An independent copy; costs the same at any length of the text."""
        return copy.copy(self)  # every attribute that push changes is an immutable value


class Form(ABC):
    """One way to decode: a table of pieces, or the tokenizer's decoder over a window."""

    def __init__(self, skipped: frozenset[int]) -> None:
        self.skipped = skipped

    @abstractmethod
    def start(self, first: bool) -> Detokenizer:
        """An empty text; ``first`` if no text token comes before it."""

    @abstractmethod
    def begins_with_space(self, token: int) -> bool:
        """Whether the token's text, in the middle of a text, begins with white space."""

    def from_whole_character(self, tokens: list[int]) -> list[int]:
        """``tokens`` without those at the beginning that go on with a character before them."""
        return tokens

    def detokenizer(self, context: Sequence[int]) -> Detokenizer:
        """An empty text after ``context``, of which only the end is read."""
        tail: list[int] = []
        for token in reversed(context):
            if token not in self.skipped:
                tail.append(int(token))
                if len(tail) > _CONTEXT:
                    break
        first = len(tail) <= _CONTEXT
        tail.reverse()
        if not first:
            tail = self.from_whole_character(tail[1:])
        detokenizer = self.start(first)
        for token in tail:
            detokenizer.push(token)
        detokenizer.text = ""
        return detokenizer
