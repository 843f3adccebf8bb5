"""Scorer `rag`: its formula, its one batch, its memory, its control."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from msi_engine import DecodeConfig, Evidence, PathView, ScoreContext
from msi_engine.errors import ConfigError, ScorerError
from msi_engine.events import Collapsed
from msi_engine.evidence import as_evidence
from msi_engine.plugins import find_scorers
from msi_engine.testing import ToyEmbedder, ToyModel, ToyTokenizer, check_scorer, run_toy

CHUNKS = ("The tide comes from the Moon.", "Tea is a drink.", "Bees make honey, bees make wax.")


class Given:
    """An embedder that knows a vector for each text."""

    name = "given"

    def __init__(self, **vectors):
        self.vectors = vectors
        self.asked = []

    def embed(self, texts):
        self.asked.append(list(texts))
        return np.array([self.vectors[text] for text in texts], dtype=np.float32)


def view(segment, committed="", index=0):
    return PathView(index, "p", committed, segment, (1,), -1.0, False)


def rag(evidence=CHUNKS, embedder=None, **options):
    context = ScoreContext(
        options=options, evidence=as_evidence(evidence), embedder=embedder or ToyEmbedder()
    )
    return find_scorers(["rag"], {})["rag"](context)


def vector(cosine):
    return (cosine, math.sqrt(1 - cosine**2))


PLANE = {"x": (3.0, 0.0), "a": vector(0.8), "b": vector(0.2), "against": (-2.0, 0.0)}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 0.8),
        ({"pool": "max"}, 0.8),
        ({"pool": "mean"}, 0.5),
        (
            {"pool": "softmax"},
            (math.exp(8) * 0.8 + math.exp(2) * 0.2) / (math.exp(8) + math.exp(2)),
        ),
        ({"pool": "softmax", "temperature": 100}, 0.5),
        ({"pool": "softmax", "temperature": 1e-3}, 0.8),
    ],
)
def test_pooling_is_the_formula(options, expected):
    scorer = rag(["a", "b"], Given(**PLANE), **options)
    assert scorer.score([view("x")]) == [pytest.approx(expected, abs=1e-3)]


def test_a_cosine_is_reported_as_it_is_whatever_the_lengths():
    scorer = rag(["x"], Given(**PLANE))
    scores = scorer.score([view(text) for text in ("x", "against", "a")])
    assert scores == pytest.approx([1.0, -1.0, 0.8])


def test_one_call_for_everything_that_is_new_and_none_for_what_is_not():
    embedder = Given(**PLANE)
    scorer = rag(["a", "b"], embedder)
    assert embedder.asked == [["a", "b"]]
    scorer.score([view(" x "), view("x", index=1), view("against"), view(""), view("\n ...")])
    assert embedder.asked[1:] == [["x", "against"]]
    scorer.score([view("x"), view("against", index=3)])
    assert len(embedder.asked) == 2
    scorer.score([view("b"), view("x")])
    assert embedder.asked[2:] == [["b"]]


def test_what_says_nothing_scores_nothing_and_is_not_embedded():
    embedder = ToyEmbedder()
    scorer = rag(embedder=embedder)
    assert scorer.score([view(text) for text in ("", " ", "\n\n", "...", "\ufffd")]) == [0.0] * 5
    assert len(embedder.asked) == 1


def test_a_path_that_stops_is_judged_by_what_was_said():
    scorer = rag()
    said, stopped = scorer.score([view(CHUNKS[0]), view("", CHUNKS[0])])
    assert stopped == said == pytest.approx(1.0)
    assert scorer.score([view("\n", CHUNKS[0])]) == [said]
    long = "Snow is cold. " * 100 + CHUNKS[0]
    assert rag(chunk_size=60).score([view("", long)])[0] > 0.6


def test_the_memory_is_bounded_and_forgetting_changes_no_score(monkeypatch):
    import msi_scorers.remembered as module

    monkeypatch.setattr(module, "MOST", 3)
    scorer = rag()
    views = [view(f"tide {i} moon {i % 7}") for i in range(20)]
    first = scorer.score(views)
    assert len(scorer._scores._scores) == 3
    assert scorer.score(views[::-1]) == first[::-1]


def test_scope_text_judges_the_whole_answer():
    embedder = ToyEmbedder()
    scorer = rag(embedder=embedder, scope="text")
    scorer.score([view(" from the Moon", "The tide comes")])
    assert embedder.asked[-1] == ("The tide comes from the Moon",)
    assert scorer.score([view(" from the Moon.", "The tide comes")]) == [pytest.approx(1.0)]


def test_long_evidence_is_embedded_in_pieces():
    embedder = ToyEmbedder()
    text = "The tide comes from the Moon. " * 30 + "Bees make honey. " * 30
    scorer = rag([text, "Tea."], embedder, chunk_size=100)
    (pieces,) = embedder.asked
    assert all(len(piece) <= 100 for piece in pieces)
    assert " ".join(pieces[:-1]) == text.strip()
    assert scorer.score([view("Bees make honey.")])[0] > 0.95


CONFORMING = [
    {},
    {"scope": "text", "pool": "mean"},
    {"pool": "softmax", "temperature": 0.5},
    {"control": "shuffle"},
    {"control": "shuffle", "control_evidence": ["Rain falls."]},
]


@pytest.mark.parametrize("options", CONFORMING, ids=str)
def test_it_keeps_the_contract(options):
    factory = find_scorers(["rag"], {})["rag"]
    check_scorer(factory, options=options, evidence=CHUNKS, embedder=ToyEmbedder())


def test_the_control_sees_other_chunks_and_nothing_of_the_evidence():
    embedder = ToyEmbedder()
    scorer = rag(embedder=embedder, control="shuffle")
    (chunks,) = embedder.asked
    assert len(chunks) == len(CHUNKS)
    assert not set(chunks) & set(CHUNKS)
    assert scorer.score([view(CHUNKS[0])])[0] < 0.6 < rag().score([view(CHUNKS[0])])[0]


def test_the_control_takes_the_chunks_of_another_query_as_given():
    embedder = ToyEmbedder()
    rag(embedder=embedder, control="shuffle", control_evidence=["Rain falls.", "Snow, too."])
    assert embedder.asked == [("Rain falls.", "Snow, too.")]


def test_control_seeds_begin_at_other_passages():
    asked = []
    for seed in (0, 1, 8):
        embedder = ToyEmbedder()
        rag(embedder=embedder, control="shuffle", control_seed=seed)
        asked.append(embedder.asked[0])
    assert asked[0] == asked[2] != asked[1]


def test_objects_of_others_serve_as_embedders():
    class LangChains:
        def embed_documents(self, texts):
            return [[1.0, 0.0] if "tea" in text.lower() else [0.0, 1.0] for text in texts]

    scorer = rag(["Tea is a drink."], LangChains())
    assert scorer.score([view("Tea!"), view("Rain.")]) == [1.0, 0.0]


def test_without_evidence_it_says_how_to_give_some():
    with pytest.raises(ConfigError, match="scorer 'rag' needs evidence, which is none or blank"):
        rag(["", " \n"])


def test_an_embedder_that_returns_the_wrong_shape_or_nan_is_named():
    class Wrong:
        name = "wrong"

        def embed(self, texts):
            return np.zeros((len(texts) + 1, 4))

    with pytest.raises(ScorerError, match=r"embedder wrong returned shape \(4, 4\) for 3 texts"):
        rag(embedder=Wrong())
    with pytest.raises(ScorerError, match="not finite"):
        rag(["a"], Given(a=(math.nan, 0.0)))


PIECES = (" the", " tide", " moon", " tea", " bees", " honey", " make", " is", "!", ".", "</s>")
TOKENIZER = ToyTokenizer(PIECES)


def run(score_every, options, model, **settings):
    factory = find_scorers(["rag"], {})["rag"]

    def grounded(context):
        return factory(replace(context, evidence=as_evidence(CHUNKS), embedder=ToyEmbedder()))

    config = DecodeConfig(
        k=4,
        max_tokens=40,
        segment_length=12,
        boundary=("sentence",),
        temperature=1.0,
        spawn_min_p=0.0,
        score_every=score_every,
        scorers={"rag": 10.0},
        scorer_options={"rag": options},
        **settings,
    )
    toy = ToyModel.seeded(TOKENIZER.size, model, scale=1.0)
    return list(run_toy(config, toy, TOKENIZER, seed=7, scorers={"rag": grounded}))


@pytest.mark.parametrize("options", [{}, {"scope": "text", "pool": "softmax"}], ids=str)
@pytest.mark.parametrize("law", ["mean", "paper", "posterior"])
def test_scores_at_once_late_and_at_the_boundary_are_the_same(options, law):
    seen = set()
    for model in range(4):
        reports = []
        for score_every in (1, 4, 4096):
            events = run(score_every, options, model, law=law)
            collapses = [e for e in events if isinstance(e, Collapsed)]
            kept = [p for c in collapses for p in c.paths if p.status != "dropped"]
            numbers = [(p.signals["rag"], p.log_weight) for p in kept]
            reports.append(([c.text for c in collapses], np.array(numbers)))
        (expected_text, expected), *others = reports
        seen |= set(expected[:, 0].round(6))
        for text, given in others:
            assert text == expected_text
            np.testing.assert_allclose(given, expected, rtol=0, atol=1e-6)
    assert len(seen) > 5  # else the comparison would show nothing


def test_the_weight_moves_the_text_towards_the_evidence():
    def nearness(weight):
        factory = find_scorers(["rag"], {})["rag"]
        context = ScoreContext(evidence=(Evidence("bees make honey"),), embedder=ToyEmbedder())
        judge, total = factory(context), 0.0
        for model in range(5):
            config = DecodeConfig(
                k=4, max_tokens=30, segment_length=6, temperature=1.0, spawn_min_p=0.0,
                scorers={"mine": weight},
            )  # fmt: skip
            toy = ToyModel.seeded(TOKENIZER.size, model, scale=1.0)
            own = {"mine": lambda _: factory(context)}
            events = run_toy(config, toy, TOKENIZER, seed=3, scorers=own)
            total += sum(judge.score([view(e.text) for e in events if isinstance(e, Collapsed)]))
        return total

    assert nearness(30.0) > nearness(0.0) > nearness(-30.0)
