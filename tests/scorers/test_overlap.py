"""Scorers that work while the model does: begun before its pass, and the same numbers."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from msi_scorers.rag import RagScorer
from msi_scorers.rag_options import RagOptions

from msi_engine import DecodeConfig
from msi_engine.errors import ScorerError
from msi_engine.events import Collapsed
from msi_engine.evidence import as_evidence
from msi_engine.plugins import find_scorers
from msi_engine.scorer import PreparingScorer
from msi_engine.testing import ToyEmbedder, ToyModel, ToyTokenizer, check_scorer, run_toy

PATIENCE = 30  # seconds after which something hangs; never reached by a test that passes
CHUNKS = ("The tide comes from the Moon.", "Bees make honey, bees make wax.")
TOKENIZER = ToyTokenizer((" the", " tide", " moon", " bees", " honey", " make", "!", ".", "</s>"))


class Apart(ToyEmbedder):
    """May be called on another thread, and notes on which it was."""

    works_apart = True

    def __init__(self):
        super().__init__()
        self.threads = []

    def embed(self, texts):
        self.threads.append(threading.current_thread().name)
        return super().embed(texts)


def config(score_every=1, **options):
    return DecodeConfig(
        k=4, max_tokens=30, segment_length=8, temperature=1.0, spawn_min_p=0.0,
        scorers={"rag": 10.0}, score_every=score_every, **options,
    )  # fmt: skip


def run(embedder, score_every=1, model=None, **options):
    factory = find_scorers(["rag"], {})["rag"]
    evidence = as_evidence(CHUNKS)
    scorers = {
        "rag": lambda context: factory(replace(context, evidence=evidence, embedder=embedder))
    }
    toy = model or ToyModel.seeded(TOKENIZER.size, 1, scale=1.0)
    return list(run_toy(config(score_every, **options), toy, TOKENIZER, seed=7, scorers=scorers))


def collapses(events):
    return [e for e in events if isinstance(e, Collapsed)]


@pytest.mark.parametrize("score_every", [1, 3, 4096])
@pytest.mark.parametrize("law", ["mean", "paper"])
def test_answers_are_the_same_on_another_thread_and_texts_are_embedded_once(score_every, law):
    apart, here = Apart(), ToyEmbedder()
    events = run(apart, score_every, law=law)
    expected = run(here, score_every, law=law)
    assert collapses(events) == collapses(expected)
    assert len(collapses(events)) > 2
    judged = [text for call in apart.asked[1:] for text in call]
    assert len(judged) == len(set(judged))
    assert "msi-scorers_0" in apart.threads[1:]
    if score_every == 1:  # every text is known before the pass, but those that end the answer
        assert apart.threads[1:].count("msi-scorers_0") > 0.7 * len(apart.threads[1:])


def test_an_embedder_of_whom_nothing_is_known_stays_on_the_generations_thread():
    class Plain(Apart):
        works_apart = False

    embedder = Plain()
    run(embedder)
    assert set(embedder.threads) == {threading.current_thread().name}


def test_embedding_is_under_way_before_the_model_runs():
    begun = threading.Event()

    class Noting(Apart):
        def embed(self, texts):
            begun.set()
            return super().embed(texts)

    base = ToyModel.seeded(TOKENIZER.size, 1, scale=1.0)
    waited = []

    def rule(history):
        if len(history) > 1:  # a pass over drawn tokens: without the embedder it never goes on
            waited.append(begun.wait(PATIENCE))
        return base.logits(history)

    embedder = Noting()

    class Cleared(RagScorer):
        def __init__(self, *args):
            super().__init__(*args)
            begun.clear()  # the chunks are embedded, no text yet

    scorers = {"rag": lambda _: Cleared(RagOptions(), as_evidence(CHUNKS), embedder)}
    model = ToyModel(TOKENIZER.size, rule)
    list(run_toy(config(), model, TOKENIZER, seed=7, scorers=scorers))
    assert waited
    assert all(waited)


def test_what_fails_on_the_other_thread_ends_the_generation_with_the_scorers_name():
    class Broken(Apart):
        def embed(self, texts):
            if len(self.threads) == 3:
                raise RuntimeError("no memory left")
            return super().embed(texts)

    with pytest.raises(ScorerError, match="'rag': raised RuntimeError: no memory left"):
        run(Broken())


def test_a_scorer_that_fails_to_prepare_is_named():
    class Unready:
        def prepare(self, paths):
            raise ValueError("not now")

        def score(self, paths):
            return [0.0 for _ in paths]

    assert isinstance(Unready(), PreparingScorer)
    toy = ToyModel.seeded(TOKENIZER.size, 1)
    settings = config().replace(scorers={"unready": 1.0})
    with pytest.raises(ScorerError, match="'unready': raised ValueError: not now"):
        list(run_toy(settings, toy, TOKENIZER, scorers={"unready": lambda _: Unready()}))


def test_it_is_told_what_it_will_be_asked():
    """Of every text that counts it hears before the pass, and of it again when it is asked."""
    told, asked = set(), set()

    class Witness:
        def prepare(self, paths):
            told.update((p.committed, p.index, p.segment) for p in paths)

        def score(self, paths):
            asked.update((p.committed, p.index, p.segment) for p in paths)
            return [0.0 for _ in paths]

    toy = ToyModel.seeded(TOKENIZER.size, 1, scale=1.0)
    settings = config().replace(scorers={"witness": 1.0})
    list(run_toy(settings, toy, TOKENIZER, seed=7, scorers={"witness": lambda _: Witness()}))
    assert len(told & asked) > 0.7 * len(asked)


def test_the_contract_holds_on_another_thread():
    check_scorer(find_scorers(["rag"], {})["rag"], evidence=CHUNKS, embedder=Apart())
