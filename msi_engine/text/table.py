"""Decoding by a table of pieces: byte-level BPE, and SentencePiece with byte fallback."""

from __future__ import annotations

import codecs
import json
from dataclasses import dataclass
from typing import Any

from msi_engine.text.detokenizer import Detokenizer, Form

_REPLACEMENT = "\ufffd"


def _byte_level_alphabet() -> dict[str, int]:
    """The printable character that stands for each byte in byte-level vocabularies (GPT-2)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in set(printable)]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


_BYTE_OF = _byte_level_alphabet()


@dataclass(frozen=True, slots=True)
class Layout:
    """What a table needs to know of a tokenizer's decoder.

    Attributes:
        byte_level: Token strings are bytes written in the GPT-2 alphabet.
        replace: What each literal in a token string stands for (SentencePiece's "▁" is a space).
        byte_fallback: Tokens ``<0x00>`` to ``<0xFF>`` stand for single bytes.
        strip: Spaces taken off the beginning of the whole text.
    """

    byte_level: bool = False
    replace: tuple[tuple[str, str], ...] = ()
    byte_fallback: bool = False
    strip: int = 0


class Table(Form):
    """A piece of text or bytes for every token, found when it is first used."""

    def __init__(self, backend: Any, layout: Layout, skipped: frozenset[int]) -> None:
        super().__init__(skipped)
        self.layout = layout
        self.strings: dict[int, str] = dict.fromkeys(skipped, "")  # whole characters only
        self.fragments: dict[int, bytes] = {}  # bytes that are not
        self._backend = backend

    def is_whole(self, token: int) -> bool:
        """File ``token`` under `strings` (True) or `fragments` (False), if it is not yet."""
        if token not in self.strings and token not in self.fragments:
            self._load(token)
        return token in self.strings

    def _load(self, token: int) -> None:
        name = self._backend.id_to_token(token) if token >= 0 else None
        if name is None:  # ids between the tokenizer's vocabulary and the width of the logits
            self.strings[token] = ""
        elif self.layout.byte_level:
            self._load_bytes(token, name)
        elif self.layout.byte_fallback and (byte := _fallback_byte(name)) is not None:
            self.fragments[token] = byte
        else:
            for literal, text in self.layout.replace:
                name = name.replace(literal, text)
            self.strings[token] = name

    def _load_bytes(self, token: int, name: str) -> None:
        try:
            piece = bytes([_BYTE_OF[c] for c in name])
        except KeyError:  # an added token, stored as it reads
            piece = name.encode()
        try:
            self.strings[token] = piece.decode()
        except UnicodeDecodeError:
            self.fragments[token] = piece

    def start(self, first: bool) -> Detokenizer:
        """See `Form`."""
        kind = _FallbackDetokenizer if self.layout.byte_fallback else _BytesDetokenizer
        return kind(self, strip=self.layout.strip if first else 0)

    def from_whole_character(self, tokens: list[int]) -> list[int]:
        """See `Form`."""
        for index, token in enumerate(tokens):
            if self.is_whole(token) or self.fragments[token][0] & 0xC0 != 0x80:
                return tokens[index:]
        return []

    def begins_with_space(self, token: int) -> bool:
        """See `Form`."""
        if self.is_whole(token):
            return self.strings[token][:1].isspace()
        # A fragment can begin with a whole character, too.
        piece, _ = codecs.utf_8_decode(self.fragments[token], "replace", False)
        return piece[:1].isspace()


class _BytesDetokenizer(Detokenizer):
    """Joins bytes and decodes what is whole; invalid bytes become U+FFFD as the decoder does it."""

    def __init__(self, table: Table, strip: int) -> None:
        self._table = table
        self._strings = table.strings
        self._strip = strip
        self._pending = b""
        self._plain = not strip  # nothing pending: a whole piece can be appended as it is

    @property
    def complete(self) -> bool:
        return not self._pending

    def push(self, token: int) -> str:
        if self._plain:
            piece = self._strings.get(token)
            if piece is not None:
                self.text += piece
                return piece
        if token in self._table.skipped:
            return ""
        if self._table.is_whole(token):
            return self._emit(self._whole(self._strings[token]))
        return self._emit(self._part(self._table.fragments[token]))

    def flush(self) -> str:
        pending, self._pending = self._pending, b""
        return self._emit(pending.decode(errors="replace"))

    def _whole(self, piece: str) -> str:
        return self._part(piece.encode())

    def _part(self, piece: bytes) -> str:
        text, used = codecs.utf_8_decode(self._pending + piece, "replace", False)
        self._pending = (self._pending + piece)[used:]
        return text

    def _emit(self, text: str) -> str:
        while self._strip and text:
            self._strip = self._strip - 1 if text[0] == " " else 0
            if text[0] != " ":
                break
            text = text[1:]
        self._plain = not self._pending and not self._strip
        self.text += text
        return text


class _FallbackDetokenizer(_BytesDetokenizer):
    """Byte tokens form runs; a run that is no valid UTF-8 gives one U+FFFD a byte."""

    _broken = False

    def _whole(self, piece: str) -> str:
        if not piece:
            return ""
        broken, self._pending, self._broken = self._pending, b"", False
        return _REPLACEMENT * len(broken) + piece

    def _part(self, piece: bytes) -> str:
        data = self._pending + piece
        if not self._broken:
            try:
                text, used = codecs.utf_8_decode(data, "strict", False)
            except UnicodeDecodeError:
                self._broken = True
            else:
                self._pending = data[used:]
                return text
        self._pending = b""
        return _REPLACEMENT * len(data)

    def flush(self) -> str:
        pending, self._pending, self._broken = self._pending, b"", False
        return self._emit(_REPLACEMENT * len(pending))

    def _emit(self, text: str) -> str:
        text = super()._emit(text)
        self._plain = self._plain and not self._broken
        return text


def _fallback_byte(name: str) -> bytes | None:
    if len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
        try:
            return bytes([int(name[3:5], 16)])
        except ValueError:
            return None
    return None


def layout_of(backend: Any) -> Layout | None:
    """The decoder as a table's layout, or None if no table can stand for it."""
    decoder = backend.decoder
    if decoder is None:
        return None
    steps = _steps(json.loads(decoder.__getstate__()))
    kinds = [s["type"] for s in steps]
    if kinds == ["ByteLevel"]:
        return Layout(byte_level=True)
    strip = 0
    if kinds and kinds[-1] == "Strip":
        last = steps.pop()
        if last["content"] != " " or last["stop"]:
            return None
        strip = last["start"]
    replace = []
    while steps and steps[0]["type"] == "Replace" and "String" in steps[0]["pattern"]:
        step = steps.pop(0)
        replace.append((step["pattern"]["String"], step["content"]))
    if replace and [s["type"] for s in steps] == ["ByteFallback", "Fuse"]:
        return Layout(replace=tuple(replace), byte_fallback=True, strip=strip)
    return None


def _steps(decoder: dict[str, Any]) -> list[dict[str, Any]]:
    if decoder["type"] == "Sequence":
        return [step for inner in decoder["decoders"] for step in _steps(inner)]
    return [decoder]
