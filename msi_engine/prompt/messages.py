"""Messages before they are rendered: checked, and in the arrangements that templates accept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msi_engine.errors import PromptError
from msi_engine.prompt.texts import check_text
from msi_engine.prompt.tools import TOOL, tool_fields

ROLES = ("system", "user", "assistant")
_LABELS = {"user": "User", "assistant": "Assistant"}

Plain = list[dict[str, Any]]


def check_messages(messages: Sequence[Mapping[str, Any]], *, with_tools: bool = False) -> Plain:
    """Role and content of each message; a blank answer at the end, yet to be given, is left out.

    Args:
        messages: See `encode_prompt`.
        with_tools: Calls of tools and their results may be among them, see `Chat`.

    Raises:
        PromptError: If a role is unknown, a content is missing or no text, or nothing is said.
    """
    roles = (*ROLES, TOOL) if with_tools else ROLES
    checked = []
    for number, message in enumerate(messages, 1):
        checked.append(_checked(number, message, roles))
        if with_tools:
            checked[-1] |= tool_fields(number, message)
    if checked and _is_blank_answer(checked[-1]):
        checked.pop()
    if not any(m["content"].strip() for m in checked if m["role"] != "system"):
        raise PromptError("the prompt is empty: no message of a user says anything")
    if "tool_calls" in checked[-1]:
        raise PromptError("the last message calls tools; their results have to follow it")
    return checked


def _checked(number: int, message: Mapping[str, Any], roles: Sequence[str]) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise PromptError(f"message {number} must have a role and a content, got {message!r}")
    role, content = message.get("role"), message.get("content")
    if role not in roles:
        raise PromptError(f"message {number}: role must be {', '.join(roles)}, got {role!r}")
    if not isinstance(content, str):
        raise PromptError(f"message {number} ({role}): content must be a string, got {content!r}")
    return {"role": role, "content": check_text(content)}


def _is_blank_answer(message: Mapping[str, Any]) -> bool:
    silent = message["role"] == "assistant" and not message["content"].strip()
    return silent and "tool_calls" not in message


def arrangements(messages: Plain) -> Iterator[Plain]:
    """The messages as they are, then as stricter templates want them.

    First the neighbours of one role are joined by a blank line, then the system message becomes
    the beginning of the first user message.
    """
    seen = []
    for arrangement in (messages, _joined(messages), _joined(_without_system(messages))):
        if arrangement not in seen:
            seen.append(arrangement)
            yield arrangement


def _joined(messages: Plain) -> Plain:
    result: Plain = []
    for message in messages:
        neighbours = (result[-1], message) if result else ()
        if neighbours and _is_joinable(*neighbours):
            content = f"{result[-1]['content']}\n\n{message['content']}"
            result[-1] = {"role": message["role"], "content": content}
        else:
            result.append(message)
    return result


def _is_joinable(message: Mapping[str, Any], following: Mapping[str, Any]) -> bool:
    """Whether two neighbours are of one role and nothing but text; each tool has its own result."""
    plain = message.keys() == following.keys() == {"role", "content"}
    return plain and message["role"] == following["role"] != TOOL


def _without_system(messages: Plain) -> Plain:
    system = [m["content"] for m in messages if m["role"] == "system"]
    rest = [m for m in messages if m["role"] != "system"]
    if not system:
        return rest
    first = next((i for i, m in enumerate(rest) if m["role"] == "user"), None)
    if first is None:
        return [{"role": "user", "content": "\n\n".join(system)}, *rest]
    content = "\n\n".join([*system, rest[first]["content"]])
    return [*rest[:first], {"role": "user", "content": content}, *rest[first + 1 :]]


def plain_text(messages: Plain) -> str:
    """The form for tokenizers without a chat template.

    Contents joined by blank lines. With more than one turn, those of users and assistants carry
    the labels ``User:`` and ``Assistant:``, and the text ends where the answer goes on.
    """
    turns = sum(m["role"] != "system" for m in messages)
    parts = []
    for message in messages:
        label = _LABELS.get(message["role"]) if turns > 1 else None
        parts.append(f"{label}: {message['content']}" if label else message["content"])
    if turns > 1 and messages[-1]["role"] != "assistant":
        parts.append("Assistant:")
    return "\n\n".join(parts)
