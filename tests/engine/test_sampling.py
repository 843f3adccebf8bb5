"""What K paths draw from against mlx-lm's own filters, on random and on spiteful logits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mlx_lm import sample_utils

from msi_engine import DecodeConfig
from msi_engine.errors import DecodeError
from msi_engine.sampling import NextToken, Proposal, processed_logprobs

SPECIAL = [1, 3]


@pytest.fixture(scope="module", autouse=True)
def uncompiled() -> Iterator[None]:
    """mlx-lm compiles its filters; on a CPU that calls a C++ compiler for every new shape."""
    mx.disable_compile()
    yield
    mx.enable_compile()


OFF = {"top_p": 0.0, "min_p": 0.0, "min_tokens_to_keep": 1, "top_k": 0}


def mlx_probabilities(logits: np.ndarray, options: dict[str, Any], *, xtc: bool) -> np.ndarray:
    """The distribution at the end of mlx-lm's chain; XTC's coin is given."""
    o = {**OFF, "temperature": 1.0, "xtc_threshold": 0.1, **options}
    row = mx.array(logits)[None]
    row = row - mx.logsumexp(row, keepdims=True)
    if 0 < o["top_p"] < 1:
        row = sample_utils.apply_top_p(row, o["top_p"])
    if o["min_p"]:
        row = sample_utils.apply_min_p(row, o["min_p"], o["min_tokens_to_keep"])
    if xtc:
        row = sample_utils.apply_xtc(row, 1.0, o["xtc_threshold"], SPECIAL)
    if o["top_k"]:
        row = sample_utils.apply_top_k(row, o["top_k"])
    return np.array(mx.softmax(row * (1 / o["temperature"]), -1)[0])


def our_probabilities(logits: np.ndarray, options: dict[str, Any]) -> np.ndarray:
    """exp(log q) of every token, without XTC's coin."""
    proposal = Proposal(DecodeConfig(**{"temperature": 1.0, **options}), SPECIAL)
    row = NextToken(logits)
    return np.exp([proposal.log_q(row, token) for token in range(len(logits))])


def nothing_is_borderline(logits: np.ndarray, options: dict[str, Any]) -> bool:
    """False where float32 rounding alone decides what a filter keeps."""
    if np.diff(np.unique(logits[np.isfinite(logits)])).min(initial=1) < 1e-5:
        return False
    probs = np.sort(np.exp(processed_logprobs(logits)).astype(np.float64))[::-1]
    edges = [np.cumsum(probs) - options["top_p"]] if options.get("top_p") else []
    if options.get("min_p"):
        edges.append(probs / probs[0] - options["min_p"])
    return all(np.abs(edge[edge != 0]).min(initial=1) > 1e-5 for edge in edges)


def has_tie_at(logits: np.ndarray, rank: int) -> bool:
    ordered = np.sort(logits)[::-1]
    return 0 < rank < len(ordered) and ordered[rank - 1] == ordered[rank]


def check_equal(ours: np.ndarray, theirs: np.ndarray, *, any_of_equals: bool) -> None:
    """Same supports and probabilities; of tied tokens any may have been kept."""
    if any_of_equals:
        ours, theirs = np.sort(ours), np.sort(theirs)
    assert ((ours > 1e-30) == (theirs > 1e-30)).all()
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


FLOATS = st.one_of(
    st.floats(-20, 20, width=32), st.sampled_from([0.0, 1.0, -1.0, 5.0, -float("inf"), -60.0])
)
LOGITS = st.one_of(
    st.lists(FLOATS, min_size=5, max_size=40),
    st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=5, max_size=40),  # ties everywhere
    st.integers(5, 40).map(lambda n: [0.0] * n),  # flat
    st.integers(5, 40).map(lambda n: [9.0] + [-float("inf")] * (n - 1)),  # one token
    st.integers(300, 900).map(lambda n: [8.0, 7.5] + [-4.5 - i * 1e-4 for i in range(n)]),  # tail
)
OPTIONS = st.fixed_dictionaries(
    {"temperature": st.sampled_from([0.3, 0.8, 1.0, 1.7])},
    optional={
        "top_p": st.sampled_from([0.05, 0.37, 0.82, 0.9371, 0.9993]),
        "min_p": st.sampled_from([0.013, 0.117, 0.53]),
        "min_tokens_to_keep": st.integers(1, 4),
        "top_k": st.integers(1, 4),
    },
)


def arranged(logits: list[float], options: dict[str, Any]) -> tuple[np.ndarray, bool]:
    """Logits as float32, and whether ties make the kept tokens a matter of taste."""
    row = np.array(logits, np.float32)
    assume(np.isfinite(row.max()) and nothing_is_borderline(row, options))
    ranks = [options.get("top_k", 0)]
    if options.get("min_p"):
        ranks.append(options.get("min_tokens_to_keep", 1))
    return row, any(has_tie_at(row, rank) for rank in ranks)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(LOGITS, OPTIONS)
def test_filters_keep_and_weigh_what_those_of_mlx_lm_do(
    logits: list[float], options: dict[str, Any]
) -> None:
    row, taste = arranged(logits, options)
    theirs = mlx_probabilities(row, options, xtc=False)
    check_equal(our_probabilities(row, options), theirs, any_of_equals=taste)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(LOGITS, OPTIONS, st.sampled_from([0.0, 0.073, 0.31, 0.5]), st.sampled_from([0.2, 0.5, 1.0]))
def test_xtc_is_mixed_with_its_coin_summed_out(
    logits: list[float], options: dict[str, Any], threshold: float, probability: float
) -> None:
    options = {**options, "xtc_threshold": threshold}
    row, taste = arranged(logits, options)
    plain = mlx_probabilities(row, options, xtc=False)
    kept = np.exp(processed_logprobs(row)) * (
        mlx_probabilities(row, {**options, "top_k": 0}, xtc=False) > 0
    )
    assume(np.abs(kept / kept.sum() - threshold).min() > 1e-5)
    thinned = mlx_probabilities(row, options, xtc=True)
    # After thinning top_k may cut elsewhere.
    taste = taste or len(np.unique(row)) < len(row)
    ours = our_probabilities(row, {**options, "xtc_probability": probability})
    theirs = probability * thinned + (1 - probability) * plain
    if taste:
        assert math.isclose(ours.sum(), theirs.sum(), abs_tol=1e-4)
        assert math.isclose((ours**2).sum(), (theirs**2).sum(), abs_tol=1e-4) or "top_k" in options
    else:
        check_equal(ours, theirs, any_of_equals=False)


def test_min_tokens_to_keep_is_exact_where_tokens_are_tied() -> None:
    """All tokens tied with the last one kept were kept."""
    row = np.array([2, 1, 1, 1, 0], np.float32)
    options = {"min_p": 0.53, "min_tokens_to_keep": 2}
    theirs = mlx_probabilities(row, options, xtc=False)
    check_equal(our_probabilities(row, options), theirs, any_of_equals=True)


def test_all_filters_at_once_on_a_real_sized_vocabulary() -> None:
    rng = np.random.default_rng(1)
    options = {"temperature": 0.7, "top_p": 0.9, "min_p": 0.02, "min_tokens_to_keep": 3, "top_k": 9}
    for scale in (0.01, 1.0, 3.0, 8.0):
        row = rng.normal(0, scale, 49152).astype(np.float32)
        theirs = mlx_probabilities(row, options, xtc=False)
        proposal = Proposal(DecodeConfig(**options))
        likely = np.argsort(-row)[:40]
        ours = np.exp([proposal.log_q(NextToken(row), int(token)) for token in likely])
        check_equal(ours, theirs[likely], any_of_equals=False)
        assert math.isclose(ours.sum(), 1, abs_tol=1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.5, "top_p": 0.8},
        {"temperature": 2.0, "top_k": 3},
        {"xtc_probability": 0.4, "xtc_threshold": 0.1, "min_p": 0.05},
    ],
)
def test_tokens_come_as_often_as_log_q_says(options: dict[str, Any]) -> None:
    """Chi-square over 20000 draws; 5 standard deviations, the seed being fixed."""
    row = NextToken(np.array([2.0, 0.5, 1.7, -1.0, 1.2, -9.0, -float("inf")], np.float32))
    proposal = Proposal(DecodeConfig(**{"temperature": 1.0, **options}), SPECIAL)
    rng = np.random.default_rng(7)
    draws = [proposal.draw(row, rng) for _ in range(20000)]
    counts = np.bincount([d.token for d in draws], minlength=7)
    probs = np.exp([proposal.log_q(row, t) for t in range(7)])
    assert math.isclose(probs.sum(), 1, abs_tol=1e-9)
    assert (counts[probs == 0] == 0).all()
    expected = 20000 * probs[probs > 0]
    chi_square = ((counts[probs > 0] - expected) ** 2 / expected).sum()
    freedom = len(expected) - 1
    assert chi_square < freedom + 5 * math.sqrt(2 * freedom) + 5
    assert all(math.isclose(d.log_q, math.log(probs[d.token])) for d in draws[:50])


def test_logprobs_are_of_the_raw_logits_and_the_draw_is_of_the_processed_ones() -> None:
    raw = np.array([3.0, 2.0, 0.0], np.float32)
    row = NextToken(raw, np.array([-float("inf"), 0.0, 1.0], np.float32))
    draw = Proposal(DecodeConfig(temperature=0.0)).draw(row, None)
    assert (draw.token, draw.log_q, draw.margin) == (2, 0.0, 1.0)
    assert math.isclose(draw.logprob, -math.log(math.exp(3) + math.exp(2) + 1), rel_tol=1e-6)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value", [-float("inf"), float("nan")])
def test_logits_that_leave_nothing_to_draw_are_refused(temperature: float, value: float) -> None:
    row = NextToken(np.zeros(3, np.float32), np.full(3, value, np.float32))
    proposal = Proposal(DecodeConfig(temperature=temperature))
    with pytest.raises(DecodeError, match="check the logits processors"):
        proposal.draw(row, np.random.default_rng(0))
