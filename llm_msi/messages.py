"""From `llm`'s messages to the engine's: history, system prompts, attachments of text.

Reads ``prompt.messages`` only: it is the one place where `llm -c`, `llm chat`, `messages=` and
`response.reply()` all leave the history.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import llm
from llm.parts import AttachmentPart, Message, TextPart, ToolCallPart, ToolResultPart

ATTACHMENT_TYPES = frozenset(
    {
        "application/json",
        "application/toml",
        "application/x-yaml",
        "application/xml",
        "application/yaml",
        "text/css",
        "text/csv",
        "text/html",
        "text/javascript",
        "text/markdown",
        "text/plain",
        "text/tab-separated-values",
        "text/x-python",
        "text/xml",
        "text/yaml",
    }
)

ROLES = {"system": "system", "user": "user", "assistant": "assistant", "tool": "user"}


def chat_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The conversation as role and content; messages that say nothing are left out.

    Reasoning and tool calls stay out; what a tool returned is told as the user's text.

    Raises:
        llm.ModelError: If an attachment cannot be read, or is not text.
    """
    told = [(ROLES.get(message.role, "user"), content(message)) for message in messages]
    return [{"role": role, "content": text} for role, text in told if text]


def tool_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The conversation for a model with tools: what it called and what came back, as such.

    Reasoning, and what another model's provider has called by itself, stay out.

    Raises:
        llm.ModelError: If an attachment cannot be read, or is not text.
    """
    told: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "tool":
            told += [_result(part) for part in message.parts if isinstance(part, ToolResultPart)]
            rest = [part for part in message.parts if not isinstance(part, ToolResultPart)]
            message = Message("user", rest)
        role = ROLES.get(message.role, "user")
        turn: dict[str, Any] = {"role": role, "content": content(message)}
        calls = [
            _call(p) for p in message.parts if isinstance(p, ToolCallPart) and not p.server_executed
        ]
        if calls and role == "assistant":
            turn["tool_calls"] = calls
        if turn["content"] or "tool_calls" in turn:
            told.append(turn)
    return told


def _call(part: ToolCallPart) -> dict[str, Any]:
    called = {"name": part.name, "arguments": part.arguments}
    return {"id": part.tool_call_id, "type": "function", "function": called}


def _result(part: ToolResultPart) -> dict[str, Any]:
    documents = [document(a, number) for number, a in enumerate(part.attachments, 1)]
    told = "\n\n".join([part.output, *documents])
    return {"role": "tool", "content": told, "name": part.name, "tool_call_id": part.tool_call_id}


def content(message: Message) -> str:
    """A message's text, its attachments first, each between tags that bear its name."""
    documents: list[str] = []
    texts: list[str] = []
    for part in message.parts:
        if isinstance(part, TextPart):
            texts.append(part.text)
        elif isinstance(part, AttachmentPart) and part.attachment is not None:
            documents.append(document(part.attachment, len(documents) + 1))
        elif isinstance(part, ToolResultPart):
            texts.append(f"{part.name} returned: {part.output}\n")
    return "\n\n".join(documents + (["".join(texts)] if any(texts) else []))


def document(attachment: llm.Attachment, number: int) -> str:
    """An attachment's text between tags that bear its name.

    Raises:
        llm.ModelError: If it cannot be read, or is not UTF-8 text.
    """
    label = attachment_name(attachment, number).replace("&", "&amp;").replace('"', "&quot;")
    text = attachment_text(attachment, number)
    return f'<document name="{label}">\n{text.rstrip()}\n</document>'


def attachment_text(attachment: llm.Attachment, number: int) -> str:
    """What an attachment says.

    Raises:
        llm.ModelError: If it cannot be read, or is not UTF-8 text.
    """
    name = attachment_name(attachment, number)
    if attachment.type and attachment.type.partition(";")[0].strip() not in ATTACHMENT_TYPES:
        raise llm.ModelError(f"attachment {name!r} is {attachment.type}; msi reads text only")
    try:
        data: bytes = attachment.content_bytes() or b""
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise llm.ModelError(f"attachment {name!r} is not UTF-8 text; convert it first") from None
    except Exception as error:  # a file that has gone, or anything that a fetch can raise
        raise llm.ModelError(f"attachment {name!r} cannot be read: {error}") from error


def attachment_name(attachment: llm.Attachment, number: int) -> str:
    """The file's name, or a numbered one where there is none."""
    place = attachment.path or urlsplit(attachment.url or "").path
    return PurePosixPath(place.replace("\\", "/")).name or f"document {number}"
