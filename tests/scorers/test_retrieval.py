"""Retrieval: MMR against a brute-force reading of its formula, and vectors kept on disk."""

from __future__ import annotations

import numpy as np
import pytest
from msi_scorers.rag import RagScorer
from msi_scorers.rag_options import RagOptions
from msi_scorers.retrieval import chunk_vectors, mmr, retrieve

from msi_engine import Evidence, PathView
from msi_engine.errors import ConfigError
from msi_engine.model.home import home
from msi_engine.testing import ToyEmbedder

CHUNKS = [
    Evidence("The tide comes from the Moon.", "sea.txt"),
    Evidence("The tide comes from the Moon!", "sea.txt"),
    Evidence("The moon pulls at the sea.", "sea.txt"),
    Evidence("Tea is a drink.", "tea.txt"),
    Evidence("Bees make honey.", "bees.txt"),
]


def cosine(a, b):
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def chosen_by_the_formula(asked, vectors, top_k, balance):
    chosen = []
    while len(chosen) < min(top_k, len(vectors)):
        values = {
            i: balance * cosine(asked, v)
            - (1 - balance) * max((cosine(v, vectors[j]) for j in chosen), default=0.0)
            for i, v in enumerate(vectors)
            if i not in chosen
        }
        chosen.append(max(values, key=values.get))
    return chosen


@pytest.mark.parametrize("balance", [0.0, 0.3, 0.7, 1.0])
def test_mmr_is_its_formula(balance):
    rng = np.random.default_rng(0)
    for size in (1, 3, 12):
        asked, vectors = rng.normal(size=8), rng.normal(size=(size, 8)) * 5
        for top_k in (1, 4, 20):
            expected = chosen_by_the_formula(asked, vectors, top_k, balance)
            assert mmr(asked, vectors, top_k, balance) == expected


def test_what_is_asked_for_comes_first_and_is_not_told_twice():
    found = retrieve("Where does the tide come from? The Moon?", CHUNKS, ToyEmbedder(), 2)
    assert found[0].text == CHUNKS[0].text
    assert found[1].text != CHUNKS[1].text


def test_there_are_no_more_than_there_are():
    assert len(retrieve("tea", CHUNKS, ToyEmbedder(), 50)) == len(CHUNKS)


def test_documents_are_embedded_once_for_all_time():
    retrieve("tea", CHUNKS, ToyEmbedder(), 2)
    again = ToyEmbedder()
    retrieve("honey", CHUNKS, again, 2)
    assert again.asked == [("honey",)]


def test_a_changed_document_is_embedded_anew_and_the_others_are_not():
    retrieve("tea", CHUNKS, ToyEmbedder(), 2)
    changed = [*CHUNKS[:3], Evidence("Tea is a plant.", "tea.txt"), CHUNKS[4]]
    again = ToyEmbedder()
    (found,) = retrieve("plant", changed, again, 1)
    assert (found.text, found.source) == (changed[3].text, changed[3].source)
    assert again.asked == [("plant",), ("Tea is a plant.",)]


def test_what_is_found_brings_its_vector_and_rag_does_not_embed_it_again():
    embedder = ToyEmbedder()
    found = retrieve("tea", CHUNKS, embedder, 3)
    vectors = np.array([chunk.vector for chunk in found])
    expected = ToyEmbedder().embed([chunk.text for chunk in found])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    asked = len(embedder.asked)
    scorer = RagScorer(RagOptions(), found, embedder)
    assert len(embedder.asked) == asked
    view = PathView(0, "", "", found[0].text, (1,), -1.0, False)
    assert scorer.score([view]) == [pytest.approx(1.0)]


def test_another_model_has_its_own_vectors():
    assert chunk_vectors(ToyEmbedder(64), ["tea"]).shape == (1, 64)
    assert chunk_vectors(ToyEmbedder(32), ["tea"]).shape == (1, 32)


def test_texts_cannot_be_mistaken_for_others():
    first = chunk_vectors(ToyEmbedder(), ["tea milk", "x"])
    second = chunk_vectors(ToyEmbedder(), ["tea", "milkx"])
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("damage", [b"", b"nonsense", None])
def test_a_damaged_file_is_made_again(damage):
    expected = chunk_vectors(ToyEmbedder(), ["tea", "milk"])
    (path,) = (home() / "embeddings").iterdir()
    path.write_bytes(path.read_bytes()[:-8] if damage is None else damage)
    embedder = ToyEmbedder()
    assert np.array_equal(chunk_vectors(embedder, ["tea", "milk"]), expected)
    assert embedder.asked == [("tea", "milk")]
    assert [p.name for p in (home() / "embeddings").iterdir()] == [path.name]


def test_where_nothing_can_be_written_it_goes_without(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MSI_HOME", str(tmp_path / "file"))
    assert chunk_vectors(ToyEmbedder(), ["tea"]).shape == (1, 256)


def test_an_embedder_that_fails_the_contract_is_one_line():
    class Wrong:
        name = "wrong"

        def embed(self, texts):
            return np.zeros(3)

    with pytest.raises(ConfigError, match="embedder wrong returned shape"):
        retrieve("tea", CHUNKS, Wrong(), 1)
