"""Tools of a chat model: how they are offered to the model, and how its calls come back.

Through the tokenizer's own template and mlx-lm's own parsers, so only for models that have both.
What has to be called is not asked for but enforced, by a constraint on the answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_core.utils.json_schema import dereference_refs

from langchain_msi.messages import content_text, role_of
from msi_engine.errors import ConfigError
from msi_engine.grammar import JsonSchema
from msi_engine.prompt import Chat
from msi_engine.toolcalls import BrokenToolCall, ForcedReader, Piece, Reader, ToolCall, ToolReader

Tool = dict[str, Any] | type | Callable[..., Any] | BaseTool
# Call options of a model that has tools.
TOOLS, CHOICE = "tools", "tool_choice"
_FREE = (None, "auto")
_ANY = ("any", "required", True)


def tool_options(tools: Sequence[Tool], choice: Any) -> dict[str, Any]:
    """The call options that ``bind_tools`` binds, plain JSON.

    Args:
        tools: Functions, Pydantic classes, LangChain's tools, or OpenAI's dictionaries.
        choice: What has to be called: None or ``auto``, the model chooses; ``any``, ``required``
            or True, some tool; the name of one, or ``{"type": "function", "function": {"name":
            ...}}``; ``none``, nothing, and the model is told of no tools.

    Raises:
        ConfigError: If a tool or the choice cannot be used.
    """
    offered = [convert_to_openai_tool(tool) for tool in tools]
    if choice == "none":
        return {}
    if not offered:
        raise ConfigError("there are no tools to bind; give at least one")
    name = _chosen(choice, [tool["function"]["name"] for tool in offered])
    return {TOOLS: offered} if name is None else {TOOLS: offered, CHOICE: name}


def _chosen(choice: Any, names: Sequence[str]) -> str | None:
    """The name of the tool that has to be called; ``any`` for some tool, None for none."""
    if choice in _FREE:
        return None
    if choice in _ANY:
        return "any"
    name = choice
    if isinstance(choice, Mapping):
        name = (choice.get("function") or choice).get("name")
    if name not in names:
        raise ConfigError(
            f"`tool_choice` must be auto, any, none or one of {', '.join(names)}, got {choice!r}"
        )
    return str(name)


@dataclass(frozen=True)
class Offer:
    """Tools that a call offers to the model.

    Attributes:
        tools: In OpenAI's form.
        choice: Which has to be called: a name, ``any``, or None where the model is free.
    """

    tools: Sequence[Mapping[str, Any]]
    choice: str | None = None

    @classmethod
    def taken_from(cls, options: dict[str, Any]) -> Offer | None:
        """The tools among a call's options, which are taken out of them; None without.

        Raises:
            ConfigError: If a tool or the choice cannot be used.
        """
        tools, choice = options.pop(TOOLS, None), options.pop(CHOICE, None)
        if not tools and choice in (*_FREE, "none"):
            return None
        bound = tool_options(tools or (), choice)
        return cls(bound[TOOLS], bound.get(CHOICE)) if bound else None

    def prompt(self, messages: Iterable[BaseMessage]) -> Chat:
        """The conversation with the tools, and with what was called and came back."""
        told = [_told(message) for message in messages]
        said = [m for m in told if m["content"] or m["role"] != "assistant" or "tool_calls" in m]
        return Chat(said, self.tools)

    def reader(self, tokenizer: Any) -> Reader:
        """What tells the calls in an answer from its text."""
        if self.choice is not None:
            return ForcedReader(tokenizer)
        return ToolReader(tokenizer, self.tools)

    @property
    def constraint(self) -> JsonSchema | None:
        """What the answer has to be; None where the model is free.

        Raises:
            ConfigError: If the parameters of a tool cannot be held to.
        """
        if self.choice is None:
            return None
        functions = [tool["function"] for tool in self.tools]
        chosen = [f for f in functions if self.choice in ("any", f["name"])]
        calls = [_call_schema(f) for f in chosen]
        return JsonSchema(calls[0] if len(calls) == 1 else {"anyOf": calls})


def _call_schema(function: Mapping[str, Any]) -> dict[str, Any]:
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    return {
        "type": "object",
        "properties": {
            "name": {"const": function["name"]},
            "arguments": dereference_refs(dict(parameters)),
        },
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _told(message: BaseMessage) -> dict[str, Any]:
    if isinstance(message, ToolMessage):
        named = {"name": message.name} if message.name else {}
        content = content_text(message.content)
        return {"role": "tool", "content": content, "tool_call_id": message.tool_call_id, **named}
    told: dict[str, Any] = {"role": role_of(message), "content": content_text(message.content)}
    if isinstance(message, AIMessage) and message.tool_calls:
        told["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["args"]},
            }
            for call in message.tool_calls
        ]
    return told


def message_of(pieces: Iterable[Piece], **values: Any) -> AIMessage:
    """The answer as a message; ``values`` are its other fields."""
    pieces = list(pieces)
    return AIMessage(
        content="".join(piece for piece in pieces if isinstance(piece, str)),
        tool_calls=[
            tool_call(name=piece.name, args=piece.arguments, id=piece.id)
            for piece in pieces
            if isinstance(piece, ToolCall)
        ],
        invalid_tool_calls=[
            invalid_tool_call(args=piece.text, id=piece.id, error=piece.reason)
            for piece in pieces
            if isinstance(piece, BrokenToolCall)
        ],
        **values,
    )


def chunk_of(piece: Piece, index: int) -> AIMessageChunk:
    """A piece as it is streamed.

    Args:
        piece: Text or call.
        index: Number of calls before it: what keeps calls apart when chunks are merged.
    """
    if isinstance(piece, str):
        return AIMessageChunk(content=piece)
    if isinstance(piece, ToolCall):
        arguments = json.dumps(piece.arguments, ensure_ascii=False)
        chunk = tool_call_chunk(name=piece.name, args=arguments, id=piece.id, index=index)
    else:
        # Begins with the mark of a call, so that it is never taken for arguments.
        chunk = tool_call_chunk(args=piece.text, id=piece.id, index=index)
    return AIMessageChunk(content="", tool_call_chunks=[chunk])
