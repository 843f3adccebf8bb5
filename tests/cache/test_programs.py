"""Any program of cache operations gives the logits that K separate mlx-lm caches give."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

import mlx.nn as nn
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from programs import Pair
from tiny_models import VOCAB, make

from msi_engine.errors import CacheError, NotTrimmableError

# Architecture, options of the cache: together every kind of cache and of attention.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "grouped queries": ("llama", {}),
    "multi-head": ("gpt2", {}),
    "multi-query": ("gpt_bigcode", {}),
    "own attention": ("gemma2", {}),
    "keys shared by later layers": ("afm7", {}),
    "latent attention": ("deepseek_v3", {}),
    "sliding window and sinks": ("gpt_oss", {}),
    "sliding window": ("gemma3_text", {}),
    "window shared by later layers": ("gemma3n", {}),
    "max_kv_size": ("mixtral", {"max_kv_size": 16}),
    "quantised": ("qwen3", {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 0}),
    "quantised on the way": (
        "qwen3",
        {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 24},
    ),
    "chunked": ("llama4", {}),
    "state space": ("mamba2", {}),
    "linear attention": ("qwen3_next", {}),
    "convolution": ("lfm2", {}),
    "recurrent and window": ("recurrent_gemma", {}),
    "list of state and attention": ("falcon_h1", {}),
    "list of state and window": ("baichuan_m1", {}),
    "list with an index": ("deepseek_v32", {}),
}

# Float32: the matrix products of K rows and of one round differently in the last bits.
TOLERANCE = 2e-5

# Rows that are quantised may fall on the other side of a rounding step.
QUANTISED_TOLERANCE = 5e-3


@cache
def model_of(name: str) -> nn.Module:
    model = make(name)
    if name == "qwen3":  # quantisation groups need a head as wide as a group
        model = make(name, head_dim=32)
    return model


class Program(RuleBasedStateMachine):
    """Prefill, then anything in any order; every forward compares logits."""

    name = ""
    options: ClassVar[dict[str, Any]] = {}
    tolerance = TOLERANCE

    @initialize(prefix=st.integers(0, 40), seed=st.integers(0, 2**20))
    def begin(self, prefix: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.pair = Pair(model_of(self.name), **self.options)
        if prefix:
            self.pair.prefill(self.draw(prefix).tolist(), 13)

    def draw(self, *shape: int) -> np.ndarray:
        return self.rng.integers(1, VOCAB, shape)

    def check(self) -> None:
        assert self.pair.error <= self.tolerance

    @property
    def live(self) -> tuple[int, ...]:
        return self.pair.cache.live

    @property
    def forked(self) -> bool:
        return bool(self.pair.held)

    # Linear

    @precondition(lambda self: not self.forked)
    @rule(length=st.sampled_from([1, 1, 3]))
    def step(self, length: int) -> None:
        self.pair.step(self.draw(length).tolist())
        self.check()

    @precondition(lambda self: not self.forked)
    @rule(num_tokens=st.integers(1, 6))
    def trim(self, num_tokens: int) -> None:
        if self.pair.cache.can_trim(num_tokens):
            self.pair.trim(num_tokens)
        else:
            with pytest.raises((NotTrimmableError, CacheError)):
                self.pair.cache.trim(num_tokens)
        self.step(1)

    @precondition(lambda self: not self.forked)
    @rule(num_paths=st.integers(1, 4), length=st.sampled_from([1, 1, 3]))
    def fork(self, num_paths: int, length: int) -> None:
        self.pair.fork(num_paths)
        self.forward(length)

    # Forked

    @precondition(lambda self: self.forked and self.live)
    @rule(length=st.sampled_from([1, 1, 1, 3]))
    def forward(self, length: int) -> None:
        self.pair.forward(self.draw(len(self.live), length))
        self.check()

    @precondition(lambda self: self.forked and self.live)
    @rule(which=st.integers(0, 3))
    def park(self, which: int) -> None:
        self.pair.park(self.live[which % len(self.live)])

    @precondition(lambda self: len(self.pair.held) > 1)
    @rule(which=st.integers(0, 7))
    def drop(self, which: int) -> None:
        paths = sorted(self.pair.held)
        self.pair.drop(paths[which % len(paths)])

    @precondition(lambda self: self.forked and not self.live)
    @rule()
    def branch(self) -> None:
        self.pair.branch()
        self.forward(3)

    @precondition(lambda self: self.forked and self.live)
    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        self.pair.truncate(round(share * self.pair.held[self.live[0]]))
        self.forward(1)

    @precondition(lambda self: self.forked)
    @rule(which=st.integers(0, 7), share=st.sampled_from([None, 0.5, 0.9, 0]))
    def collapse(self, which: int, share: float | None) -> None:
        paths = sorted(self.pair.held)
        path = paths[which % len(paths)]
        length = None if share is None else round(share * self.pair.held[path])
        self.pair.collapse(path, length)
        self.step(1)


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_those_of_separate_caches(case: str) -> None:
    name, options = CASES[case]
    tolerance = QUANTISED_TOLERANCE if "kv_bits" in options else TOLERANCE
    fields = {"name": name, "options": options, "tolerance": tolerance}
    machine = type(f"Program_{name}", (Program,), fields)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=6,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("case", CASES)
def test_a_path_that_waits_is_there_unchanged_when_it_wins(case: str) -> None:
    """Whole and cut; with others stepped, parked, dropped and recomputed in between."""
    name, options = CASES[case]
    rng = np.random.default_rng(7)
    pair = Pair(model_of(name), **options)
    pair.prefill(rng.integers(1, VOCAB, 19).tolist(), 8)
    for winner, cut in ((1, None), (3, None), (1, 3), (0, 2), (4, 2)):
        pair.fork(4)

        def forward(length: int = 1) -> None:
            pair.forward(rng.integers(1, VOCAB, (len(pair.cache.live), length)))

        forward()
        forward(2)
        pair.park(1)
        forward()
        pair.park(3)
        pair.drop(2)
        forward()
        assert pair.cache.live == (0,)
        pair.park(0)
        if winner == 4:
            pair.branch()
            forward(3)
        pair.collapse(winner, cut)
        pair.step(rng.integers(1, VOCAB, 1).tolist())
        pair.step(rng.integers(1, VOCAB, 2).tolist())
    assert pair.error <= (QUANTISED_TOLERANCE if "kv_bits" in options else TOLERANCE)


@pytest.mark.parametrize("name", sorted({name for name, _ in CASES.values()}))
def test_models_are_sensitive_to_what_is_cached(name: str) -> None:
    """Or else the comparison above would prove nothing."""
    model = model_of(name)
    pair, other = Pair(model), Pair(model)
    tokens = np.arange(1, 15)
    pair.prefill(tokens[:-1].tolist(), 32)
    other.prefill(np.where(tokens == 8, 50, tokens)[:-1].tolist(), 32)
    last = np.array([[14]])
    pair.fork(1)
    other.fork(1)
    pair.forward(last)
    pair.truth = other.truth
    pair.truncate(0)
    pair.truth.branch(0)
    pair.forward(last)
    assert pair.error > 100 * TOLERANCE
