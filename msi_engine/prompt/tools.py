"""Tools in a prompt: what a model may call, what it called, and what came back.

In OpenAI's form, which chat templates take. Knows nothing of how an answer is read; see
`msi_engine.toolcalls` for that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msi_engine.errors import ConfigError, PromptError
from msi_engine.prompt.texts import check_text, texts_in

TOOL = "tool"
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")


@dataclass(frozen=True, slots=True)
class Chat:
    """Messages for a model that may call tools.

    Attributes:
        messages: As `encode_prompt` takes them, and besides: an assistant's message may have
            ``tool_calls``, each ``{"id": ..., "type": "function", "function": {"name": ...,
            "arguments": {...}}}``, and is followed by one message of role ``tool`` for each, with
            the result as its content, ``tool_call_id`` and perhaps ``name``.
        tools: Each ``{"type": "function", "function": {"name": ..., "description": ...,
            "parameters": JSON schema}}``; at least one.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]]


def why_no_tools(tokenizer: Any) -> str | None:
    """Why a tokenizer's model cannot call tools; None if it can."""
    if getattr(tokenizer, "has_tool_calling", False):
        return None
    if not getattr(tokenizer, "has_chat_template", False):
        return "it has no chat template; use a model that has"
    return "its chat template has no tools, or calls that mlx-lm cannot read; use a model that has"


def check_tools(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tools as a template is given them.

    Raises:
        ConfigError: If there is none, or one is malformed.
    """
    if not tools:
        raise ConfigError("a chat with tools needs at least one tool; give the messages alone")
    return [_tool(tool) for tool in tools]


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping):
        raise ConfigError(f'a tool must be {{"type": "function", "function": ...}}, got {tool!r}')
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"a tool's name must be letters, digits and _ . : / - without spaces, got {name!r}"
        )
    try:
        plain: dict[str, Any] = json.loads(json.dumps(function))
        for text in texts_in(plain):
            check_text(text)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"tool {name!r} is not plain JSON: {error}") from None
    return {"type": "function", "function": plain}


def tool_fields(number: int, message: Mapping[str, Any]) -> dict[str, Any]:
    """What a message has beside role and content: calls of an assistant, or what a tool answers.

    Args:
        number: Of the message, for errors.
        message: With a role that is known.

    Raises:
        PromptError: If a call is malformed.
    """
    if message["role"] == TOOL:
        named = {key: message[key] for key in ("name", "tool_call_id") if message.get(key)}
        return _plain(number, named)
    calls = message.get("tool_calls")
    if not calls:
        return {}
    if message["role"] != "assistant":
        raise PromptError(f"message {number} ({message['role']}): only an assistant calls tools")
    return {"tool_calls": [_plain(number, _call(number, call)) for call in calls]}


def _call(number: int, call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    arguments = function.get("arguments") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not isinstance(arguments, Mapping):
        raise PromptError(
            f"message {number}: a tool call must have a function with a name and a dictionary of "
            f"arguments, got {call!r}"
        )
    identity = {"id": call["id"]} if call.get("id") else {}
    return {
        **identity,
        "type": "function",
        "function": {"name": name, "arguments": dict(arguments)},
    }


def _plain(number: int, value: dict[str, Any]) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = json.loads(json.dumps(value))
    except (TypeError, ValueError) as error:
        raise PromptError(f"message {number}: not plain JSON: {error}") from None
    for text in texts_in(plain):
        check_text(text)
    return plain


def tells_all(given: Mapping[str, Any], render: Callable[[Mapping[str, Any]], str]) -> bool:
    """Whether a template names every tool and passes on every result.

    Looked for with a word in each result's place: a template may write a result in its own way.

    Args:
        given: ``messages`` and ``tools``.
        render: The template.
    """
    words: list[str] = []

    def probed(message: Mapping[str, Any]) -> Mapping[str, Any]:
        if message["role"] != TOOL:
            return message
        words.append(f"result{len(words)}of{len(given['messages'])}")
        return {**message, "content": words[-1]}

    text = render({**given, "messages": [probed(m) for m in given["messages"]]})
    names = [tool["function"]["name"] for tool in given["tools"]]
    return all(word in text for word in (*names, *words))
