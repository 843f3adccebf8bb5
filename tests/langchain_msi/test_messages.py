"""LangChain's messages become the engine's."""

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    HumanMessage,
    SystemMessage,
)

from langchain_msi.messages import engine_messages
from msi_engine.errors import PromptError


def test_roles_and_texts():
    told = engine_messages(
        [
            SystemMessage("s"),
            HumanMessage("h", name="Ada"),
            AIMessage("a"),
            AIMessageChunk("c"),
            ChatMessage("m", role="user"),
            ChatMessage("n", role="developer"),
        ]
    )
    roles = ["system", "user", "assistant", "assistant", "user", "system"]
    assert told == [
        {"role": role, "content": text} for role, text in zip(roles, "shacmn", strict=True)
    ]


def test_blocks_of_text_are_joined_and_reasoning_is_left_out():
    message = AIMessage(
        [
            "one ",
            {"type": "text", "text": "two"},
            {"type": "reasoning", "reasoning": "secret"},
            {"type": "tool_use", "name": "f", "input": {}, "id": "1"},
        ]
    )
    assert engine_messages([message]) == [{"role": "assistant", "content": "one two"}]


def test_what_is_no_text_is_refused_by_its_kind():
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    with pytest.raises(PromptError, match="holds 'image_url'; msi reads text only"):
        engine_messages([HumanMessage(["look", image])])


def test_an_unknown_role_is_refused():
    with pytest.raises(PromptError, match="must be system, user or assistant, got 'narrator'"):
        engine_messages([ChatMessage("x", role="narrator")])
