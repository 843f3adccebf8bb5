"""What `llm` has of tools, told to the engine and back; no model is loaded."""

from __future__ import annotations

import json
from types import SimpleNamespace

import llm
import pytest
from llm.parts import Message, StreamEvent, TextPart, ToolCallPart, ToolResultPart
from mlx_lm.tool_parsers import json_tools

from llm_msi.citing import Citer
from llm_msi.messages import chat_messages, tool_messages
from llm_msi.models import MSI
from llm_msi.options import Options
from llm_msi.tools import STEPPED_BACK, Calls, offered_tools
from msi_engine import Evidence
from msi_engine.errors import ConfigError
from msi_engine.events import Committed, Finished, Stats
from msi_engine.prompt.tools import check_tools
from msi_engine.testing import ToyEmbedder
from msi_engine.toolcalls import ToolReader
from tests.model.tool_models import CALL

MOON = "The tide comes from the Moon."


class Garden(llm.Toolbox):
    """Some flowers."""

    def water(self, litres: int):
        """Water them."""

    def look(self):
        return "Green."


def prompt(tools, schema=None):
    return llm.Prompt("Hi", model=MSI(), tools=tools, schema=schema, options=Options())


def test_tools_are_told_as_the_template_wants_them():
    tools, note = offered_tools(prompt([Garden(), llm.Tool("bare")]), None)
    assert note is None
    assert check_tools(tools) == tools
    functions = {tool["function"]["name"]: tool["function"] for tool in tools}
    assert set(functions) == {"Garden_water", "Garden_look", "bare"}
    assert functions["Garden_water"]["description"] == "Water them."
    assert functions["Garden_water"]["parameters"]["required"] == ["litres"]
    assert "description" not in functions["Garden_look"]
    assert functions["bare"]["parameters"] == {"type": "object", "properties": {}}


def test_a_schema_wins_over_tools_that_nobody_named():
    tools, schema = [llm.Tool("bare")], {"type": "object"}
    begun = SimpleNamespace(tools=None, loaded_tools=["bare"])
    assert offered_tools(prompt(tools, schema), begun) == ([], STEPPED_BACK)
    for conversation in (None, SimpleNamespace(tools=None, loaded_tools=None)):
        with pytest.raises(ConfigError, match="do not go together"):
            offered_tools(prompt(tools, schema), conversation)


def history(**result):
    return [
        llm.user("How is it?"),
        Message(
            "assistant",
            [
                TextPart("Let me look."),
                ToolCallPart("weather", {"city": "Oslo"}, "1"),
                ToolCallPart("search", {}, "2", server_executed=True),
                ToolCallPart("clock", {}, "3"),
            ],
        ),
        Message(
            "tool",
            [
                ToolResultPart("weather", "Rain.", "1", **result),
                ToolResultPart("clock", "", "3"),
            ],
        ),
        llm.user("So?"),
    ]


def test_calls_and_results_are_told_as_such():
    question, answer, rain, noon, last = tool_messages(history())
    assert (question["content"], last["content"]) == ("How is it?", "So?")
    assert answer["content"] == "Let me look."
    called = [(c["id"], c["function"]) for c in answer["tool_calls"]]
    assert called == [
        ("1", {"name": "weather", "arguments": {"city": "Oslo"}}),
        ("3", {"name": "clock", "arguments": {}}),
    ]
    assert rain == {"role": "tool", "name": "weather", "tool_call_id": "1", "content": "Rain."}
    assert noon == {"role": "tool", "name": "clock", "tool_call_id": "3", "content": ""}


def test_what_a_tool_attaches_is_read():
    text = llm.Attachment(type="text/plain", content=b"Wind.")
    rain = tool_messages(history(attachments=[text]))[2]
    assert rain["content"] == 'Rain.\n\n<document name="document 1">\nWind.\n</document>'
    image = llm.Attachment(type="image/png", content=b"PNG")
    with pytest.raises(llm.ModelError, match="image/png"):
        tool_messages(history(attachments=[image]))


def test_without_tools_the_conversation_is_the_same():
    plain = [llm.system("Be brief."), llm.user("Hi"), llm.assistant(""), llm.user("Ho")]
    assert tool_messages(plain) == chat_messages(plain)


def told(*texts, reason="eos", citer=None):
    tokenizer = SimpleNamespace(
        tool_parser=json_tools.parse_tool_call,
        tool_call_start=json_tools.tool_call_start,
        tool_call_end=json_tools.tool_call_end,
    )
    tools = [{"type": "function", "function": {"name": "weather"}}]
    calls = Calls(ToolReader(tokenizer, tools), tools, citer)
    events = [*map(Committed, texts), Finished(reason, Stats(), 0)]
    shown = [item for event in events for item in calls.take(event)]
    text = "".join(item for item in shown if isinstance(item, str))
    return calls, text, [item for item in shown if isinstance(item, StreamEvent)]


def test_a_call_is_told_by_name_and_arguments():
    calls, text, (name, arguments) = told("Well.\n", CALL[:9], CALL[9:], "\nSo.")
    assert text == "Well.\nSo."
    assert (name.type, name.chunk) == ("tool_call_name", "weather")
    assert json.loads(arguments.chunk) == {"city": "Oslo", "days": 2}
    assert name.tool_call_id == arguments.tool_call_id == calls.made[0].id
    assert list(calls.notes()) == []
    assert not calls.was_cut


def test_nothing_of_what_cannot_be_read_is_lost():
    written = "<tool_call>weather</tool_call>"
    for reason in ("eos", "length"):
        calls, text, events = told(
            "A.\n", written, f"\nB.\n{CALL}", f"\n{written}\nC.", reason=reason
        )
        assert text == f"A.\n{written}\nB.\n{written}\nC."
        assert len(events) == 2
        assert len(list(calls.notes())) == 2
        assert not calls.was_cut
    calls, text, events = told("A.\n", written, CALL[:-3], reason="length")
    assert text == f"A.\n{written}\n{CALL[:-3]}"
    assert events == []
    assert calls.was_cut
    assert len(list(calls.notes())) == 1  # the other has a line of its own


def test_no_citation_gets_into_a_call():
    citer = Citer([Evidence(MOON, "sea.txt", "1")], ToyEmbedder())
    call = CALL.replace("Oslo", f"{MOON} {MOON} It rains")
    calls, text, _ = told(f"{MOON} Rain. {MOON}\n", call, f"\nSo. {MOON} Rain", citer=citer)
    assert text == f"{MOON} [1] Rain. {MOON} [1]\nSo. {MOON} [1] Rain"
    assert calls.made[0].arguments["city"] == f"{MOON} {MOON} It rains"
