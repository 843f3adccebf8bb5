"""Messages before they are rendered: checked, and in the arrangements that templates accept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msi_engine.errors import PromptError

ROLES = ("system", "user", "assistant")
_LABELS = {"user": "User", "assistant": "Assistant"}

Plain = list[dict[str, str]]


def check_text(text: str) -> str:
    """``text`` itself.

    Raises:
        PromptError: If it is not Unicode: half of a surrogate pair stands alone.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PromptError(
            f"the prompt is not valid Unicode at character {error.start}; remove the lone surrogate"
        ) from None
    return text


def check_messages(messages: Sequence[Mapping[str, str]]) -> Plain:
    """Role and content of each message; a blank answer at the end, yet to be given, is left out.

    Raises:
        PromptError: If a role is unknown, a content is missing or no text, or nothing is said.
    """
    checked = []
    for number, message in enumerate(messages, 1):
        if not isinstance(message, Mapping):
            raise PromptError(f"message {number} must have a role and a content, got {message!r}")
        role, content = message.get("role"), message.get("content")
        if role not in ROLES:
            raise PromptError(f"message {number}: role must be {', '.join(ROLES)}, got {role!r}")
        if not isinstance(content, str):
            raise PromptError(
                f"message {number} ({role}): content must be a string, got {content!r}"
            )
        checked.append({"role": role, "content": check_text(content)})
    if checked and checked[-1]["role"] == "assistant" and not checked[-1]["content"].strip():
        checked.pop()
    if not any(m["content"].strip() for m in checked if m["role"] != "system"):
        raise PromptError("the prompt is empty: no message of a user says anything")
    return checked


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
        if result and result[-1]["role"] == message["role"]:
            content = f"{result[-1]['content']}\n\n{message['content']}"
            result[-1] = {"role": message["role"], "content": content}
        else:
            result.append(message)
    return result


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
