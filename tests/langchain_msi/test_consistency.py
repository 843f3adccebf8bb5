"""Self-consistency: votes and risks against a count by hand, samples against their seeds."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from operator import itemgetter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import LLM
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_core.tracers.base import BaseTracer

from langchain_msi import MSILLM, ChatMSI
from langchain_msi.consistency import (
    MajorityVote,
    MinimumBayesRisk,
    last_number,
    normalized_text,
    self_consistency,
)
from langchain_msi.samples import Samples
from msi_engine.errors import ConfigError

PLANETS = st.lists(st.sampled_from(["Mars", "mars.", "Venus", " Venus ", "Earth", ""]), min_size=1)


class Dice(LLM):
    """Answers with a number that depends on prompt and seed alone."""

    seed: int | None = None
    sides: int = 6

    @property
    def _llm_type(self) -> str:
        return "dice"

    def _call(self, prompt: str, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> str:
        drawn = random.Random(f"{prompt}/{kwargs.get('seed', self.seed)}").randint(1, self.sides)
        return f"I say {drawn}."


class Letters(Embeddings):
    """Counts of letters."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[float(text.lower().count(c)) for c in map(chr, range(97, 123))] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


@given(PLANETS)
def test_the_majority_is_the_first_of_the_most_common_answers(answers):
    keys = [a.lower().strip(" .") for a in answers]
    counts = Counter(k for k in keys if k)  # a Counter keeps the order of first sight
    if not counts:
        with pytest.raises(ConfigError, match="finds none"):
            MajorityVote().verdict(answers)
        return
    verdict = MajorityVote().verdict(answers)
    most = max(counts.values())
    winner = next(k for k in keys if k and counts[k] == most)
    assert verdict.index == keys.index(winner)
    assert verdict.answer is answers[verdict.index]
    assert {v.key: v.count for v in verdict.votes} == counts
    assert [v.count for v in verdict.votes] == sorted(counts.values(), reverse=True)
    assert all(keys[i] == v.key for v in verdict.votes for i in v.indices)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("It is 12.", "12"),
        ("3 + 4 = 7, so 7.50 euros", "7.5"),
        ("1,000.0 in all", "1000"),
        ("minus: -3", "-3"),
        ("\u22123", "-3"),
        ("from 10-12", "12"),
        ("-0", "0"),
        ("007", "7"),
        ("12345678901234567890123456789012345678901", "12345678901234567890123456789012345678901"),
        ("none at all", None),
    ],
)
def test_last_number(text, number):
    assert last_number(text) == number


def test_the_sign_is_kept_for_a_negative_fraction_below_one():
    assert last_number("-0.50") == "-0.5"


def test_ties_go_to_the_first_given():
    assert MajorityVote(key=last_number).invoke(["so 2", "so 1", "a 1", "a 2"]) == "so 2"


def test_nothing_to_choose_from_is_a_clear_error():
    for choose in (MajorityVote(), MinimumBayesRisk()):
        with pytest.raises(ConfigError, match="no candidates"):
            choose.invoke([])
        with pytest.raises(ConfigError, match="must be a list"):
            choose.invoke("one answer")


def test_parsed_values_vote_by_what_they_hold():
    answers = [{"a": 1, "b": 2}, {"a": 3}, {"b": 2, "a": 1}]
    assert MajorityVote().verdict(answers).votes[0].indices == (0, 2)


def test_a_message_carries_the_votes_and_the_given_one_is_not_touched():
    given_messages = [
        AIMessage("It is 4."),
        AIMessage("5"),
        AIMessage("4", response_metadata={"a": 1}),
    ]
    chosen = MajorityVote(key=last_number).invoke(given_messages)
    assert chosen.content == "It is 4."
    assert chosen.response_metadata["consistency"] == {
        "index": 0,
        "votes": [{"key": "4", "count": 2}, {"key": "5", "count": 1}],
    }
    assert given_messages[0].response_metadata == {}


@given(st.lists(st.text("abcde ", max_size=12), min_size=1, max_size=7))
def test_minimum_bayes_risk_is_the_greatest_mean_cosine_to_the_others(texts):
    vectors = np.array(Letters().embed_documents(texts))

    def cosine(a, b):
        scale = np.linalg.norm(a) * np.linalg.norm(b)
        return float(a @ b / scale) if scale else 0.0

    expected = [
        sum(cosine(v, w) for j, w in enumerate(vectors) if j != i) / max(len(texts) - 1, 1)
        for i, v in enumerate(vectors)
    ]
    verdict = MinimumBayesRisk(similarity=Letters()).verdict(texts)
    assert verdict.scores == pytest.approx(expected)
    assert expected[verdict.index] == pytest.approx(max(expected))
    assert asyncio.run(MinimumBayesRisk(similarity=Letters()).averdict(texts)) == verdict


def test_by_characters_the_odd_one_out_is_never_chosen():
    answers = ["Zebras!", "The Moon makes the tides.", "The tides are made by the Moon."]
    assert MinimumBayesRisk().verdict(answers).index in {1, 2}
    assert MinimumBayesRisk().invoke(["only"]) == "only"


def test_similarities_of_a_wrong_shape_are_refused():
    broken = MinimumBayesRisk(similarity=lambda texts: np.ones((1, 2)))
    with pytest.raises(ConfigError, match=r"shape \(3, 3\), got shape \(1, 2\)"):
        broken.invoke(["a", "b", "c"])


def chain(model):
    return PromptTemplate.from_template("Roll, {name}!") | model | StrOutputParser()


@pytest.mark.parametrize("wrapped", ["alone", "chain", "bound", "configurable"])
def test_samples_use_their_seeds_wherever_the_model_is(wrapped):
    model = Dice(sides=10**9)
    runnable, value = {
        "alone": (model, "Roll, you!"),
        "chain": (chain(model), {"name": "you"}),
        "bound": (chain(model.bind(stop=["x"])), {"name": "you"}),
        "configurable": (
            chain(model.configurable_fields(seed=ConfigurableField(id="seed"))),
            {"name": "you"},
        ),
    }[wrapped]
    samples = Samples(runnable=runnable, n=6, seed=3)
    expected = [Dice(sides=10**9, seed=s).invoke("Roll, you!") for s in samples.seeds]
    assert len(set(expected)) == 6
    assert samples.invoke(value) == expected
    assert asyncio.run(samples.ainvoke(value)) == expected
    assert samples.batch([value, value]) == [expected, expected]
    assert Samples(runnable=runnable, n=3, seed=3).invoke(value) == expected[:3]
    assert Samples(runnable=runnable, n=3, seed=4).invoke(value) != expected[:3]
    assert model.seed is None


@given(st.integers(0, 2**70), st.integers(1, 50))
def test_seeds_differ_and_are_what_libraries_take(root, n):
    seeds = Samples(runnable=Dice(), n=n, seed=root).seeds
    assert len(set(seeds)) == n
    assert all(0 <= s < 2**31 for s in seeds)


def test_any_runnable_will_do():
    calls = []
    runnable = RunnableLambda(lambda x: calls.append(x) or f"{x}!")
    assert self_consistency(runnable, n=3).invoke("hi") == "hi!"
    assert calls == ["hi"] * 3


def test_self_consistency_is_the_majority_of_the_samples():
    asked = self_consistency(chain(Dice()), n=25, choose=MajorityVote(key=last_number), seed=0)
    answers = Samples(runnable=chain(Dice()), n=25, seed=0).invoke({"name": "you"})
    counts = Counter(answers)
    answer = asked.invoke({"name": "you"})
    assert counts[answer] == max(counts.values())
    assert len(counts) > 1
    assert list(asked.stream({"name": "you"})) == [answer]
    assert asyncio.run(asked.abatch([{"name": "you"}])) == [answer]


def test_it_is_a_step_of_a_chain():
    asked = {"answer": self_consistency(Dice(), n=5), "all": Samples(runnable=Dice(), n=5)}
    result = (RunnableLambda(itemgetter("q")) | asked).invoke({"q": "roll"})
    assert result["answer"] in result["all"]


def test_every_sample_is_a_run_of_its_own_below_the_sampling():
    class Runs(BaseTracer):
        def _persist_run(self, run):
            self.root = run

    tracer = Runs()
    Samples(runnable=Dice(), n=3).invoke("roll", {"callbacks": [tracer]})
    assert [r.name for r in tracer.root.child_runs] == ["Dice"] * 3
    assert [r.tags for r in tracer.root.child_runs] == [["sample:0"], ["sample:1"], ["sample:2"]]


@pytest.mark.parametrize("options", [{"n": 0}, {"n": -1}, {"seed": -1}])
def test_impossible_numbers_are_refused(options):
    with pytest.raises(ValueError, match="greater than or equal"):
        self_consistency(Dice(), **options)


def test_normalized_text():
    assert normalized_text('  "Mars  is\nRED." ') == "mars is red"
    assert normalized_text(" . ") is None


def test_a_model_that_leaves_nothing_to_chance_is_refused():
    with pytest.raises(ValueError, match="all samples would be the same"):
        Samples(runnable=PromptTemplate.from_template("{x}") | ChatMSI(), n=3)
    with pytest.raises(ValueError, match="all samples would be the same"):
        self_consistency(MSILLM(temperature=0.7).bind(temperature=0.0))


@pytest.mark.parametrize(
    "model",
    [
        ChatMSI(temperature=0.7),
        MSILLM(spawn_temperature=1.0),
        ChatMSI(collapse="sample"),
        ChatMSI().bind(temperature=0.7),
        ChatMSI().configurable_fields(temperature=ConfigurableField(id="heat")),
    ],
)
def test_any_chance_will_do(model):
    assert Samples(runnable=model, n=3).n == 3


def test_msis_models_are_sampled_by_their_seeds(tiny):
    model = ChatMSI(model=tiny, k=1, temperature=2.0, max_tokens=8)
    samples = Samples(runnable=chain(model), n=4, seed=1)
    answers = samples.invoke({"name": "you"})
    alone = [chain(model.replace(seed=seed)).invoke({"name": "you"}) for seed in samples.seeds]
    assert answers == alone
    assert len(set(answers)) > 1
    assert samples.invoke({"name": "you"}) == answers


def test_rows_of_the_similarities_are_the_candidates():
    matrix = np.array([[1.0, 0.9, 0.8], [0.1, 1.0, 0.3], [0.2, 0.4, 1.0]])
    verdict = MinimumBayesRisk(similarity=lambda texts: matrix).verdict(["a", "b", "c"])
    assert verdict.scores == pytest.approx((0.85, 0.2, 0.3))
    assert verdict.index == 0
