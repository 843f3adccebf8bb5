"""Decoding by the tokenizer's own decoder over a window: Unigram, WordPiece and whatever comes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msi_engine.text.detokenizer import Detokenizer, Form

_REPLACEMENT = "\ufffd"
_KEPT = 16  # tokens of context that stay when the window is cut
_WINDOW = 48  # tokens after which it is
_LONGEST_CHARACTER = 8  # tokens after which a broken character is waited for no longer


class Window(Form):
    """Any other decoder: the new text is what a token adds to the text of the tokens before it."""

    def __init__(self, tokenizer: Any, skipped: frozenset[int]) -> None:
        super().__init__(skipped)
        self._tokenizer = tokenizer
        self._anchor = [int(t) for t in tokenizer.encode("a", add_special_tokens=False)]

    def decode(self, tokens: Sequence[int]) -> str:
        """The tokenizer's own text of ``tokens``, without those that are skipped."""
        text: str = self._tokenizer.decode(
            [t for t in tokens if t not in self.skipped],
            skip_special_tokens=False,
            clean_up_tokenization_spaces=False,
        )
        return text

    def start(self, first: bool) -> Detokenizer:
        """See `Form`; the decoder itself knows the first token, which has an empty window."""
        return _WindowDetokenizer(self)

    def begins_with_space(self, token: int) -> bool:
        """See `Form`."""
        if token in self.skipped:
            return False
        joined = self.decode([*self._anchor, token])
        return joined[len(self.decode(self._anchor)) :][:1].isspace()


class _WindowDetokenizer(Detokenizer):
    """Decodes a window of recent tokens with and without the new one."""

    def __init__(self, form: Window) -> None:
        self._form = form
        self._window: tuple[int, ...] = ()
        self._known = ""  # text of the window
        self._pending: tuple[int, ...] = ()

    @property
    def complete(self) -> bool:
        return not self._pending

    def push(self, token: int) -> str:
        if token in self._form.skipped:
            return ""
        self._pending += (token,)
        text = self._form.decode(self._window + self._pending)
        if text.endswith(_REPLACEMENT) and len(self._pending) < _LONGEST_CHARACTER:
            return ""
        return self._accept(text)

    def flush(self) -> str:
        return self._accept(self._form.decode(self._window + self._pending))

    def _accept(self, text: str) -> str:
        new = text[len(self._known) :]
        self._window += self._pending
        self._known, self._pending = text, ()
        self.text += new
        if len(self._window) > _WINDOW:
            window = self._window[-_KEPT:]
            known = self._form.decode(window)
            # A window that begins within a character reads differently: wait for a better place.
            if text.endswith(known) and _REPLACEMENT not in known:
                self._window, self._known = window, known
        return new
