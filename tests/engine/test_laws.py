"""Laws, credences, entropy and effective sample size: properties that must hold for any numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msi_engine import DecodeConfig
from msi_engine.credence import effective_sample_size, entropy, make_law, normalize
from msi_engine.path import Draw, PathState
from tests.reference.weights import log_weight

NUMBERS = st.floats(-1e4, 1e4)
WEIGHTS = st.lists(st.one_of(NUMBERS, st.just(-math.inf)), min_size=1, max_size=64).filter(
    lambda weights: max(weights) > -math.inf
)
# (log pi, log q, signal) of each token.
TOKENS = st.lists(
    st.tuples(st.floats(-50, 0), st.floats(-50, 0), st.floats(-50, 50)), min_size=1, max_size=40
)
CONFIGS = st.builds(
    lambda law, alpha, beta: DecodeConfig(law=law, length_penalty=alpha, beta=beta),
    st.sampled_from(["paper", "mean", "posterior"]),
    st.floats(0, 4),
    st.floats(0, 16),
)


def path_of(tokens: list[tuple[float, float, float]]) -> PathState:
    path = PathState(0)
    for logprob, log_q, signal in tokens:
        path.push(Draw(0, logprob, log_q, 0.0), "x")
        path.signals.append(signal)
    return path


@given(WEIGHTS)
def test_credences_sum_to_one_and_dead_paths_have_none(weights: list[float]) -> None:
    credences = normalize(weights)
    assert math.isclose(credences.sum(), 1, rel_tol=1e-12)
    assert (credences >= 0).all()
    assert (credences[np.isneginf(weights)] == 0).all()


@given(WEIGHTS, NUMBERS)
def test_a_constant_added_to_all_log_weights_changes_nothing(
    weights: list[float], shift: float
) -> None:
    shifted = normalize([w + shift for w in weights])
    np.testing.assert_allclose(shifted, normalize(weights), atol=1e-10)


@given(WEIGHTS, st.randoms(use_true_random=False))
def test_the_order_of_the_paths_does_not_matter(weights: list[float], random: object) -> None:
    order = list(range(len(weights)))
    random.shuffle(order)  # type: ignore[attr-defined]
    permuted = normalize([weights[i] for i in order])
    np.testing.assert_allclose(permuted, normalize(weights)[order], atol=1e-12)


@given(st.integers(1, 64))
def test_without_any_weight_all_paths_are_equal(n: int) -> None:
    assert normalize([-math.inf] * n).tolist() == [1 / n] * n


@given(WEIGHTS)
def test_entropy_and_effective_sample_size_keep_their_bounds(weights: list[float]) -> None:
    credences = normalize(weights)
    n = int((credences > 0).sum())
    assert 0 <= entropy(credences) <= math.log(n) + 1e-9
    assert 1 - 1e-9 <= effective_sample_size(credences) <= n * (1 + 1e-9)
    # The Renyi entropy of order 2 is never above that of Shannon.
    assert math.log(effective_sample_size(credences)) <= entropy(credences) + 1e-9


@pytest.mark.parametrize("n", [1, 2, 7, 64])
def test_equal_and_certain_credences_are_the_extremes(n: int) -> None:
    equal, certain = np.full(n, 1 / n), np.eye(n)[0]
    assert math.isclose(entropy(equal), math.log(n), abs_tol=1e-12)
    assert math.isclose(effective_sample_size(equal), n)
    assert entropy(certain) == 0
    assert effective_sample_size(certain) == 1


@given(CONFIGS, TOKENS, st.integers(1, 64))
def test_laws_are_those_of_the_specification_at_every_length(
    config: DecodeConfig, tokens: list[tuple[float, float, float]], num_paths: int
) -> None:
    law, path = make_law(config, num_paths), path_of(tokens)
    for n in range(1, len(tokens) + 1):
        expected = log_weight(config, num_paths, *map(list, zip(*tokens[:n], strict=True)))
        assert math.isclose(law(path, n), expected, rel_tol=1e-9, abs_tol=1e-9)


@given(TOKENS)
def test_paper_charges_nothing_for_the_spawn_token(tokens: list[tuple[float, ...]]) -> None:
    law = make_law(DecodeConfig(law="paper"), 4)
    dear = [(-1000.0, -3.0, 17.0), *tokens[1:]]
    assert math.isclose(law(path_of(tokens), len(tokens)), law(path_of(dear), len(tokens)))
    assert law(path_of(tokens), 1) == -math.log(4)


@given(TOKENS, st.floats(-30, 30))
def test_mean_and_posterior_count_only_the_last_signal(
    tokens: list[tuple[float, ...]], other: float
) -> None:
    changed = [(pi, q, other) for pi, q, _ in tokens[:-1]] + tokens[-1:]
    for name in ("mean", "posterior"):
        law = make_law(DecodeConfig(law=name), 4)
        assert law(path_of(tokens), len(tokens)) == law(path_of(changed), len(tokens))


@given(TOKENS)
def test_drawing_from_the_model_itself_gives_equal_posterior_weights(
    tokens: list[tuple[float, ...]],
) -> None:
    own = [(pi, pi, 0.0) for pi, _, _ in tokens]
    law = make_law(DecodeConfig(law="posterior", beta=1.0), 4)
    assert math.isclose(law(path_of(own), len(own)), 0, abs_tol=1e-9)
