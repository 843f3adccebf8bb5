"""Law `posterior` is properly weighted: its estimates are right in the mean, and get better.

For paths x_1 .. x_K with weights w_k the law promises, for every function f of a path,

    E[ sum_k w_k f(x_k) ]  =  sum_x pi(x)^beta exp(lambda phi(x)) f(x).

The right side is enumerated on a toy model. Every test is run again with a term of the weight left
out, and must then fail.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from msi_engine import DecodeConfig
from msi_engine.events import Collapsed
from msi_engine.path import Draw, PathView
from msi_engine.sampling import NextToken
from msi_engine.spawn import log_inclusion, spawn
from msi_engine.testing import ToyModel, ToyTokenizer, make_toy_decoder
from msi_engine.testing.driver import ToyRunner

LENGTH = 3  # of a segment
PIECES = ("a", "b", "c", "</s>")
EOS = 3
TOKENIZER = ToyTokenizer(PIECES)
MODEL = ToyModel.seeded(len(PIECES), seed=3, order=2, scale=1.2)
LAMBDA = 0.7
EXACT = {
    "law": "posterior",
    "boundary": (),
    "segment_length": LENGTH,
    "max_tokens": 100,
    "majority": 1.0,
    "short_circuit": 1.0,
    "dedup_tokens": 0,
    "spawn_min_p": 0.0,
    "diversity": 0.0,
    "collapse": "argmax",
}
OPTIONS: Mapping[str, Any] = {
    **EXACT,
    "k": 2,
    "beta": 1.5,
    "spawn_temperature": 1.3,
    "temperature": 0.6,
    "scorers": {"phi": LAMBDA},
}
FUNCTIONS: Mapping[str, Callable[[tuple[int, ...]], float]] = {
    "one": lambda x: 1.0,
    "length": lambda x: float(len(x)),
    "ends": lambda x: float(x[-1] == EOS),
    "first is b": lambda x: float(x[0] == 1),
    "count of a": lambda x: float(x.count(0)),
}


def phi(text: str) -> float:
    return 0.8 * text.count("a") - 0.5 * text.count("bb") + 0.3 * len(text)


class Phi:
    def score(self, paths: Sequence[PathView]) -> list[float]:
        return [phi(p.segment) for p in paths]


def sequences() -> Iterator[tuple[int, ...]]:
    """Every segment: up to the end of sequence, or of full length."""
    for n in range(1, LENGTH + 1):
        for x in itertools.product(range(len(PIECES)), repeat=n):
            if EOS not in x[:-1] and (n == LENGTH or x[-1] == EOS):
                yield x


def log_pi(x: tuple[int, ...]) -> float:
    return math.fsum(MODEL.logprobs((0, *x[:t]))[x[t]] for t in range(len(x)))


@cache
def truth(beta: float, weight: float) -> Mapping[str, float]:
    """sum_x pi(x)^beta exp(weight phi(x)) f(x), for each f."""
    masses = {
        x: math.exp(beta * log_pi(x) + weight * phi(TOKENIZER.decode(x))) for x in sequences()
    }
    return {name: sum(m * f(x) for x, m in masses.items()) for name, f in FUNCTIONS.items()}


def first_segment(config: DecodeConfig, seed: int) -> list[tuple[tuple[Draw, ...], float]]:
    """Draws and log-weight of every path at the first collapse."""
    decoder = make_toy_decoder(
        config, TOKENIZER, seed=seed, scorers={"phi": lambda c: Phi()} if config.scorers else None
    )
    runner = ToyRunner(MODEL, (0,))
    turn = decoder.start(runner.root())
    bundle = decoder._growth.bundle  # the draws with their log q are nowhere else to be had
    while not any(isinstance(e, Collapsed) for e in turn.events):
        turn = decoder.advance(runner.run(turn))
    (collapse,) = [e for e in turn.events if isinstance(e, Collapsed)]
    weights = {p.index: p.log_weight for p in collapse.paths}
    return [(tuple(p.draws), weights[p.index]) for p in bundle.paths]


def as_it_is(draws: Sequence[Draw], log_weight: float) -> float:
    return log_weight


def without_spawn_weight(draws: Sequence[Draw], log_weight: float) -> float:
    return log_weight + draws[0].log_q


def without_proposal_correction(draws: Sequence[Draw], log_weight: float) -> float:
    return log_weight + math.fsum(d.log_q for d in draws[1:])


def without_signals(draws: Sequence[Draw], log_weight: float) -> float:
    return log_weight - LAMBDA * phi(TOKENIZER.decode([d.token for d in draws]))


@cache
def generations(num: int) -> list[list[tuple[tuple[Draw, ...], float]]]:
    config = DecodeConfig(**OPTIONS)
    return [first_segment(config, seed) for seed in range(num)]


def estimates(term: Callable[..., float], num: int) -> dict[str, np.ndarray]:
    """sum_k w_k f(x_k) of each generation, shape ``(num,)``, for each f."""
    found: dict[str, list[float]] = {name: [] for name in FUNCTIONS}
    for paths in generations(num):
        weighted = [
            (math.exp(term(draws, weight)), tuple(d.token for d in draws))
            for draws, weight in paths
        ]
        for name, f in FUNCTIONS.items():
            found[name].append(math.fsum(w * f(x) for w, x in weighted))
    return {name: np.array(values) for name, values in found.items()}


def z_scores(term: Callable[..., float], num: int = 6000) -> list[float]:
    """Distance of each mean from the truth in standard errors."""
    exact = truth(OPTIONS["beta"], LAMBDA)
    return [
        float((values.mean() - exact[name]) / (values.std(ddof=1) / math.sqrt(num)))
        for name, values in estimates(term, num).items()
    ]


def test_estimates_are_right_in_the_mean() -> None:
    assert max(map(abs, z_scores(as_it_is))) < 4


@pytest.mark.parametrize(
    "term", [without_spawn_weight, without_proposal_correction, without_signals]
)
def test_they_are_wrong_when_a_term_is_left_out(term: Callable[..., float]) -> None:
    assert max(map(abs, z_scores(term))) > 8


def decay(term: Callable[..., float]) -> float:
    """Slope of log RMS error over log R, for means over R generations."""
    values, exact = estimates(term, 6000)["one"], truth(OPTIONS["beta"], LAMBDA)["one"]
    sizes = [5, 20, 80, 320]
    errors = []
    for size in sizes:
        means = values[: len(values) // size * size].reshape(-1, size).mean(1)
        errors.append(math.sqrt(((means - exact) ** 2).mean()))
    return float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])


def test_the_error_falls_as_the_square_root_of_the_work() -> None:
    assert -0.65 < decay(as_it_is) < -0.35


@pytest.mark.parametrize("term", [without_spawn_weight, without_proposal_correction])
def test_the_error_stays_when_a_term_is_left_out(term: Callable[..., float]) -> None:
    assert decay(term) > -0.3


@pytest.mark.parametrize(
    "options",
    [
        {"k": 4, "spawn_temperature": 1.0, "temperature": 1.0, "beta": 1.0},  # all tokens spawned
        {"k": 3, "spawn_temperature": 0.5, "temperature": 2.0, "beta": 0.5},
        {"k": 2, "score_every": 5},
        {"k": 2, "scorers": {}},
    ],
    ids=str,
)
def test_other_settings_are_right_in_the_mean(options: Mapping[str, Any]) -> None:
    config = DecodeConfig(**{**OPTIONS, **options})
    exact = truth(config.beta, config.scorers.get("phi", 0.0))
    runs = [first_segment(config, seed) for seed in range(2000)]
    for name, f in FUNCTIONS.items():
        values = np.array(
            [sum(math.exp(w) * f(tuple(d.token for d in draws)) for draws, w in r) for r in runs]
        )
        error = values.std(ddof=1) / math.sqrt(len(runs))
        assert abs(values.mean() - exact[name]) < 4 * error + 1e-9


def test_with_every_token_spawned_and_no_further_one_the_estimate_is_exact() -> None:
    config = DecodeConfig(**{**OPTIONS, "k": 4, "segment_length": 1})
    for seed in range(3):
        total = sum(math.exp(weight) for _, weight in first_segment(config, seed))
        expected = sum(
            math.exp(1.5 * log_pi((t,)) + LAMBDA * phi(TOKENIZER.decode([t]))) for t in range(4)
        )
        assert math.isclose(total, expected, rel_tol=1e-6)


# The spawn by itself


def ordered_sample_probability(order: Sequence[int], probs: np.ndarray) -> float:
    """Plackett-Luce: one after the other, without replacement."""
    left, probability = 1.0, 1.0
    for token in order:
        probability *= probs[token] / left
        left -= probs[token]
    return probability


@pytest.mark.parametrize("k", [1, 2, 3])
def test_spawn_is_sampling_without_replacement(k: int) -> None:
    """Frequencies of ordered samples against their enumerated probabilities."""
    logits, temperature, num = np.array([1.5, 0.0, 0.7, -1.0, 0.2], np.float32), 0.8, 20000
    probs = np.exp(logits / temperature) / np.exp(logits / temperature).sum()
    rng, counts = np.random.default_rng(5), {}
    for _ in range(num):
        draws = spawn(NextToken(logits), k, temperature=temperature, min_p=0.0, rng=rng)
        order = tuple(d.token for d in draws)
        counts[order] = counts.get(order, 0) + 1
    chi_square = 0.0
    orders = list(itertools.permutations(range(len(logits)), k))
    for order in orders:
        expected = num * ordered_sample_probability(order, probs)
        chi_square += (counts.get(order, 0) - expected) ** 2 / expected
    freedom = len(orders) - 1
    assert chi_square < freedom + 5 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_the_inverse_of_the_inclusion_probability_counts_each_token_once(k: int) -> None:
    """E[1(token spawned) / q(token)] = 1 for every token, in the mean over kappa."""
    logits, num = np.array([1.5, 0.0, 0.7, -1.0, 0.2], np.float32), 20000
    rng, values = np.random.default_rng(6), np.zeros((num, len(logits)))
    for row in values:
        for draw in spawn(NextToken(logits), k, temperature=1.0, min_p=0.0, rng=rng):
            row[draw.token] = math.exp(-draw.log_q)
    errors = values.std(0, ddof=1) / math.sqrt(num)
    assert (np.abs(values.mean(0) - 1) < 4.5 * errors).all()


@pytest.mark.parametrize("k", [1, 2, 3])
def test_inclusion_probabilities_are_those_of_the_enumeration(k: int) -> None:
    """How often a token is among the k, against the sum over ordered samples that hold it."""
    logits, num = np.array([1.0, 0.0, -0.5, 0.5], np.float32), 20000
    probs = np.exp(logits) / np.exp(logits).sum()
    exact = np.zeros(len(logits))
    for order in itertools.permutations(range(len(logits)), k):
        exact[list(order)] += ordered_sample_probability(order, probs)
    rng, counts = np.random.default_rng(8), np.zeros(len(logits))
    for _ in range(num):
        for draw in spawn(NextToken(logits), k, temperature=1.0, min_p=0.0, rng=rng):
            counts[draw.token] += 1
    assert (np.abs(counts / num - exact) < 4.5 * np.sqrt(exact * (1 - exact) / num)).all()


@pytest.mark.parametrize("log_prob", [-700.0, -40.0, -1.0, -1e-9])
@pytest.mark.parametrize("kappa", [-800.0, -45.0, -3.0, 0.0, 5.0, 30.0, 800.0])
def test_log_inclusion_is_finite_and_at_most_zero(log_prob: float, kappa: float) -> None:
    value = log_inclusion(log_prob, kappa)
    assert math.isfinite(value)
    assert value <= 0
    assert value <= log_prob - kappa + 1e-12  # 1 - exp(-x) <= x


def test_log_inclusion_is_the_formula_where_that_can_be_computed() -> None:
    for log_prob, kappa in itertools.product((-5.0, -1.0, -0.1), (-4.0, 0.0, 3.0)):
        expected = math.log(1 - math.exp(-math.exp(log_prob - kappa)))
        assert math.isclose(log_inclusion(log_prob, kappa), expected, rel_tol=1e-9)
