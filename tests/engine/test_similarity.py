"""Collapse mode `mbr` with an embedder: cosines, what says nothing, and what goes wrong."""

from __future__ import annotations

import numpy as np
import pytest

from msi_engine import DecodeConfig, Engine
from msi_engine.collapse import minimum_bayes_risk
from msi_engine.errors import DecodeError
from msi_engine.events import Collapsed
from msi_engine.similarity import cosine_similarity
from msi_engine.testing import ToyEmbedder, ToyModel, ToyTokenizer, run_toy

TOKENIZER = ToyTokenizer([" tide", " moon", " tea", " bees", " sea", ".", "</s>"])


def by_hand(texts):
    """Cosines of word counts, one pair at a time."""
    words = sorted({w for t in texts for w in t.split()})
    counts = [[t.split().count(w) for w in words] for t in texts]

    def cosine(a, b):
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        return dot / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5

    return [[cosine(a, b) for b in counts] for a in counts]


def test_it_is_the_cosine_of_each_two():
    texts = ["tide moon moon", "tide sea", "tea", "moon tide moon"]
    scores = cosine_similarity(ToyEmbedder(4096))(texts)
    np.testing.assert_allclose(scores, by_hand(texts), atol=1e-6)


def test_texts_go_to_the_embedder_once_and_with_single_spaces():
    embedder = ToyEmbedder()
    cosine_similarity(embedder)([" a  b\n", "c"])
    assert embedder.asked == [("a b", "c")]


def test_what_says_nothing_is_like_nothing_but_its_kind():
    embedder = ToyEmbedder()
    scores = cosine_similarity(embedder)(["", "tide", " ...\n"])
    assert scores.tolist() == [[1, 0, 1], [0, pytest.approx(1), 0], [1, 0, 1]]
    assert embedder.asked == [("tide",)]
    assert cosine_similarity(embedder)(["", " "]).tolist() == [[1, 1], [1, 1]]
    assert len(embedder.asked) == 1


def test_the_path_that_agrees_most_by_the_embedder_wins():
    config = DecodeConfig(
        k=4, max_tokens=24, segment_length=6, collapse="mbr", temperature=1.0, spawn_min_p=0.0
    )
    others = 0
    for seed in range(8):
        model = ToyModel.seeded(TOKENIZER.size, seed, scale=1.0)
        similarity = cosine_similarity(ToyEmbedder(4096))
        events = run_toy(config, model, TOKENIZER, seed=seed, similarity=similarity)
        for collapse in (e for e in events if isinstance(e, Collapsed)):
            paths = [p for p in collapse.paths if p.status != "dropped"]
            worded = all(any(map(str.isalnum, p.text)) for p in paths)
            if len(paths) < 2 or not worded or max(p.credence for p in paths) > 1 - 1e-9:
                continue
            cosines = by_hand([p.text.replace(".", " ") for p in paths])
            risk = [
                sum(
                    p.credence * c
                    for j, (p, c) in enumerate(zip(paths, row, strict=True))
                    if j != i
                )
                / (1 - paths[i].credence)
                for i, row in enumerate(cosines)
            ]
            winner = next(i for i, p in enumerate(paths) if p.index == collapse.winner)
            assert risk[winner] == pytest.approx(max(risk), abs=1e-5)
            others += winner != int(np.argmax([p.credence for p in paths]))
    assert others  # it is not merely the most probable


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda texts: np.zeros((1, 3)), r"returned shape \(1, 3\) for 2 texts"),
        (lambda texts: 1 / 0, "ZeroDivisionError"),
        (lambda texts: np.full((len(texts), 2), np.nan), "not finite"),
    ],
)
def test_an_embedder_that_fails_is_named_in_one_line(made, said):
    class Broken:
        name = "broken"

        def embed(self, texts):
            return made(texts)

    with pytest.raises(DecodeError, match=f"mbr with embedder broken: .*{said}") as caught:
        cosine_similarity(Broken())(["tide", "tea"])
    assert "\n" not in str(caught.value)


@pytest.mark.real_model
def test_the_engine_uses_the_embedder_that_is_given():
    embedder = ToyEmbedder()
    question = [{"role": "user", "content": "Why is the sky blue?"}]
    answer = Engine.load("embedded").generate(
        question, k=3, max_tokens=12, spawn_min_p=0.0, embedder=embedder
    )
    compared = [c for c in answer.trace.collapses if len(c.paths) > 1]
    assert compared
    assert embedder.asked
    texts = {" ".join(p.text.split()) for c in compared for p in c.paths}
    assert {text for call in embedder.asked for text in call} <= texts


@pytest.mark.parametrize("number", [2, 3, 5])
def test_of_texts_that_are_all_as_similar_the_first_stays(number: int) -> None:
    """A tie, whatever the credences: rounding does not decide it."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        alike = np.full((number, number), rng.random())
        shares = rng.dirichlet(np.ones(number))
        texts = ("some",) * number
        assert minimum_bayes_risk(texts, shares, lambda _, alike=alike: alike) == 0
