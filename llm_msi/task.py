"""What one prompt of `llm` asks of the engine: made up before the first token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import llm

from llm_msi.answer import Answer
from llm_msi.grounding import ground
from llm_msi.loading import load_engine, load_target
from llm_msi.messages import chat_messages, tool_messages
from llm_msi.options import decode_config, wants_trace
from llm_msi.schema import constraint_of
from llm_msi.tools import Calls, offered_tools, refuse_if_known, refuse_if_unable
from msi_engine.prompt import Chat
from msi_engine.toolcalls import ToolReader

if TYPE_CHECKING:
    from msi_engine import DecodeConfig, Engine
    from msi_engine.prompt import Prompt

Conversation = llm.Conversation | llm.AsyncConversation | None


@dataclass(frozen=True)
class Task:
    """One generation that is ready to begin.

    Attributes:
        engine: What generates.
        prompt: What it is given.
        config: The options in force.
        signals: What else it is given, by name: evidence, embedder, constraint.
        answer: Takes its events.
    """

    engine: Engine
    prompt: Prompt
    config: DecodeConfig
    signals: dict[str, Any]
    answer: Answer


def prepare(alias: str | None, prompt: llm.Prompt, conversation: Conversation) -> Task:
    """Make up the task: all that can go wrong before the first token goes wrong here.

    Args:
        alias: Of the model; None is the default one.
        prompt: What `llm` asks.
        conversation: What it is part of.

    Raises:
        MSIError: If options, schema, tools, documents or the model cannot be used.
        llm.ModelError: If an attachment cannot be read.
    """
    config = decode_config(prompt.options)
    constraint = constraint_of(prompt)
    tools, note = offered_tools(prompt, conversation)
    if tools:
        refuse_if_known(alias)
    messages = (tool_messages if tools else chat_messages)(prompt.messages)
    given = ground(prompt, config, messages, _asked(prompt, conversation))
    engine = load_engine(alias)
    load_target(engine, given.config)
    asks: Prompt = given.messages
    calls = None
    if tools:
        refuse_if_unable(engine)
        asks = Chat(given.messages, tools)
        calls = Calls(ToolReader(engine.tokenizer, tools), tools, given.citer)
    answer = Answer(
        engine.model_name,
        given,
        constraint,
        calls=calls,
        note=note,
        show_paths=wants_trace(prompt.options),
    )
    signals = {**given.signals(), "constraint": constraint}
    return Task(engine, asks, given.config, signals, answer)


def _asked(prompt: llm.Prompt, conversation: Conversation) -> llm.Prompt:
    """The prompt that is being answered: that of an earlier response, where tools came between."""
    earlier = list(conversation.responses) if conversation is not None else []
    while earlier and prompt.tool_results and not prompt.prompt:
        prompt = earlier.pop().prompt
    return prompt
