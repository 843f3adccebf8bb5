"""Keeping the text of messages apart from control tokens.

A tokenizer turns the text ``<|im_end|>`` into a control token wherever it stands, and a rendered
chat no longer tells who wrote it. So the control tokens' texts are marked within the messages
before these are rendered, with a private-use character that the messages do not contain, and the
rendered text is encoded in pieces, so that no marked text is a token. Messages without such texts
are not touched, and are encoded exactly as the tokenizer does it.

The marks may be in a template's way, or a template may lose them. Therefore the result is only
accepted if it holds the control tokens that the template writes around harmless messages, no
more and no less; else the texts are cut before the template sees them, and if that fails as
well, the prompt is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msi_engine.errors import PromptError
from msi_engine.prompt.texts import map_texts, texts_in

# A character that joins with nothing after it, put before a piece from the middle of a text:
# SentencePiece would begin the piece with a space.
_ANCHORS = ("\n", "a", "0")
_PRIVATE_USE = range(0xE000, 0xF8FF)

Render = Callable[[Any], str]
"""From what a template is given, messages and perhaps tools, to text."""


def control_token_ids(tokenizer: Any) -> frozenset[int]:
    """Tokens that text of a message must never become.

    Special tokens, and other added tokens such as ``<think>``. Not among them are added tokens of
    white space or of one character: those are ordinary text that a tokenizer keeps whole.
    """
    return frozenset(_control_texts(tokenizer).values())


def _control_texts(tokenizer: Any) -> dict[str, int]:
    return {
        token.content: int(index)
        for index, token in tokenizer.added_tokens_decoder.items()
        if token.content and (token.special or len(token.content.strip()) > 1)
    }


class ControlGuard:
    """Encodes rendered messages without letting their text become control tokens."""

    def __init__(self, tokenizer: Any, *, prefix: Sequence[int] = ()) -> None:
        """Take a tokenizer.

        Args:
            tokenizer: mlx-lm's ``TokenizerWrapper`` or a transformers tokenizer.
            prefix: Tokens before the rendered text (a BOS that no template writes).
        """
        self._tokenizer = tokenizer
        self._prefix = list(prefix)
        self._texts = _control_texts(tokenizer)
        longest_first = sorted(self._texts, key=len, reverse=True)
        self._literal = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        # A character without a token may be anybody's; only the text "<unk>" is guarded.
        unknown = getattr(tokenizer, "unk_token_id", None)
        self._counted = frozenset(self._texts.values()) - {unknown}
        self._normalized = _matches_normalized(tokenizer, self._texts)

    def encode(self, given: Any, render: Render) -> tuple[list[int], str]:
        """Tokens and text of ``render(given)``.

        Args:
            given: Messages, or a dictionary of messages and tools; see `texts`.
            render: Lays it out.

        Raises:
            PromptError: If a template makes it impossible to keep the texts apart.
        """
        spans = {text: self._spans(text) for text in texts_in(given)}
        if not any(spans.values()):
            text = render(given)
            return self._pieces([text]), text
        mark, harmless = self._marks(spans)
        found = {text[a:b] for text, ab in spans.items() for a, b in ab}

        def replaced(replace: Callable[[str], str]) -> str:
            return render(map_texts(given, lambda text: _replace(text, spans[text], replace)))

        allowed = self._count(self._pieces([replaced(lambda _: harmless)]))
        # Whole behind a mark, so that the template can still find it; else cut.
        for text, whole in (
            (replaced(lambda s: f"{mark}{s}"), found),
            (replaced(lambda s: f"{mark}{mark.join(self._cut(s))}{mark}"), set[str]()),
        ):
            tokens = self._pieces(self._split(text, mark, whole))
            if self._count(tokens) == allowed:
                return tokens, text.replace(mark, "")
        names = ", ".join(sorted(found))
        raise PromptError(
            f"the chat template does not keep {names} in a message apart from its own control "
            "tokens; remove it from the message"
        )

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Where ``text`` reads as control tokens, in order and without overlaps."""
        spans = [m.span() for m in self._literal.finditer(text)]
        if self._normalized:
            # Written otherwise, but the same to the tokenizer: "<THINK>" where it lowers case.
            encoding = self._tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
            for token, (a, b) in zip(encoding.ids, encoding.offsets, strict=True):
                if token in self._counted and all(b <= c or d <= a for c, d in spans):
                    spans.append((a, b))
        return sorted(spans)

    def _marks(self, texts: Iterable[str]) -> list[str]:
        """Two characters that neither the texts nor the vocabulary use."""
        used = set().union(*texts, *self._texts)
        free = [c for c in map(chr, _PRIVATE_USE) if c not in used][:2]
        if len(free) < 2:
            raise PromptError(
                "the prompt uses every private-use character (U+E000 to U+F8FE), so none is left "
                "to mark its control tokens with; remove some"
            )
        return free

    def _cut(self, text: str) -> list[str]:
        """``text`` in two parts that hold no control text, or in single characters."""
        for index in range(1, len(text)):
            parts = [text[:index], text[index:]]
            if not any(map(self._spans, parts)):
                return parts
        return list(text)

    def _split(self, text: str, mark: str, whole: set[str]) -> Iterator[str]:
        """The parts of rendered ``text`` that are encoded one by one.

        A mark that stands alone divides; one before a text of ``whole`` says to cut that, too.
        """
        marked = "|".join(map(re.escape, sorted(whole, key=len, reverse=True)))
        for index, part in enumerate(re.split(f"{mark}(?:({marked})|)", text)):
            if part:
                yield from self._cut(part) if index % 2 else [part]

    def _pieces(self, parts: Iterator[str] | Sequence[str]) -> list[int]:
        tokens = list(self._prefix)
        for index, part in enumerate(parts):
            tokens += self._encode(part) if index == 0 else self._encode_inner(part)
        return tokens

    def _encode(self, text: str) -> list[int]:
        return [int(t) for t in self._tokenizer.encode(text, add_special_tokens=False)]

    def _encode_inner(self, text: str) -> list[int]:
        for anchor in _ANCHORS:
            before, tokens = self._encode(anchor), self._encode(anchor + text)
            if tokens[: len(before)] == before:
                return tokens[len(before) :]
        return self._encode(text)

    def _count(self, tokens: Sequence[int]) -> Counter[int]:
        return Counter(t for t in tokens if t in self._counted)


def _matches_normalized(tokenizer: Any, texts: dict[str, int]) -> bool:
    """Whether control tokens are also found in text that only normalises to theirs."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or backend.normalizer is None:
        return False
    return any(t.normalized for t in tokenizer.added_tokens_decoder.values() if t.content in texts)


def _replace(text: str, spans: list[tuple[int, int]], replace: Callable[[str], str]) -> str:
    result, position = [], 0
    for a, b in spans:
        result += [text[position:a], replace(text[a:b])]
        position = b
    return "".join([*result, text[position:]])
