"""Tokens to text, always from the beginning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Texts:
    """Texts of an answer to ``prompt``; ``stop`` are the strings that end it."""

    def __init__(self, vocabulary: Any, prompt: Sequence[int], stop: Sequence[str]) -> None:
        self._vocabulary, self._prompt, self._stop = vocabulary, list(prompt), stop

    def after_each(self, before: Sequence[int], tokens: Sequence[int]) -> list[str]:
        """The text of ``tokens``, which follow ``before`` in the answer, after each of them."""
        detokenizer = self._vocabulary.detokenizer([*self._prompt, *before])
        texts = []
        for token in tokens:
            detokenizer.push(token)
            texts.append(detokenizer.text)
        return texts

    def of(self, before: Sequence[int], tokens: Sequence[int]) -> str:
        return self.after_each(before, tokens)[-1] if tokens else ""

    def is_complete(self, before: Sequence[int], tokens: Sequence[int]) -> bool:
        detokenizer = self._vocabulary.detokenizer([*self._prompt, *before])
        for token in tokens:
            detokenizer.push(token)
        return bool(detokenizer.complete)

    def stop_at(self, tokens: Sequence[int]) -> int | None:
        """Where the earliest stop string begins in the text of a whole answer."""
        text = self.of([], tokens)
        return min((text.find(s) for s in self._stop if s in text), default=None)

    def cut(self, tokens: Sequence[int]) -> str:
        """The text of a whole answer up to the stop string."""
        return self.of([], tokens)[: self.stop_at(tokens)]
