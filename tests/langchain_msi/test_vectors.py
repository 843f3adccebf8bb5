"""Vectors that a vector store has are used again, not computed again."""

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from msi_scorers.embedders import find_embedder
from msi_scorers.rag import RagScorer
from msi_scorers.rag_options import RagOptions

from langchain_msi import MSILLM, ChatMSI
from langchain_msi.vectors import embeddings_of, with_stored_vectors
from msi_engine import Evidence, PathView
from msi_engine.errors import ConfigError
from msi_engine.evidence import as_evidence
from msi_engine.testing import ToyEmbedder
from tests.langchain_msi.toys import ToyEmbeddings

LONG = "The harbour of the old town is deep, and ships come in at night. " * 30
TEXTS = [LONG, "Bread is made of flour,\n\n\twater and  salt.", "The Moon pulls at the sea."]


class LikeChroma(VectorStore):
    """Has ``get`` as Chroma has it, and nothing else of use."""

    def __init__(self, inner):
        self.inner = inner

    embeddings = property(lambda self: self.inner.embeddings)

    def get(self, ids, include):
        assert include == ["documents", "embeddings"]
        rows = [self.inner.store[i] for i in reversed(ids) if i in self.inner.store]
        return {
            "ids": [row["id"] for row in rows],
            "documents": [row["text"] for row in rows],
            "embeddings": np.asarray([row["vector"] for row in rows], dtype=np.float32),
        }

    def similarity_search(self, query, k=4, **kwargs):
        return self.inner.similarity_search(query, k)

    @classmethod
    def from_texts(cls, texts, embedding, metadatas=None, **kwargs):
        return cls(InMemoryVectorStore.from_texts(texts, embedding))


class LikeFaiss(LikeChroma):
    """Has an index and a docstore as FAISS has them."""

    get = None

    @property
    def index_to_docstore_id(self):
        return dict(enumerate(self.inner.store))

    @property
    def index(self):
        return self

    @property
    def docstore(self):
        return self

    def reconstruct(self, at):
        return np.asarray(list(self.inner.store.values())[at]["vector"], dtype=np.float32)

    def search(self, i):
        return Document(page_content=self.inner.store[i]["text"])


STORES = [InMemoryVectorStore, LikeChroma, LikeFaiss]


@pytest.fixture
def embeddings():
    return ToyEmbeddings()


@pytest.mark.parametrize("kind", STORES)
def test_each_passage_gets_the_vector_of_its_text(kind, embeddings):
    store = kind.from_texts(TEXTS, embeddings)
    passages = as_evidence(store.similarity_search("bread", k=3))
    assert {passage.text for passage in passages} == set(TEXTS)
    for passage in with_stored_vectors(passages, store):
        assert passage.vector == pytest.approx(embeddings.embed_query(passage.text))


@pytest.mark.parametrize("kind", STORES)
def test_a_text_that_is_not_the_stored_one_gets_no_vector(kind, embeddings):
    store = kind.from_texts(TEXTS, embeddings)
    (found,) = store.similarity_search("bread flour", k=1)
    passages = as_evidence(
        [
            Document(page_content="compressed", id=found.id),
            Document(page_content=found.page_content, id="another"),
            Document(page_content=found.page_content),
            "a text",
        ]
    )
    assert with_stored_vectors(passages, store) == passages


def test_a_vector_that_is_there_stays(embeddings):
    store = InMemoryVectorStore.from_texts(TEXTS, embeddings)
    (passage,) = as_evidence(store.similarity_search("bread flour", k=1))
    mine = Evidence(passage.text, passage.source, passage.id, vector=(1.0, 0.0))
    assert with_stored_vectors([mine], store) == (mine,)


def test_a_store_that_does_not_tell_its_embeddings_is_refused(embeddings):
    store = LikeChroma.from_texts(TEXTS, embeddings)
    store.inner = type("Inner", (), {"embeddings": None})()
    with pytest.raises(ConfigError, match="LikeChroma does not tell what it embeds with"):
        embeddings_of(store)


def test_the_scorer_takes_a_vector_for_the_whole_passage():
    embedder = ToyEmbedder()
    (path,) = (PathView(**view("The Moon pulls at the sea.")),)
    plain = RagScorer(RagOptions(), [Evidence(TEXTS[2]), Evidence(TEXTS[1])], embedder)
    known = [Evidence(t, vector=tuple(embedder.embed([t])[0] * 3.0)) for t in TEXTS[1:]]
    embedder.asked.clear()
    stored = RagScorer(RagOptions(), known, embedder)
    assert embedder.asked == []
    assert stored.score([path]) == pytest.approx(plain.score([path]))
    mixed = RagScorer(RagOptions(pool="mean"), [known[0], Evidence(TEXTS[2])], embedder)
    means = RagScorer(RagOptions(pool="mean"), known, embedder)
    assert mixed.score([path]) == pytest.approx(means.score([path]))


def test_the_control_does_not_take_the_vectors_of_the_evidence():
    known = [Evidence(TEXTS[2], vector=tuple(ToyEmbedder().embed([TEXTS[2]])[0]))]
    embedder = ToyEmbedder()
    options = RagOptions(control="shuffle", control_evidence=("Clocks tick.",))
    assert RagScorer(options, known, embedder).score([PathView(**view(TEXTS[2]))]) == [0.0]
    assert ("Clocks tick.",) in embedder.asked


def view(segment):
    return {
        "index": 0,
        "prompt": "",
        "committed": "",
        "segment": segment,
        "tokens": (),
        "logprob": 0.0,
        "finished": False,
    }


@pytest.mark.parametrize("kind", [ChatMSI, MSILLM])
@pytest.mark.parametrize("make", STORES)
def test_no_document_of_the_store_is_embedded_again(kind, make, embeddings, tiny):
    store = make.from_texts(TEXTS, embeddings)
    documents = store.similarity_search("bread", k=3)
    assert set(TEXTS) <= set(embeddings.asked)
    options = {"model": tiny, "k": 3, "max_tokens": 8}

    embeddings.toy.asked.clear()
    again = kind(**options, embedder=embeddings, evidence=documents).invoke("new")
    pieces = {" ".join(text.split()) for text in embeddings.asked}
    assert {" ".join(text.split()) for text in TEXTS[1:]} <= pieces

    embeddings.toy.asked.clear()
    reused = kind(**options, embedder=store, evidence=documents).invoke("new")
    assert embeddings.asked  # what the paths say
    pieces = {" ".join(text.split()) for text in embeddings.asked}
    assert not any(text and text in " ".join(" ".join(TEXTS).split()) for text in pieces)
    assert again
    assert reused


def test_langchain_embeddings_and_a_store_embed_alike(embeddings):
    store = InMemoryVectorStore.from_texts(TEXTS, embeddings)
    one, two = find_embedder(embeddings), find_embedder(embeddings_of(store))
    assert one.embed(TEXTS).tolist() == two.embed(TEXTS).tolist()
