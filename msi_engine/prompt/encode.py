"""The forms that a prompt may have, and their tokens."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from msi_engine.errors import ConfigError, PromptError
from msi_engine.prompt.control import ControlGuard
from msi_engine.prompt.messages import Plain, arrangements, check_messages, plain_text
from msi_engine.prompt.texts import check_text
from msi_engine.prompt.tools import Chat, check_tools, tells_all, why_no_tools

Message = Mapping[str, Any]


@dataclass(frozen=True)
class EncodedPrompt:
    """A prompt as the model reads it.

    Attributes:
        tokens: Token ids, at least one.
        text: What they were made from, the template's text included.
    """

    tokens: tuple[int, ...]
    text: str


Prompt = str | Sequence[Message] | Sequence[int] | Chat
"""Text taken as it is, messages for the chat template, token ids, or messages with tools."""


def encode_prompt(
    tokenizer: Any,
    prompt: Prompt,
    *,
    template_options: Mapping[str, Any] | None = None,
    vocab_size: int | None = None,
) -> EncodedPrompt:
    """Encode a prompt.

    Args:
        tokenizer: mlx-lm's ``TokenizerWrapper`` or a transformers tokenizer.
        prompt: One of four forms.

            * A string is the developer's own text and taken as mlx-lm takes it: control tokens
              written in it are control tokens, a BOS is put before it unless it has one. Text
              of somebody else belongs into messages.
            * Messages, each with a ``role`` (system, user, assistant) and a ``content``, go
              through the chat template, or read as plain text where there is none. Their
              content never becomes a control token. A last message of the assistant is
              continued.
            * Token ids are taken as they are.
            * A `Chat` is messages with tools, for a model that can call them. What tools return
              and how they are described never becomes a control token, either.
        template_options: Further variables of the chat template (``enable_thinking``).
        vocab_size: Tokens that the model has embeddings of; None leaves ids unchecked.

    Raises:
        PromptError: If the prompt is empty or malformed, holds tokens that the model does not
            have, or is refused by the template.
        ConfigError: If the model cannot call tools, or a tool is malformed.
    """
    if isinstance(prompt, str):
        encoded = _encode_text(tokenizer, prompt)
    elif isinstance(prompt, Chat):
        encoded = _encode_tools(tokenizer, prompt, template_options or {})
    elif not hasattr(prompt, "__getitem__") or isinstance(prompt, (bytes, bytearray, Mapping)):
        kind = type(prompt).__name__
        raise PromptError(f"a prompt is a string, a list of messages or of token ids, got {kind}")
    elif len(prompt) == 0:
        raise PromptError("the prompt is empty; give it a text")
    elif isinstance(prompt[0], (str, Mapping)):
        encoded = _encode_messages(tokenizer, prompt, template_options or {})
    else:
        return _encode_tokens(tokenizer, cast("Sequence[int]", prompt), vocab_size)
    _check_range(encoded.tokens, vocab_size)  # some tokenizers have more tokens than the model
    return encoded


def _encode_messages(
    tokenizer: Any, prompt: Sequence[Any], template_options: Mapping[str, Any]
) -> EncodedPrompt:
    messages = check_messages(cast("Sequence[Message]", prompt))
    if not _has_template(tokenizer):
        guard = ControlGuard(tokenizer, prefix=_bos(tokenizer))
        return _encoded(*guard.encode(messages, plain_text))
    return _encode_chat(tokenizer, messages, dict(template_options))


def _encode_tools(tokenizer: Any, chat: Chat, template_options: Mapping[str, Any]) -> EncodedPrompt:
    if reason := why_no_tools(tokenizer):
        raise ConfigError(f"this model cannot call tools: {reason}")
    tools = check_tools(chat.tools)
    messages = check_messages(chat.messages, with_tools=True)
    return _encode_chat(tokenizer, messages, dict(template_options), tools)


def last_question(prompt: Prompt, text: str) -> str:
    """What the user asks: the last user message, or the whole ``text`` where there are none."""
    items = prompt.messages if isinstance(prompt, Chat) else prompt
    messages = [item for item in items if isinstance(item, Mapping)]
    asked = [str(m.get("content")) for m in messages if m.get("role") == "user"]
    return asked[-1] if asked else text


def _encode_text(tokenizer: Any, text: str) -> EncodedPrompt:
    if not text:
        raise PromptError("the prompt is empty; give it a text")
    check_text(text)
    bos = tokenizer.bos_token
    add_special_tokens = bos is None or not text.startswith(bos)
    return _encoded(tokenizer.encode(text, add_special_tokens=add_special_tokens), text)


def _encode_tokens(tokenizer: Any, tokens: Sequence[int], vocab_size: int | None) -> EncodedPrompt:
    try:
        ids = [operator.index(t) for t in tokens]
    except TypeError:
        raise PromptError("a prompt is a string, messages or token ids, not a mixture") from None
    _check_range(ids, vocab_size)  # what lies beyond would be read from foreign memory
    return _encoded(ids, tokenizer.decode(ids))


def _encode_chat(
    tokenizer: Any,
    messages: Plain,
    options: dict[str, Any],
    tools: Sequence[Mapping[str, Any]] = (),
) -> EncodedPrompt:
    guard = ControlGuard(tokenizer)
    continues = messages[-1]["role"] == "assistant"

    def render(given: Mapping[str, Any]) -> str:
        return cast(
            "str",
            tokenizer.apply_chat_template(
                given["messages"],
                **{
                    **options,
                    "tokenize": False,
                    "add_generation_prompt": not continues,
                    # Only named when wanted: templates written in Python may not know them.
                    **({"continue_final_message": True} if continues else {}),
                    **({"tools": given["tools"]} if tools else {}),
                },
            ),
        )

    system = [m["content"].strip() for m in messages if m["role"] == "system"]
    incomplete: EncodedPrompt | None = None
    failure: Exception | None = None
    for arrangement in arrangements(messages):
        given = {"messages": arrangement, "tools": tools}
        try:
            encoded = _encoded(*guard.encode(given, render))
            if tools and not tells_all(given, render):
                raise PromptError("the chat template passes over tools or what they returned")
        except PromptError:
            raise
        except Exception as error:  # a template is somebody else's program and may raise anything
            failure = failure or error
            continue
        # Some templates pass over a system message in silence.
        if all(text in encoded.text for text in system):
            return encoded
        incomplete = incomplete or encoded
    if incomplete is not None:
        return incomplete
    message = " ".join(str(failure).split())
    raise PromptError(f"the chat template refuses these messages: {message}") from failure


def _encoded(tokens: Sequence[int], text: str) -> EncodedPrompt:
    if len(tokens) == 0:
        raise PromptError("the prompt is empty: it has no tokens; give it a text")
    return EncodedPrompt(tuple(int(t) for t in tokens), text)


def _check_range(tokens: Sequence[int], vocab_size: int | None) -> None:
    if min(tokens) < 0:
        raise PromptError(f"token ids must not be negative, got {min(tokens)}")
    if vocab_size is not None and max(tokens) >= vocab_size:
        raise PromptError(
            f"token {max(tokens)} of the prompt is none of the model's; its ids go from 0 to "
            f"{vocab_size - 1}"
        )


def _has_template(tokenizer: Any) -> bool:
    has = getattr(tokenizer, "has_chat_template", None)
    return bool(has) if has is not None else tokenizer.chat_template is not None


def _bos(tokenizer: Any) -> list[int]:
    """The BOS token, if the tokenizer puts one before a text."""
    bos = tokenizer.bos_token_id
    return [bos] if bos is not None and list(tokenizer.encode("a"))[:1] == [bos] else []
