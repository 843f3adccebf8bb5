"""Documents reach the scorers: bound inside a chain, as artifacts of tools, and by `grounded`."""

import warnings

import msi_scorers.embedders
import pytest
from langchain_core.documents import Document
from langchain_core.exceptions import ModelInvalidRequestError
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tools import create_retriever_tool
from langchain_core.vectorstores import InMemoryVectorStore

from langchain_msi import MSILLM, ChatMSI, grounded
from msi_engine.errors import ConfigError, ScorerError
from msi_engine.testing import ToyEmbedder
from tests.langchain_msi.toys import ToyEmbeddings

TEXTS = ["newer and wider", "the lowest of the low", "to a new wide low"]
BOTH = pytest.mark.parametrize("kind", [ChatMSI, MSILLM])


class Seeing:
    """A scorer that notes the evidence of each generation."""

    def __init__(self):
        self.seen = []

    def make(self, context):
        self.seen.append([passage.text for passage in context.evidence])
        return self

    def score(self, paths):
        return [0.0 for _ in paths]


@pytest.fixture
def seeing():
    return Seeing()


@pytest.fixture
def make(tiny, seeing):
    """Makes a model whose scorer notes the evidence."""

    def made(kind, **options):
        return kind(
            model=tiny,
            k=2,
            max_tokens=3,
            scorers={"seeing": 1.0},
            custom_scorers={"seeing": seeing.make},
            **options,
        )

    return made


@pytest.fixture
def retriever():
    store = InMemoryVectorStore.from_texts(TEXTS, ToyEmbeddings())
    return store.as_retriever(search_kwargs={"k": 1})


QUESTIONS = {"lowest of": [TEXTS[1]], "newer": [TEXTS[0]]}


@BOTH
@pytest.mark.parametrize("prompt", [PromptTemplate, ChatPromptTemplate])
async def test_evidence_that_is_bound_inside_a_chain(kind, prompt, make, retriever, seeing):
    llm = make(kind)
    template = prompt.from_template("{question}")
    chain = {
        "question": RunnablePassthrough(),
        "context": retriever,
    } | RunnableLambda(lambda d: template | llm.bind(evidence=d["context"]))
    await every_way(chain, seeing)


@BOTH
@pytest.mark.parametrize("prompt", [PromptTemplate, ChatPromptTemplate])
async def test_grounded_is_the_same(kind, prompt, make, retriever, seeing):
    template = prompt.from_template("{question}")
    chain = {"question": RunnablePassthrough(), "context": retriever} | grounded(
        template, make(kind)
    )
    await every_way(chain, seeing)


async def every_way(chain, seeing):
    """Every way of calling a chain, each with the evidence of its own question."""
    questions, expected = list(QUESTIONS), list(QUESTIONS.values())
    whole = chain | StrOutputParser()
    text = whole.invoke(questions[0])
    assert text == await whole.ainvoke(questions[0])
    assert text == "".join(whole.stream(questions[0]))
    assert text == "".join([part async for part in whole.astream(questions[0])])
    events = [event async for event in whole.astream_events(questions[0], version="v2")]
    assert seeing.seen == expected[:1] * 5
    parts = [e["data"]["chunk"] for e in events if e["event"].endswith("_model_stream")]
    parts += [e["data"]["chunk"] for e in events if e["event"] == "on_llm_stream"]
    assert "".join(getattr(part, "text", part) for part in parts) == text
    seeing.seen.clear()
    whole.batch(questions)
    await whole.abatch(questions)
    assert sorted(seeing.seen) == sorted(expected * 2)


def test_grounded_fills_the_prompt_with_the_texts(make, seeing):
    template = ChatPromptTemplate.from_template("{context}\n\n{question}")
    documents = [Document(page_content=text) for text in TEXTS[:2]]
    told = []
    shown = template | RunnableLambda(lambda prompt: told.append(prompt.to_string()) or prompt)
    chain = grounded(shown, make(ChatMSI), documents_key="context")
    chain.invoke({"context": documents, "question": "new"})
    assert told == [f"Human: {TEXTS[0]}\n\n{TEXTS[1]}\n\nnew"]
    assert seeing.seen == [TEXTS[:2]]


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (
            {"question": "new", 2: "low"},
            "grounded needs 'docs' in its input, which has 'question', 2",
        ),
        ({}, "grounded needs 'docs' in its input, which has nothing"),
        ("are there any docs?", "grounded takes a dictionary, got str"),
        ({"docs": 7}, "evidence must be a sequence of texts or documents, got 7"),
    ],
)
async def test_grounded_says_what_is_missing(inputs, said, make):
    chain = grounded(ChatPromptTemplate.from_template("{question}"), make(ChatMSI), "docs")
    for kind in (ConfigError, ModelInvalidRequestError, ValueError):
        with pytest.raises(kind) as caught:
            chain.invoke(inputs)
        assert str(caught.value) == said
    with pytest.raises(ConfigError):
        await chain.ainvoke(inputs)


def test_the_artifacts_of_a_retriever_tool(make, retriever, seeing):
    tool = create_retriever_tool(
        retriever, "search", "Search.", response_format="content_and_artifact"
    )
    call = {"name": "search", "args": {"query": "newer"}, "id": "1", "type": "tool_call"}
    result = tool.invoke(call)
    assert isinstance(result.artifact[0], Document)
    messages = [HumanMessage("wide"), AIMessage("", tool_calls=[call]), result]
    make(ChatMSI).invoke(messages)
    assert seeing.seen == [[TEXTS[0]]]


def results(*artifacts):
    return [ToolMessage("x", tool_call_id="1", artifact=artifact) for artifact in artifacts]


def test_only_what_tools_brought_for_the_last_question_counts(make, seeing):
    old, new = (Document(page_content=text) for text in TEXTS[:2])
    before = [HumanMessage("low"), *results([old]), AIMessage("a")]
    make(ChatMSI).invoke([*before, HumanMessage("new"), *results([new], {"rows": 3}, "x", new)])
    assert seeing.seen == [[TEXTS[1], TEXTS[1]]]


def test_evidence_that_is_given_wins_over_what_tools_brought(make, seeing):
    messages = [HumanMessage("low"), *results([Document(page_content=TEXTS[0])])]
    make(ChatMSI).bind(evidence=[TEXTS[1]]).invoke(messages)
    make(ChatMSI).bind(evidence=[]).invoke(messages)
    make(ChatMSI, evidence_from_tools=False).invoke(messages)
    make(ChatMSI, evidence=TEXTS[2]).invoke(messages)
    assert seeing.seen == [[TEXTS[1]], [], [], [TEXTS[2]]]


def test_a_scorer_object_is_used_as_it_is(tiny):
    class Last:
        calls = 0

        def score(self, paths):
            self.calls += 1
            return [float(path.index) for path in paths]

    last = Last()
    options = {"model": tiny, "k": 3, "max_tokens": 4, "spawn_min_p": 0, "dedup_tokens": 0}
    message = ChatMSI(
        **options, scorers={"last": 50}, custom_scorers={"last": last}, include_trace=True
    ).invoke("new")
    assert {s["winner"] for s in message.response_metadata["trace"]["segments"]} == {2}
    assert message.response_metadata["scorers"]["last"]["calls"] == last.calls > 0


@BOTH
def test_with_evidence_and_no_scorers_named_rag_chooses(kind, tiny):
    llm = kind(model=tiny, k=2, max_tokens=3, embedder=ToyEmbedder())
    assert scorers_of(llm, evidence=TEXTS) == {"rag": 10.0}
    assert scorers_of(llm) == {}
    assert scorers_of(llm, evidence=TEXTS, scorers={"length": 1}) == {"length": 1.0}
    assert scorers_of(llm, evidence=TEXTS, k=1) == {}
    assert scorers_of(llm, evidence=TEXTS, law="paper") == {}


@BOTH
def test_without_scorers_paths_are_compared_by_the_embeddings_given(kind, tiny):
    embeddings = ToyEmbeddings()
    llm = kind(model=tiny, k=3, max_tokens=6, embedder=embeddings, spawn_min_p=0.0)
    llm.invoke("new")
    assert embeddings.asked
    alone = ToyEmbeddings()
    llm.invoke("new", k=1, embedder=alone)
    assert not alone.asked


def scorers_of(llm, **options):
    prompts = [[HumanMessage("new")]] if isinstance(llm, ChatMSI) else ["new"]
    generation = llm.generate(prompts, **options).generations[0][0]
    message = getattr(generation, "message", None)
    told = message.response_metadata if message else generation.generation_info
    return {name: scorer["weight"] for name, scorer in told["scorers"].items()}


def test_without_an_embedder_evidence_that_was_asked_for_is_an_error(tiny, monkeypatch):
    monkeypatch.setattr(msi_scorers.embedders, "is_installed", lambda: False)
    llm = ChatMSI(model=tiny, k=2, max_tokens=3)
    with pytest.raises((ConfigError, ScorerError), match="no embedder is installed"):
        llm.invoke("new", evidence=TEXTS)


def test_without_an_embedder_what_tools_brought_is_left_with_a_warning(tiny, monkeypatch):
    monkeypatch.setattr("langchain_msi.run.is_installed", lambda: False)
    llm = ChatMSI(model=tiny, k=2, max_tokens=3)
    messages = [HumanMessage("low"), *results([Document(page_content=TEXTS[0])])]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        message = llm.invoke(messages)
    assert message.response_metadata["scorers"] == {}
    assert any("no embedder is installed" in str(warning.message) for warning in caught)
