"""The caches of LangChain: no answer to another question is replayed, and the same one is.

The model counts: it is asked or it is not. What it says does not matter here.
"""

import sqlite3

import pytest
from langchain_core.caches import BaseCache, InMemoryCache
from langchain_core.documents import Document
from langchain_core.globals import set_llm_cache
from langchain_core.load import dumps, loads
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import ConfigurableField

from langchain_msi import MSILLM, ChatMSI
from langchain_msi.run import Run
from msi_engine import Evidence
from msi_engine.testing import ToyEmbedder

pytestmark = pytest.mark.filterwarnings("ignore:The function `loads` is in beta")


class SQLiteLikeCache(BaseCache):
    """Keeps text in a database, as LangChain's SQLite, Redis and other caches do."""

    def __init__(self):
        self.db = sqlite3.connect(":memory:", check_same_thread=False)
        self.db.execute("create table answers (prompt, llm, answer, primary key (prompt, llm))")

    def lookup(self, prompt, llm_string):
        query = "select answer from answers where prompt = ? and llm = ?"
        row = self.db.execute(query, (prompt, llm_string)).fetchone()
        return loads(row[0], allowed_objects="core") if row else None

    def update(self, prompt, llm_string, return_val):
        row = (prompt, llm_string, dumps(return_val))
        self.db.execute("insert or replace into answers values (?, ?, ?)", row)

    def clear(self, **kwargs):
        self.db.execute("delete from answers")


class Calm:
    def score(self, paths):
        return [0.0 for _ in paths]


CALM, OTHER_CALM = Calm(), Calm()
EMBEDDER, OTHER_EMBEDDER = ToyEmbedder(), ToyEmbedder()
DOCUMENTS = [Document(page_content="newer and wider"), Document(page_content="the lowest")]
BASE = {
    "k": 2,
    "max_tokens": 3,
    "stop": ["#"],
    "scorers": {"calm": 1.0, "length": 1.0},
    "scorer_options": {"length": {"target": 40}},
    "custom_scorers": {"calm": CALM},
    "embedder": EMBEDDER,
    "evidence": DOCUMENTS,
}
CHANGES = {
    "k": 3,
    "temperature": 0.5,
    "seed": 1,
    "stop": ["##"],
    "max_tokens": 4,
    "scorers": {"calm": 1.0, "length": 2.0},
    "scorer_options": {"length": {"target": 41}},
    "custom_scorers": {"calm": OTHER_CALM},
    "embedder": OTHER_EMBEDDER,
    "evidence": DOCUMENTS[:1],
}
EVIDENCE = {
    "order": DOCUMENTS[::-1],
    "source": [Document(page_content="newer and wider", metadata={"source": "a"}), DOCUMENTS[1]],
    "id": [Document(page_content="newer and wider", id="1"), DOCUMENTS[1]],
    "vector": [Evidence("newer and wider", vector=(1.0, 0.0)), DOCUMENTS[1]],
    "joined": [Document(page_content="newer and widerthe lowest")],
    "none": [],
}


@pytest.fixture(params=[InMemoryCache, SQLiteLikeCache])
def asked(request, monkeypatch):
    """The fields of each call that reached the model, with a cache in force."""
    set_llm_cache(request.param())
    calls = []
    texts, atexts = Run.texts, Run.atexts

    def noted(self):
        calls.append(self)
        return texts(self)

    def anoted(self):
        calls.append(self)
        return atexts(self)

    monkeypatch.setattr(Run, "texts", noted)
    monkeypatch.setattr(Run, "atexts", anoted)
    return calls


def ways_of(kind, model, options):
    """The same options given at construction, bound, and configured."""
    fields = {name: ConfigurableField(id=f"the_{name}") for name in options}
    configured = {f"the_{name}": value for name, value in options.items()}
    start = kind(model=model)
    return {
        "constructed": kind(model=model, **options),
        "bound": start.bind(**options),
        "configured": start.configurable_fields(**fields).with_config(configurable=configured),
    }


@pytest.mark.parametrize("kind", [ChatMSI, MSILLM])
def test_the_same_request_is_answered_once_however_it_is_put(kind, tiny, asked):
    answers = [llm.invoke("new") for llm in ways_of(kind, tiny, BASE).values()]
    answers += [llm.invoke("new") for llm in ways_of(kind, tiny, BASE).values()]
    assert len(asked) == 1
    assert len({getattr(answer, "content", answer) for answer in answers}) == 1


@pytest.mark.parametrize("kind", [ChatMSI, MSILLM])
@pytest.mark.parametrize("way", ["constructed", "bound", "configured"])
@pytest.mark.parametrize("name", CHANGES)
def test_another_value_is_another_request(kind, way, name, tiny, asked):
    ways_of(kind, tiny, BASE)[way].invoke("new")
    ways_of(kind, tiny, {**BASE, name: CHANGES[name]})[way].invoke("new")
    assert len(asked) == 2
    ways_of(kind, tiny, {**BASE, name: CHANGES[name]})[way].invoke("new")
    assert len(asked) == 2


@pytest.mark.parametrize("kind", [ChatMSI, MSILLM])
@pytest.mark.parametrize("name", EVIDENCE)
def test_other_evidence_is_another_request(kind, name, tiny, asked):
    llm = kind(model=tiny, **BASE)
    llm.invoke("new")
    llm.bind(evidence=EVIDENCE[name]).invoke("new")
    assert len(asked) == 2
    llm.bind(evidence=list(EVIDENCE[name])).invoke("new")
    assert len(asked) == 2


@pytest.mark.parametrize("kind", [ChatMSI, MSILLM])
def test_another_model_is_another_request(kind, tiny, other, asked):
    llm = kind(model=tiny, max_tokens=3)
    llm.invoke("new")
    llm.invoke("new", model=other)
    kind(model=other, max_tokens=3).invoke("new")
    assert [call.fields.model for call in asked] == [tiny, other]


@pytest.mark.parametrize("kind", [ChatMSI, MSILLM])
def test_stop_strings_of_a_call_take_the_place_of_those_of_the_model(kind, tiny, asked):
    kind(model=tiny, max_tokens=3, stop=["a"]).invoke("new")
    kind(model=tiny, max_tokens=3, stop=["b"]).invoke("new")
    assert len(asked) == 2
    kind(model=tiny, max_tokens=3).invoke("new", stop=["a"])
    assert len(asked) == 2


@pytest.mark.parametrize("kind", [ChatMSI, MSILLM])
def test_a_field_that_is_assigned_counts(kind, tiny, asked):
    llm = kind(model=tiny, max_tokens=3)
    llm.invoke("new")
    llm.k = 2
    llm.invoke("new")
    assert len(asked) == 2


@pytest.mark.parametrize("kind", [ChatMSI, MSILLM])
async def test_async_calls_share_the_cache(kind, tiny, asked):
    llm = kind(model=tiny, max_tokens=3)
    first = await llm.ainvoke("new", k=2)
    assert await llm.ainvoke("new", k=3)
    assert len(asked) == 2
    again = llm.invoke("new", k=2)
    assert len(asked) == 2
    assert getattr(first, "content", first) == getattr(again, "content", again)


@pytest.mark.parametrize("kind", [ChatMSI, MSILLM])
def test_a_batch_is_looked_up_prompt_by_prompt(kind, tiny, asked):
    llm = kind(model=tiny, max_tokens=3)
    llm.invoke("new")
    llm.batch(["new", "low", "new"])
    assert len(asked) == 2


def test_raw_is_another_request(tiny, asked):
    MSILLM(model=tiny, max_tokens=3).invoke("new")
    MSILLM(model=tiny, max_tokens=3, raw=True).invoke("new")
    assert len(asked) == 2


def test_what_a_tool_brought_counts(tiny, asked):
    llm = ChatMSI(model=tiny, max_tokens=3, embedder=EMBEDDER)

    def messages(documents):
        result = ToolMessage("found", tool_call_id="1", artifact=documents)
        return [HumanMessage("new"), AIMessage("low"), result]

    llm.invoke(messages(DOCUMENTS))
    llm.invoke(messages(DOCUMENTS[:1]))
    assert len(asked) == 2
    llm.invoke(messages([d.model_copy() for d in DOCUMENTS]))
    assert len(asked) == 2
    llm.invoke(messages(DOCUMENTS), evidence_from_tools=False)
    assert len(asked) == 3


def test_what_is_in_the_key_is_no_text_of_documents(tiny):
    llm = ChatMSI(model=tiny, **BASE)
    assert "newer" not in llm._get_llm_string()
    assert "lowest" not in str(llm._get_invocation_params(evidence=DOCUMENTS[1:]))
