"""`llm`'s tools: what a model is offered, and how its calls come back.

Through the tokenizer's own template and mlx-lm's own parsers, so only for models that have both.
`llm` runs the tools; here they are only told of.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import llm
from llm.parts import StreamEvent

from msi_engine.errors import ConfigError
from msi_engine.events import Committed, Event, Finished
from msi_engine.model.templates import refuse_without_tools
from msi_engine.prompt import why_no_tools
from msi_engine.toolcalls import BrokenToolCall, Piece, Reader, ToolCall

if TYPE_CHECKING:
    from llm_msi.citing import Citer
    from msi_engine import Engine

Tool = Mapping[str, Any]

STEPPED_BACK = "The answer is held to the schema, so none of the conversation's tools is called"
_INSTEAD = "for instance: llm msi pull mlx-community/Qwen3-0.6B-4bit"


def offered_tools(
    prompt: llm.Prompt, conversation: llm.Conversation | llm.AsyncConversation | None
) -> tuple[list[Tool], str | None]:
    """The tools of a prompt in OpenAI's form, and what the user should be told of that.

    Where the answer is held to a schema, the tools of a conversation step back: nobody can leave
    them out.

    Raises:
        ConfigError: If a prompt with a schema brings tools itself.
    """
    tools = [_described(tool) for tool in prompt.tools if isinstance(tool, llm.Tool)]
    if not tools or prompt.schema is None:
        return tools, None
    if conversation is not None and (conversation.tools or conversation.loaded_tools):
        return [], STEPPED_BACK
    raise ConfigError(
        "tools and a schema do not go together: an answer that is held to a schema cannot call "
        "a tool; ask with the tools, then again with the schema (llm -c --schema ...)"
    )


def _described(tool: llm.Tool) -> Tool:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = inspect.cleandoc(tool.description)
    parameters = tool.input_schema or {"type": "object", "properties": {}}
    return {"type": "function", "function": {**function, "parameters": parameters}}


def refuse_if_known(alias: str | None) -> None:
    """Refuse a model that is on this machine and cannot call tools, before it is loaded.

    Raises:
        ConfigError: If that is certain.
    """
    try:
        refuse_without_tools(alias)
    except ConfigError as error:
        raise ConfigError(f"{error}, {_INSTEAD}") from None


def refuse_if_unable(engine: Engine) -> None:
    """Refuse a model whose template or parser turns out to have no tools.

    Raises:
        ConfigError: If that is so.
    """
    if reason := why_no_tools(engine.tokenizer):
        raise ConfigError(f"model {engine.model_name!r} cannot call tools: {reason}, {_INSTEAD}")


class Calls:
    """Tells the calls in an answer from its text.

    What was to be a call and cannot be read as one stays in the answer as it was written.

    Args:
        reader: Reads the answer.
        tools: Those that the model was offered.
        citer: Puts citations into the text, or None.

    Attributes:
        made: The calls so far; `llm` goes on after an answer that has some.
        was_cut: Whether the answer was cut off within a call.
    """

    def __init__(self, reader: Reader, tools: Sequence[Tool], citer: Citer | None = None) -> None:
        self._reader = reader
        self._names = [str(tool["function"]["name"]) for tool in tools]
        self._citer = citer
        self.made: list[ToolCall] = []
        self._broken: list[BrokenToolCall] = []
        self.was_cut = False
        self._has_text = False
        self._is_apart = False  # the next text begins a line

    def take(self, event: Event) -> Iterator[str | StreamEvent]:
        """What an event adds to the answer: text as it is certain, calls when they are whole."""
        if isinstance(event, Committed):
            yield from self._shown(self._reader.push(event.text))
        elif isinstance(event, Finished):
            cut, before = event.reason != "eos", len(self._broken)
            yield from self._shown(self._reader.finish(cut=cut))
            self.was_cut = cut and len(self._broken) > before
            yield from self._said(self._sentence_end())

    def _shown(self, pieces: Iterable[Piece]) -> Iterator[str | StreamEvent]:
        for piece in pieces:
            if isinstance(piece, str):
                yield from self._said(self._citer.cite(piece) if self._citer else piece)
                continue
            yield from self._said(self._sentence_end())
            self._is_apart = True
            if isinstance(piece, ToolCall):
                self.made.append(piece)
                yield from _events(piece)
            else:
                self._broken.append(piece)
                yield from self._said(piece.text)
                self._is_apart = True

    def _sentence_end(self) -> str:
        return self._citer.end() if self._citer else ""

    def _said(self, text: str) -> Iterator[str]:
        if text:
            yield "\n" + text if self._is_apart and self._has_text else text
            self._has_text, self._is_apart = True, False

    def report(self, response: llm.Response | llm.AsyncResponse) -> None:
        """Leave the calls with the response, and those that could not be read with its JSON."""
        for call in self.made:
            response.add_tool_call(llm.ToolCall(call.name, call.arguments, call.id))
        if self._broken and response.response_json is not None:
            unread = [{"text": broken.text, "reason": broken.reason} for broken in self._broken]
            response.response_json["unread_calls"] = unread

    def notes(self) -> Iterator[str]:
        """What the user should be told, but for a call that was cut off."""
        for broken in self._broken[:-1] if self.was_cut else self._broken:
            yield f"No tool was called where the model meant to: {broken.reason}"
        for name in dict.fromkeys(call.name for call in self.made):
            if name not in self._names:
                yield (
                    f"The model called {name!r}, which is none of its tools "
                    f"({', '.join(self._names)}); llm tells it so"
                )


def _events(call: ToolCall) -> Iterator[StreamEvent]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    yield StreamEvent(type="tool_call_name", chunk=call.name, tool_call_id=call.id)
    yield StreamEvent(type="tool_call_args", chunk=arguments, tool_call_id=call.id)
