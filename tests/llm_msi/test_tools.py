"""`llm`'s own tool calling on a tiny model that says what the test has written for it."""

from __future__ import annotations

import asyncio
import json
from importlib.metadata import version

import llm
import pytest
from llm.parts import ToolCallPart
from msi_scorers import embedders

from msi_engine import Engine
from msi_engine.model import pull
from msi_engine.testing import ToyEmbedder
from tests.model.conftest import TEMPLATE, WORDS, write_tokenizer, write_weights
from tests.model.tool_models import CALL, PYTHONIC, scripted, told_prompts, write_tool_model

FUNCTION = """
def weather(city: str, days: int = 1) -> str:
    "Tell the weather."
    return f"Rain in {city} for {days} days."
"""
RESULT = "Rain in Oslo for 2 days."
OPTIONS = {"k": 2, "max_tokens": 200, "seed": 0}


def weather(city: str, days: int = 1) -> str:
    """Tell the weather.

    Of a city.
    """
    return f"Rain in {city} for {days} days."


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return write_tool_model(tmp_path_factory.mktemp("hermes"))


@pytest.fixture
def home(user, folder, monkeypatch):
    """A store with a model that knows tools, `msi/tools`; no note has been said before."""
    import llm_msi.answer

    pull(folder, alias="tools")
    monkeypatch.setattr(llm_msi.answer, "_TOLD", set())
    return user


@pytest.fixture
def says(home, monkeypatch):
    """Make each generation of `msi/tools` say the next text and end."""
    script = scripted(monkeypatch)
    return lambda *texts: script("tools", *texts)


@pytest.fixture
def seen(monkeypatch):
    return told_prompts(monkeypatch)


@pytest.fixture
def ask(llm_cli):
    """`llm -m msi/tools` with two short paths."""
    options = [part for name, value in OPTIONS.items() for part in ("-o", name, str(value))]

    def asked(*arguments, command=(), **others):
        return llm_cli(*command, "-m", "msi/tools", *options, *arguments, **others)

    return asked


def model():
    return llm.get_model("msi/tools")


def calls(response):
    return [(made.name, made.arguments) for made in response.tool_calls()]


@pytest.mark.parametrize(
    "options",
    [{"k": 1}, {"k": 3, "scorers": "length=0.1"}, {"k": 1, "refine": "verify", "window": 4}],
)
def test_a_call_comes_back_as_a_call(says, folder, options):
    says(f"Let me look.\n{CALL}")
    if "refine" in options:
        options = {**options, "target": folder}
    response = model().prompt("How is it in Oslo?", tools=[weather], **{**OPTIONS, **options})
    assert response.text() == "Let me look."
    assert calls(response) == [("weather", {"city": "Oslo", "days": 2})]
    (made,) = response.tool_calls()
    (part,) = [p for m in response.messages() for p in m.parts if isinstance(p, ToolCallPart)]
    assert (part.name, part.arguments) == (made.name, made.arguments)
    assert part.tool_call_id == made.tool_call_id is not None
    (result,) = response.execute_tool_calls()
    assert (result.output, result.tool_call_id) == (RESULT, made.tool_call_id)
    assert response.usage().output > 0


def test_text_comes_before_the_call_and_each_call_is_one(says):
    says(f"The new low. The old.\n{CALL}\n{CALL}")
    response = model().prompt("How is it?", tools=[weather], **OPTIONS)
    events = [(event.type, event.tool_call_id) for event in response.stream_events()]
    kinds = [kind for kind, _ in events]
    assert kinds.count("text") > 1
    assert kinds[-4:] == ["tool_call_name", "tool_call_args"] * 2
    assert len(kinds) == kinds.count("text") + 4
    assert len({identity for _, identity in events[-4:]}) == 2
    assert len(response.messages()[0].parts) == 3
    assert calls(response) == [("weather", {"city": "Oslo", "days": 2})] * 2


def test_marks_that_are_special_tokens_are_seen(says, tmp_path_factory, monkeypatch):
    pull(write_tool_model(tmp_path_factory.mktemp("pythonic"), PYTHONIC), alias="special")
    scripted(monkeypatch)("special", '<|tool_call_start|>[weather(city="Oslo")]<|tool_call_end|>')
    response = llm.get_model("msi/special").prompt("How is it?", tools=[weather], **OPTIONS)
    assert calls(response) == [("weather", {"city": "Oslo"})]
    assert response.text() == ""


def test_a_chain_calls_the_tool_and_goes_on(says, seen):
    says(f"Let me look.\n{CALL}", "It rains.", "As I said.")
    conversation = model().conversation(tools=[weather])
    chain = conversation.chain("How is it in Oslo?", options=OPTIONS)
    assert chain.text() == "Let me look. It rains."
    first, second = (prompt.text for prompt in seen)
    assert "Tell the weather.\\n\\nOf a city." in first
    assert '{"name": "weather", "arguments": {"city": "Oslo", "days": 2}}' in second
    assert f"<tool_response>\n{RESULT}\n</tool_response>" in second
    assert second.startswith(first)  # so that what has been read is not read again
    assert conversation.prompt("Again?", **OPTIONS).text() == "As I said."
    assert seen[2].text.startswith(second + "It rains.")


def test_async_is_the_same(says, seen):
    says(f"Well.\n{CALL}", f"Well.\n{CALL}", "It rains.")

    async def both():
        asked = llm.get_async_model("msi/tools")
        response = await asked.prompt("How is it?", tools=[weather], **OPTIONS)
        made = await response.tool_calls()
        text = await response.text()
        chain = asked.conversation().chain("How is it?", tools=[weather], options=OPTIONS)
        return text, made, await chain.text()

    text, (made,), whole = asyncio.run(both())
    assert (text, whole) == ("Well.", "Well. It rains.")
    assert (made.name, made.arguments) == ("weather", {"city": "Oslo", "days": 2})
    assert RESULT in seen[2].text


@pytest.mark.parametrize("how", [(), ("--no-stream",), ("--async",)])
def test_the_terminal_calls_tools_and_logs_them(ask, says, logged, llm_cli, how):
    says(f"Let me look.\n{CALL}", "It rains.")
    answer = ask("--functions", FUNCTION, "--td", *how, "How is it in Oslo?")
    assert answer.out == "Let me look. It rains.\n"
    assert "Tool call: weather" in answer.err
    first, second = logged()
    (made,) = first["tool_calls"]
    assert (made["name"], made["arguments"]) == ("weather", {"city": "Oslo", "days": 2})
    (came_back,) = second["tool_results"]
    assert (came_back["output"], came_back["tool_call_id"]) == (RESULT, made["tool_call_id"])
    assert RESULT in llm_cli("logs", "-n", "0").out
    assert "How is it in Oslo?" in llm_cli("msi", "explain").out


def test_a_conversation_goes_on_after_a_call(ask, says, seen):
    says(call("llm_version"), "It is new.", "As I said.")
    assert ask("-T", "llm_version", "Which is it?").out == "It is new.\n"
    assert ask("-c", "Again?").out == "As I said.\n"
    assert f"<tool_response>\n{version('llm')}\n</tool_response>" in seen[1].text
    assert seen[2].text.startswith(seen[1].text + "It is new.")


def test_a_conversation_whose_tools_have_gone_knows_what_they_returned(ask, says, seen):
    says(CALL, "It rains.", "As I said.")
    ask("--functions", FUNCTION, "How is it?")  # `llm` does not keep functions
    assert ask("-c", "Again?").out == "As I said.\n"
    assert f"weather returned: {RESULT}" in seen[2].text


def test_a_chat_asks_before_a_call(ask, says, seen):
    says(call("llm_version"), "Then not.")
    chat = ask("-T", "llm_version", "--ta", command=("chat",), input="Which?\nn\nquit\n")
    assert "Then not." in chat.out
    assert "Cancelled: User cancelled tool call" in seen[1].text


def test_a_chain_has_an_end(ask, says):
    says(CALL)
    assert "Chain limit of 2" in ask("--functions", FUNCTION, "--cl", "2", "Hi", code=1).both


@pytest.mark.parametrize("length", [20, 28])
def test_a_call_that_was_cut_off_is_never_made(ask, says, logged, length):
    says(CALL)
    answer = ask("--functions", FUNCTION, "-o", "max_tokens", str(length), "How is it?")
    written = answer.out.removesuffix("\n")
    assert CALL.startswith(written)
    assert len(written) > len("<tool_call>")
    assert answer.err.splitlines() == [
        f"The answer was cut off at max_tokens = {length}, within the call of a tool, which was "
        f"not made; raise it with -o max_tokens {2 * length}"
    ]
    (entry,) = logged()
    assert entry["tool_calls"] == []
    assert entry["response"] == written


def test_a_call_that_ends_at_a_stop_string_is_not_made(ask, says):
    says(CALL)
    answer = ask("--functions", FUNCTION, "-o", "stop", "Oslo", "How is it?")
    assert answer.out.startswith("<tool_call>")
    assert answer.err.splitlines() == [
        "The answer ended at a stop string, within the call of a tool, which was not made; leave "
        "`stop` out"
    ]


def test_a_call_that_cannot_be_read_stays_in_the_text(ask, says, logged):
    written = "Well.\n<tool_call>weather in Oslo</tool_call>\nSo."
    says(written)
    answer = ask("--functions", FUNCTION, "How is it?")
    assert answer.out == written + "\n"
    (line,) = answer.err.splitlines()
    assert line.startswith("No tool was called where the model meant to: the call cannot be read:")
    (entry,) = logged()
    (unread,) = entry["response_json"]["unread_calls"]
    assert unread["text"] == "<tool_call>weather in Oslo</tool_call>"
    assert entry["tool_calls"] == []


def test_a_tool_that_is_not_there_is_named(ask, says, seen):
    says(call("paint", colour="red"), "Then not.")
    answer = ask("--functions", FUNCTION, "Paint!")
    assert answer.out == "Then not.\n"
    assert answer.err.splitlines() == [
        "The model called 'paint', which is none of its tools (weather); llm tells it so"
    ]
    assert 'Error: tool "paint" does not exist' in seen[1].text


def test_an_answer_without_a_call_is_as_without_tools(ask, says):
    says("The lowest < newest. \n")
    answer = ask("--functions", FUNCTION, "How is it?")
    assert (answer.out, answer.err) == ("The lowest < newest. \n\n", "")


def pull_model(folder, template):
    write_weights(folder, write_tokenizer(folder, WORDS, template), 1)
    pull(str(folder), alias="plain")


REFUSAL = "use a model that has, for instance: llm msi pull mlx-community/Qwen3-0.6B-4bit\n"


def test_a_model_without_tools_says_so_before_it_is_loaded(llm_cli, user, tmp_path, monkeypatch):
    pull_model(tmp_path, TEMPLATE)
    monkeypatch.setattr(Engine, "load", None)
    told = llm_cli("-m", "msi/plain", "-T", "llm_version", "Hi", code=1).both
    assert told == (
        f"Error: model 'plain' cannot call tools: its chat template has no tools; {REFUSAL}"
    )
    with pytest.raises(llm.ModelError, match="'plain' cannot call tools"):
        llm.get_model("msi/plain").prompt("Hi", tools=[weather]).text()


def test_a_model_whose_calls_nobody_can_read_says_so(llm_cli, user, tmp_path):
    pull_model(tmp_path, TEMPLATE + "{% if tools %}{{ tools }}{% endif %}")
    told = llm_cli("-m", "msi/plain", "-T", "llm_version", "Hi", code=1).both
    assert told.startswith("Error: model 'plain' cannot call tools: its chat template has no tools")
    assert "calls that mlx-lm cannot read" in told
    assert told.endswith(REFUSAL)


@pytest.mark.real_model
def test_the_embedded_model_says_so(msi):
    told = msi("Hi", "-T", "llm_version", code=1).both
    assert told.startswith("Error: model 'embedded' cannot call tools: ")


def test_a_schema_and_tools_do_not_go_together(home, monkeypatch):
    monkeypatch.setattr(Engine, "load", None)
    with pytest.raises(llm.ModelError, match="do not go together") as caught:
        model().prompt("Hi", tools=[weather], schema={"type": "object"}).text()
    assert "\n" not in str(caught.value)


def test_the_tools_of_a_conversation_step_back_before_a_schema(home, seen):
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    conversation = model().conversation(tools=[weather])
    response = conversation.prompt("How is it?", schema=schema, **OPTIONS)
    assert json.loads(response.text())["a"] in (True, False)
    assert response.tool_calls() == []
    assert "weather" not in seen[0].text


def test_documents_are_the_same_after_a_call(says, seen, tmp_path, monkeypatch):
    monkeypatch.setattr(embedders, "_LOADED", {"": ToyEmbedder()})
    monkeypatch.setattr(embedders, "is_installed", lambda: True)
    (docs := tmp_path / "docs").mkdir()
    (docs / "sea.txt").write_text("The tide comes from the Moon.")
    (docs / "bees.txt").write_text("Bees make honey.")
    says(f"The tide comes from the Moon.\n{CALL}", "Bees love tea. It rains.")
    chain = model().chain(
        "Whence comes the tide?",
        fragments=[llm.Fragment("Bees love tea. Bees make honey, honey, honey.", "tea.txt")],
        tools=[weather],
        options={**OPTIONS, "docs": str(docs), "chunks": 1, "cite": True},
    )
    assert chain.text() == "The tide comes from the Moon. [1] Bees love tea. [2] It rains."
    assert "[1] sea.txt" in seen[0].text  # by the question, not by what the fragment says
    assert seen[1].text.startswith(seen[0].text)
    first, second = (response.response_json["sources"] for response in chain._responses)
    assert first == second
    assert [source["source"] for source in first] == ["sea.txt", "tea.txt"]
