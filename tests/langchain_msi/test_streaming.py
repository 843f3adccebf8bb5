"""Streams, callbacks, stop strings, usage and metadata: as LangChain's users know them."""

import json

import pytest
from langchain_core.callbacks import (
    AsyncCallbackHandler,
    BaseCallbackHandler,
    get_usage_metadata_callback,
)
from langchain_core.messages import HumanMessage

from langchain_msi import MSILLM, ChatMSI
from msi_engine import DecodeConfig, Engine

BOTH = pytest.mark.parametrize("kind", [ChatMSI, MSILLM])
OPTIONS = {
    "k": 3,
    "max_tokens": 24,
    "segment_length": 6,
    "temperature": 0.9,
    "spawn_temperature": 1.0,
    "seed": 3,
}
QUESTION = [{"role": "user", "content": "new"}]


class Tokens(BaseCallbackHandler):
    def __init__(self):
        self.texts, self.chunks, self.ended, self.failed = [], [], [], []

    def on_llm_new_token(self, token, *, chunk=None, **kwargs):
        self.texts.append(token)
        self.chunks.append(chunk)

    def on_llm_end(self, response, **kwargs):
        self.ended.append(response)

    def on_llm_error(self, error, **kwargs):
        self.failed.append(error)


class AsyncTokens(AsyncCallbackHandler):
    def __init__(self):
        self.texts = []

    async def on_llm_new_token(self, token, **kwargs):
        self.texts.append(token)


def text(part):
    return getattr(part, "content", part)


@pytest.fixture
def direct(tiny):
    """What the engine itself says."""
    return Engine.load(tiny).generate(QUESTION, DecodeConfig(**OPTIONS))


@BOTH
async def test_every_way_of_asking_gives_the_engines_own_text(kind, tiny, direct):
    llm = kind(model=tiny, **OPTIONS)
    assert text(llm.invoke("new")) == direct.text
    assert text(await llm.ainvoke("new")) == direct.text
    assert "".join(text(part) for part in llm.stream("new")) == direct.text
    assert "".join([text(part) async for part in llm.astream("new")]) == direct.text
    assert [text(a) for a in llm.batch(["new", "new"])] == [direct.text] * 2
    assert [text(a) for a in await llm.abatch(["new", "new"])] == [direct.text] * 2
    assert len([part for part in llm.stream("new") if text(part)]) > 1


def test_a_chat_stream_carries_everything_once_on_its_last_chunk(tiny, direct):
    llm = ChatMSI(model=tiny, **OPTIONS)
    *parts, last = llm.stream("new")
    assert all(not p.response_metadata and p.usage_metadata is None for p in parts)
    assert [p.chunk_position for p in parts] == [None] * len(parts)
    assert (last.content, last.chunk_position) == ("", "last")
    whole = parts[0]
    for part in [*parts[1:], last]:
        whole += part
    answer = llm.invoke("new")
    assert whole.response_metadata == answer.response_metadata
    assert without_cache(whole) == without_cache(answer)


def without_cache(message):
    counts = dict(message.usage_metadata)
    counts.pop("input_token_details")
    return counts


def test_metadata_is_plain_json_and_the_engines_numbers(tiny, direct):
    options = {**OPTIONS, "scorers": {"length": 0.5}}
    message = ChatMSI(model=tiny, **options).invoke("new")
    direct = Engine.load(tiny).generate(QUESTION, DecodeConfig(**options))
    told = message.response_metadata
    assert json.loads(json.dumps(told)) == told
    assert told == {
        "model_name": tiny,
        "model_provider": "msi",
        "finish_reason": "length",
        "ended_by": "length",
        "seed": 3,
        "paths": 3,
        "path_tokens": direct.stats.path_tokens,
        "forward_passes": direct.stats.forward_passes,
        "collapses": direct.stats.collapses,
        "trajectories": direct.stats.trajectories,
        "scorers": {
            "length": {
                "weight": 0.5,
                "calls": direct.stats.scorer_calls["length"],
                "decided": direct.stats.decided["length"],
            }
        },
    }
    assert without_cache(message) == {
        "input_tokens": direct.stats.prompt_tokens,
        "output_tokens": direct.stats.output_tokens,
        "total_tokens": direct.stats.prompt_tokens + direct.stats.output_tokens,
    }


def test_a_trace_comes_when_it_is_asked_for(tiny, direct):
    message = ChatMSI(model=tiny, include_trace=True, **OPTIONS).invoke("new")
    segments = message.response_metadata["trace"]["segments"]
    assert [s["text"] for s in segments] == [c.text for c in direct.trace.collapses]
    assert json.dumps(message.response_metadata)


@BOTH
def test_stop_strings_cut_across_the_borders_of_tokens(kind, tiny):
    """Two characters, of which each is in another token."""
    llm = kind(model=tiny, k=1, max_tokens=24)
    engine = Engine.load(tiny)
    greedy = engine.generate(QUESTION, k=1, max_tokens=24)
    ends = [len(engine.tokenizer.decode(greedy.tokens[:n])) for n in range(1, 24)]
    cuts = {greedy.text[end - 1 : end + 1] for end in ends if greedy.text[:end].isprintable()}
    cuts = [c for c in cuts if len(c) == 2 and greedy.text.index(c) > 0]
    assert len(cuts) >= 3
    for cut in cuts:
        expected = greedy.text[: greedy.text.index(cut)]
        assert text(llm.invoke("new", stop=[cut])) == expected
        assert text(llm.bind(stop=[cut]).invoke("new")) == expected
        assert text(kind(model=tiny, k=1, max_tokens=24, stop=[cut]).invoke("new")) == expected
        assert "".join(text(part) for part in llm.stream("new", stop=[cut])) == expected


@BOTH
async def test_callbacks_hear_every_token_of_a_stream(kind, tiny, direct):
    llm = kind(model=tiny, **OPTIONS)
    tokens, heard = Tokens(), AsyncTokens()
    list(llm.stream("new", config={"callbacks": [tokens]}))
    [_ async for _ in llm.astream("new", config={"callbacks": [heard]})]
    assert "".join(tokens.texts) == "".join(heard.texts) == direct.text
    assert len(tokens.texts) == len(heard.texts) > 1
    assert all(chunk is not None for chunk in tokens.chunks)
    assert len(tokens.ended) == 1


async def test_a_text_model_that_is_invoked_tells_its_tokens_too(tiny, direct):
    llm = MSILLM(model=tiny, **OPTIONS)
    tokens, heard = Tokens(), AsyncTokens()
    llm.invoke("new", config={"callbacks": [tokens]})
    await llm.ainvoke("new", config={"callbacks": [heard]})
    assert "".join(tokens.texts) == "".join(heard.texts) == direct.text


def test_each_prompt_of_a_batch_tells_its_own_callbacks(tiny):
    llm = MSILLM(model=tiny, **OPTIONS)
    handlers = [Tokens(), Tokens()]
    answers = llm.batch(["new", "low"], config=[{"callbacks": [h]} for h in handlers])
    assert ["".join(h.texts) for h in handlers] == answers
    together = Tokens()
    result = llm.generate(["new", "low"], callbacks=[together])
    assert [g[0].text for g in result.generations] == answers
    assert together.texts == []  # nobody could tell whose they are


def test_invoke_streams_to_callbacks_if_it_is_told_to(tiny, direct):
    quiet, loud = Tokens(), Tokens()
    ChatMSI(model=tiny, **OPTIONS).invoke("new", config={"callbacks": [quiet]})
    ChatMSI(model=tiny, streaming=True, **OPTIONS).invoke("new", config={"callbacks": [loud]})
    assert quiet.texts == []
    assert "".join(loud.texts) == direct.text


def test_disable_streaming_is_honoured(tiny, direct):
    parts = list(ChatMSI(model=tiny, disable_streaming=True, **OPTIONS).stream("new"))
    assert [part.content for part in parts] == [direct.text]


@BOTH
async def test_events_have_the_tokens(kind, tiny, direct):
    llm = kind(model=tiny, **OPTIONS)
    events = [event async for event in llm.astream_events("new", version="v2")]
    names = {
        event["event"].removeprefix("on_chat_model").removeprefix("on_llm") for event in events
    }
    assert names == {"_start", "_stream", "_end"}
    parts = [e["data"]["chunk"] for e in events if e["event"].endswith("_stream")]
    assert "".join(getattr(p, "text", p) for p in parts) == direct.text


def test_usage_is_counted_by_langchains_own_callback(tiny, direct):
    with get_usage_metadata_callback() as counted:
        ChatMSI(model=tiny, **OPTIONS).invoke("new")
        list(ChatMSI(model=tiny, **OPTIONS).stream("new"))
    assert counted.usage_metadata[tiny]["output_tokens"] == 2 * direct.stats.output_tokens
    assert counted.usage_metadata[tiny]["input_tokens"] == 2 * direct.stats.prompt_tokens


def test_a_text_models_result_has_usage_and_info(tiny, direct):
    result = MSILLM(model=tiny, **OPTIONS).generate(["new", "new"])
    usage = {
        "input_tokens": 2 * direct.stats.prompt_tokens,
        "output_tokens": 2 * direct.stats.output_tokens,
        "total_tokens": 2 * (direct.stats.prompt_tokens + direct.stats.output_tokens),
    }
    assert result.llm_output == {"token_usage": usage, "model_name": tiny}
    info = result.generations[0][0].generation_info
    assert info["finish_reason"] == "length"
    assert info["path_tokens"] == direct.stats.path_tokens


def test_raw_text_is_gone_on_with(tiny):
    raw = Engine.load(tiny).generate("new low", k=1, max_tokens=8)
    assert MSILLM(model=tiny, raw=True, k=1, max_tokens=8).invoke("new low") == raw.text


def test_tokens_are_counted_as_the_model_reads_them(tiny):
    llm = ChatMSI(model=tiny, k=1, max_tokens=1)
    messages = [HumanMessage("new low"), HumanMessage("wide")]
    counted = llm.get_num_tokens_from_messages(messages)
    assert counted == llm.invoke(messages).usage_metadata["input_tokens"]
    assert llm.get_num_tokens("new low") == len(Engine.load(tiny).tokenizer.encode("new low"))


def test_langsmith_is_told_what_is_in_force():
    llm = ChatMSI(model="a/b", temperature=0.5, max_tokens=9, stop=["x"])
    told = llm._get_ls_params()
    assert told == {
        "ls_provider": "msi",
        "ls_model_type": "chat",
        "ls_model_name": "a/b",
        "ls_temperature": 0.5,
        "ls_max_tokens": 9,
        "ls_stop": ["x"],
    }
    changed = llm._get_ls_params(stop=["y"], model="c/d", temperature=0.1, max_tokens=3)
    assert (changed["ls_model_name"], changed["ls_temperature"]) == ("c/d", 0.1)
    assert (changed["ls_max_tokens"], changed["ls_stop"]) == (3, ["y"])
    assert MSILLM(model="a/b")._get_ls_params()["ls_model_type"] == "llm"
