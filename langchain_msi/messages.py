"""From LangChain's messages to the engine's: role and text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, ChatMessage, ToolMessage

from msi_engine.errors import PromptError

_ROLES = {"human": "user", "ai": "assistant", "system": "system", "developer": "system"}
_TEXT = ("text", "text-plain")
# What an answer may hold beside its text; it is not told again.
_UNTOLD = ("reasoning", "thinking", "tool_call", "tool_use", "tool_call_chunk", "invalid_tool_call")

Message = dict[str, str]


def engine_messages(messages: Iterable[BaseMessage]) -> list[Message]:
    """The conversation as role and content; answers that say nothing are left out.

    What a tool returned is told as the user's text.

    Raises:
        PromptError: If a message holds something that is not text, or has an unknown role.
    """
    told = [{"role": role_of(message), "content": text_of(message)} for message in messages]
    return [m for m in told if m["content"] or m["role"] != "assistant"]


def role_of(message: BaseMessage) -> str:
    """The engine's role of a message.

    Raises:
        PromptError: If there is none.
    """
    name = message.role if isinstance(message, ChatMessage) else message.type.removesuffix("Chunk")
    role = _ROLES.get(name.removesuffix("Message").lower(), name)
    if role in ("tool", "function"):
        return "user"
    if role not in ("system", "user", "assistant"):
        raise PromptError(f"role of a message must be system, user or assistant, got {role!r}")
    return role


def text_of(message: BaseMessage) -> str:
    """The text of a message; a tool's result with the tool's name before it.

    Raises:
        PromptError: If it holds something that is not text.
    """
    text = content_text(message.content)
    if isinstance(message, ToolMessage):
        return f"{message.name or 'The tool'} returned: {text}"
    return text


def content_text(content: str | Sequence[Any]) -> str:
    """The text of a message's content.

    Raises:
        PromptError: If it holds something that is not text.
    """
    if isinstance(content, str):
        return content
    return "".join(_block(block) for block in content)


def _block(block: Any) -> str:
    if isinstance(block, str):
        return block
    kind = block.get("type") if isinstance(block, Mapping) else type(block).__name__
    if kind in _TEXT and isinstance(block.get("text"), str):
        return str(block["text"])
    if kind in _UNTOLD:
        return ""
    raise PromptError(f"a message holds {kind!r}; msi reads text only")
