"""Tool calls in an answer: told apart from its text while it is written.

Knows the marks of a model's tool calls and mlx-lm's parser for what stands between them; nothing
of prompts, and nothing of how a tool is run.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model makes.

    Attributes:
        id: The model's own if it gives one, for its template writes it again; else nine letters
            and digits, which is what the strictest templates take.
        name: Of the tool; not necessarily one that there is.
        arguments: Plain JSON.
    """

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BrokenToolCall:
    """What was to be a call, and cannot be read as one.

    Attributes:
        id: Nine letters and digits.
        text: What the model wrote, marks included.
        reason: What is wrong with it, in one line.
    """

    id: str
    text: str
    reason: str


Piece = str | ToolCall | BrokenToolCall

_CUT = "the call cannot be read: the answer was cut off within it; raise max_tokens"


class Reader(Protocol):
    """Reads one answer, piece by piece."""

    def push(self, text: str) -> Iterable[Piece]:
        """Take more of the answer, and tell what is certain."""
        ...

    def finish(self, *, cut: bool = False) -> Iterable[Piece]:
        """The answer is over: tell the rest.

        Args:
            cut: It ended before the model was ready, at the token budget or a stop string.
        """
        ...


class TextReader:
    """A `Reader` of answers without calls."""

    def push(self, text: str) -> list[Piece]:
        """The text itself."""
        return [text]

    def finish(self, *, cut: bool = False) -> list[Piece]:
        """Nothing."""
        return []


class ForcedReader:
    """A `Reader` of answers that are nothing but a call, as JSON and without marks.

    That is what a constraint makes of an answer that has to be a call.

    Args:
        tokenizer: mlx-lm's ``TokenizerWrapper``.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._start: str = tokenizer.tool_call_start or ""
        self._text = ""

    def push(self, text: str) -> list[Piece]:
        """Nothing: a call is told when it is whole."""
        self._text += text
        return []

    def finish(self, *, cut: bool = False) -> list[Piece]:
        """The call."""
        try:
            return [_call(json.loads(self._text))]
        except ValueError as error:
            reason = _CUT if cut else f"the call cannot be read: {error}"
            return [BrokenToolCall(_new_id(), f"{self._start}{self._text}", reason)]


class ToolReader:
    """A `Reader` of answers in which the model is free to call tools.

    Text goes through at once, except for what may be the beginning of a mark, and white space,
    which is kept back until it is clear that it does not merely surround a call. What a model
    thinks aloud is text: no call is looked for in it.

    Args:
        tokenizer: mlx-lm's ``TokenizerWrapper`` with ``has_tool_calling``.
        tools: Those of the prompt, in OpenAI's form; some parsers look up types in them.
    """

    def __init__(self, tokenizer: Any, tools: Sequence[Mapping[str, Any]]) -> None:
        self._parse = tokenizer.tool_parser
        self._tools = list(tools)
        self._start: str = tokenizer.tool_call_start.strip()
        self._end: str = tokenizer.tool_call_end.strip()  # empty: a call goes on to the end
        self._thoughts: dict[str, str] = {}
        if getattr(tokenizer, "has_thinking", False):
            self._thoughts[tokenizer.think_start] = tokenizer.think_end
        self._read = self._read_text
        self._text = ""  # not yet told
        self._thought_end = ""
        self._after_call = False

    def push(self, text: str) -> Iterator[Piece]:
        """Take more of the answer, and tell what is certain."""
        self._text += text
        while (pieces := self._read()) is not None:
            yield from filter(None, pieces)

    def finish(self, *, cut: bool = False) -> Iterator[Piece]:
        """The answer is over: tell the rest.

        Args:
            cut: It ended before the model was ready, at the token budget or a stop string.
        """
        rest, self._text = self._text, ""
        if self._read != self._read_call:
            yield from filter(None, [rest.lstrip() if self._after_call else rest])
        elif cut:
            yield self._broken(rest, _CUT)
        else:
            yield from self._calls(rest)

    # Each reads on from the beginning of the text and returns pieces, or None for want of text.

    def _read_text(self) -> list[Piece] | None:
        if self._after_call:
            self._text = self._text.lstrip()
            self._after_call = not self._text
        found = _first(self._text, (self._start, *self._thoughts))
        if found is None:
            return self._told(self._text, (self._start, *self._thoughts), with_space=True)
        position, mark = found
        before, self._text = self._text[:position], self._text[position + len(mark) :]
        if mark == self._start:
            self._read = self._read_call
            return [before.rstrip()]
        self._read, self._thought_end = self._read_thought, self._thoughts[mark]
        return [before + mark]

    def _read_thought(self) -> list[Piece] | None:
        found = _first(self._text, (self._thought_end,))
        if found is None:
            return self._told(self._text, (self._thought_end,))
        self._read = self._read_text
        end = found[0] + len(self._thought_end)
        thought, self._text = self._text[:end], self._text[end:]
        return [thought]

    def _read_call(self) -> list[Piece] | None:
        if not self._end or self._end not in self._text:
            return None
        call, _, self._text = self._text.partition(self._end)
        self._read, self._after_call = self._read_text, True
        return self._calls(call)

    def _told(
        self, text: str, marks: Sequence[str], *, with_space: bool = False
    ) -> list[Piece] | None:
        """Text up to what may be the beginning of a mark, with the white space before that."""
        kept = max(_overlap(text, mark) for mark in marks)
        certain = text[: len(text) - kept]
        if with_space:
            certain = certain.rstrip()
        self._text = text[len(certain) :]
        return [certain] if certain else None

    def _calls(self, text: str) -> list[Piece]:
        try:
            parsed = self._parse(text, self._tools)
            calls = parsed if isinstance(parsed, list) and parsed else [parsed]
            return [_call(call) for call in calls]
        except Exception as error:  # mlx-lm's parsers raise whatever their formats make them
            reason = " ".join(str(error).split()) or type(error).__name__
            return [self._broken(text, f"the call cannot be read: {reason}")]

    def _broken(self, text: str, reason: str) -> BrokenToolCall:
        end = self._end if self._read != self._read_call else ""
        return BrokenToolCall(_new_id(), f"{self._start}{text}{end}", reason)


def _first(text: str, marks: Sequence[str]) -> tuple[int, str] | None:
    """Position and mark of the first of ``marks`` in ``text``; of two at one place the longer."""
    found = [(text.find(mark), -len(mark), mark) for mark in marks if mark in text]
    return (min(found)[0], min(found)[2]) if found else None


def _overlap(text: str, mark: str) -> int:
    """How many characters at the end of ``text`` may be the beginning of ``mark``."""
    longest = min(len(text), len(mark) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(mark[:n])), 0)


def _call(parsed: Any) -> ToolCall:
    name = parsed.get("name") if isinstance(parsed, dict) else None
    if not isinstance(name, str) or not name.strip():
        raise ValueError("it names no tool")
    arguments = parsed.get("arguments", parsed.get("parameters"))
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise ValueError(f"its arguments are no object: {arguments!r}")
    own = parsed.get("id")
    identity = own if isinstance(own, str) and own else _new_id()
    return ToolCall(identity, name.strip(), json.loads(json.dumps(arguments)))


def _new_id() -> str:
    return uuid.uuid4().hex[:9]
