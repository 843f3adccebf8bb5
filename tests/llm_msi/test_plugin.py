"""`llm -m msi` on the real embedded model, compared with the engine asked directly."""

import asyncio
import json

import llm
import pytest

from msi_engine.events import Committed

pytestmark = pytest.mark.real_model

SKY = "Why is the sky blue?"


def user_says(text):
    return {"role": "user", "content": text}


def details(entry):
    """The details of the token usage; `llm` logs them as JSON within JSON."""
    return json.loads(entry["token_details"])


def test_the_answer_is_the_engines(msi, engine):
    answer = engine.generate([user_says(SKY)], k=2, max_tokens=10)
    assert msi(SKY, "-o", "k", "2").out == answer.text + "\n"
    assert msi(SKY, "-o", "k", "2", "--no-stream").out == answer.text + "\n"


def test_text_is_streamed_as_it_is_committed(msi, engine):
    question = [user_says("Count from one to five. Then say goodbye.")]
    committed = [
        event.text
        for event in engine.stream(question, k=2, max_tokens=48, segment_length=8)
        if isinstance(event, Committed)
    ]
    response = llm.get_model("msi").prompt(
        question[0]["content"], k=2, max_tokens=48, segment_length=8
    )
    assert list(response) == committed
    assert len(committed) > 1


def test_a_system_prompt_comes_first(msi, engine):
    system = {"role": "system", "content": "Answer with one word."}
    expected = engine.generate([system, user_says(SKY)], k=1, max_tokens=10).text
    assert msi(SKY, "-s", "Answer with one word.", "-o", "k", "1").out == expected + "\n"


def test_continue_remembers(msi, llm_cli, engine):
    first = msi("My name is Ada. Say hello.", "-o", "k", "1").out.removesuffix("\n")
    second = msi("What is my name?", "-c", "-o", "k", "1").out.removesuffix("\n")
    history = [
        user_says("My name is Ada. Say hello."),
        {"role": "assistant", "content": first},
        user_says("What is my name?"),
    ]
    assert second == engine.generate(history, k=1, max_tokens=10).text


def test_messages_are_the_history(msi, engine):
    said = [llm.user("My name is Ada."), llm.assistant("Hello Ada."), llm.user("Who am I?")]
    expected = engine.generate(
        [user_says("My name is Ada."), {"role": "assistant", "content": "Hello Ada."},
         user_says("Who am I?")],
        k=1, max_tokens=12,
    )  # fmt: skip
    response = llm.get_model("msi").prompt(messages=said, k=1, max_tokens=12)
    assert response.text() == expected.text
    reply = response.reply("And again?", k=1, max_tokens=2)
    assert reply.text()
    assert reply.usage().input > response.usage().input


def test_a_chat_reuses_what_is_in_the_cache(msi, llm_cli, logged):
    llm_cli("chat", "-m", "msi", input="My name is Ada.\nWhat is my name?\nquit\n")
    first, second = logged()
    assert (
        details(second)["reused_tokens"] > first["input_tokens"] > details(first)["reused_tokens"]
    )


def test_an_attachment_and_a_fragment_are_read(msi, engine, tmp_path):
    (tmp_path / "facts.txt").write_text("The cat is called Tom.\n")
    asked = "What is the cat called?"
    with_attachment = f'<document name="facts.txt">\nThe cat is called Tom.\n</document>\n\n{asked}'
    options = ("-o", "k", "1")
    assert msi(asked, "-a", str(tmp_path / "facts.txt"), *options).out == (
        engine.generate([user_says(with_attachment)], k=1, max_tokens=10).text + "\n"
    )
    assert msi(asked, "-f", str(tmp_path / "facts.txt"), *options).out == (
        engine.generate([user_says(f"The cat is called Tom.\n\n{asked}")], k=1, max_tokens=10).text
        + "\n"
    )


def test_usage_resolved_model_and_trace_are_logged(msi, logged, engine):
    msi(SKY, "-o", "k", "3", "-o", "seed", "0")
    (entry,) = logged()
    answer = engine.generate([user_says(SKY)], k=3, seed=0, max_tokens=10)
    assert entry["input_tokens"] == answer.stats.prompt_tokens
    assert entry["output_tokens"] == answer.stats.output_tokens
    spent = details(entry)
    assert spent["paths"] == 3
    assert spent["path_tokens"] == answer.stats.path_tokens
    assert spent["forward_passes"] == answer.stats.forward_passes
    assert spent["collapses"] == answer.stats.collapses
    assert entry["resolved_model"] == "embedded"
    trace = entry["response_json"]
    assert trace["seed"] == 0
    assert trace["finish_reason"] == "length"
    assert "".join(segment["text"] for segment in trace["segments"]) == entry["response"]


def test_stored_options_hold_beside_given_ones(msi, llm_cli, logged):
    llm_cli("models", "options", "set", "msi", "k", "2")
    msi(SKY, "-o", "max_tokens", "4")
    assert logged()[0]["response_json"]["config"] == {"k": 2, "max_tokens": 4}


def test_a_template_keeps_its_options(msi, llm_cli, logged):
    llm_cli("-m", "msi", "-s", "Be brief.", "-o", "k", "2", "-o", "stop", "###", "--save", "brief")
    llm_cli("-t", "brief", SKY)
    config = logged()[0]["response_json"]["config"]
    assert config["k"] == 2
    assert config["stop"] == ["###"]


def test_the_path_trace_is_reasoning_and_leaves_stdout_alone(msi):
    plain = msi(SKY, "-o", "k", "2")
    traced = msi(SKY, "-o", "k", "2", "-o", "trace", "1")
    assert traced.out == plain.out
    assert "[0] " in traced.err
    assert "  * " in traced.err
    assert "[0] " not in plain.err
    assert msi(SKY, "-o", "k", "2", "-o", "trace", "1", "-R").out == plain.out


def test_a_trace_in_the_history_is_not_read_by_the_model(msi, logged):
    msi(SKY, "-o", "k", "2", "-o", "trace", "1")
    msi("Say more.", "-c", "-o", "k", "1")
    msi(SKY, "-o", "k", "2")
    msi("Say more.", "-c", "-o", "k", "1")
    entries = logged()
    assert entries[1]["input_tokens"] == entries[3]["input_tokens"]


def test_an_answer_that_is_cut_off_says_so_on_stderr(msi):
    cut = msi(SKY, "-o", "max_tokens", "3")
    assert cut.err.splitlines() == [
        "The answer was cut off at max_tokens = 3; raise it with -o max_tokens 6"
    ]
    ended = msi(SKY, "-o", "stop", " ")
    assert "max_tokens" not in ended.err


def test_async_gives_the_same_and_does_not_block_the_loop(msi, engine):
    async def ask():
        turns = 0

        async def tick():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        text = await llm.get_async_model("msi").prompt(SKY, k=2, max_tokens=10).text()
        ticking.cancel()
        return text, turns

    text, turns = asyncio.run(ask())
    assert text == engine.generate([user_says(SKY)], k=2, max_tokens=10).text
    assert turns > 100


def test_async_at_the_terminal(msi):
    assert msi(SKY, "--async").out == msi(SKY).out


def test_seed_zero_is_a_seed(msi, logged):
    options = ("-o", "temperature", "1", "-o", "k", "1")
    zero = msi(SKY, *options, "-o", "seed", "0").out
    assert msi(SKY, *options, "-o", "seed", "0").out == zero
    assert [entry["response_json"]["seed"] for entry in logged()] == [0, 0]
    others = {msi(SKY, *options, "-o", "seed", str(seed)).out for seed in (1, 2)}
    assert others != {zero}
