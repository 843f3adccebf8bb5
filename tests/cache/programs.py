"""Seeded random programs run on a shared-prefix cache and on replicas side by side."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from replicas import Replicas, relative_error
from tiny_models import VOCAB

from msi_engine.cache import SharedPrefixCache


class Pair:
    """A shared-prefix cache and its replicas, driven together.

    Attributes:
        error: Greatest relative difference of logits seen so far.
        held: Tail tokens of each open path.
    """

    def __init__(self, model: nn.Module, *, segment_length: int = 8, **options: Any) -> None:
        self.cache = SharedPrefixCache.for_model(model, segment_length=segment_length, **options)
        self.truth = Replicas(model, **options)
        self.error = 0.0
        self.held: dict[int, int] = {}

    def prefill(self, tokens: list[int], step_size: int) -> None:
        self.cache.prefill(tokens, step_size)
        for i in range(0, len(tokens), step_size):
            self.truth.forward(tokens[i : i + step_size])

    def step(self, tokens: list[int]) -> None:
        self._compare(self.cache.forward(mx.array([tokens])), self.truth.forward(tokens))

    def fork(self, num_paths: int) -> None:
        self.cache.fork(num_paths)
        self.truth.fork(num_paths)
        self.held = dict.fromkeys(range(num_paths), 0)

    def forward(self, tokens: np.ndarray) -> None:
        """One row of tokens for each live path."""
        got = self.cache.forward(mx.array(tokens))
        for row, path in enumerate(self.cache.live):
            want = self.truth.forward_path(path, tokens[row].tolist())
            self._compare(got[row : row + 1], want)
            self.held[path] += tokens.shape[1]
        self.truth.level()

    def park(self, path: int) -> None:
        self.cache.park(path)

    def drop(self, path: int) -> None:
        self.cache.drop(path)
        del self.held[path]

    def branch(self) -> None:
        path = self.cache.branch()
        assert path not in self.held
        self.truth.branch(path)
        self.held[path] = 0

    def truncate(self, length: int) -> None:
        self.cache.truncate_tails(length)
        for path in self.cache.live:
            self.truth.truncate(path, length)
            self.held[path] = length

    def collapse(self, path: int, length: int | None = None) -> None:
        self.cache.collapse(path, length)
        self.truth.collapse(path, self.held[path] if length is None else length)
        self.held = {}

    def trim(self, num_tokens: int) -> None:
        self.cache.trim(num_tokens)
        self.truth.trim(num_tokens)

    def _compare(self, got: mx.array, want: mx.array) -> None:
        assert got.shape == want.shape
        self.error = max(self.error, relative_error(got, want))


def random_program(pair: Pair, seed: int, operations: int = 24, prefix: int = 21) -> None:
    """Prefill, then a random sequence of whatever is allowed, ending in a collapse and a step."""
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> np.ndarray:
        return rng.integers(1, VOCAB, shape)

    if prefix > 1:
        pair.prefill(draw(prefix - 1).tolist(), 9)
    pair.step(draw(1).tolist())
    for _ in range(operations):
        _random_operation(pair, rng, draw)
    if pair.held:
        pair.collapse(int(rng.choice(list(pair.held))))
    pair.step(draw(1).tolist())


def _random_operation(pair: Pair, rng: np.random.Generator, draw: Any) -> None:
    if pair.held:
        _random_forked(pair, rng, draw)
        return
    choice = rng.choice(["step", "chunk", "fork", "fork", "fork", "trim"])
    if choice == "fork":
        pair.fork(int(rng.integers(1, 5)))
    elif choice == "trim" and pair.cache.can_trim(2):
        pair.trim(2)
    else:
        pair.step(draw(3 if choice == "chunk" else 1).tolist())


def _random_forked(pair: Pair, rng: np.random.Generator, draw: Any) -> None:
    live = pair.cache.live
    if not live:
        choice = rng.choice(["branch", "collapse"])
    else:
        choice = rng.choice(
            ["step", "chunk", "park", "drop", "truncate", "collapse", "cut"],
            p=[0.5, 0.14, 0.12, 0.08, 0.06, 0.05, 0.05],
        )
    if choice in ("step", "chunk"):
        pair.forward(draw(len(live), 3 if choice == "chunk" else 1))
    elif choice == "park":
        pair.park(int(rng.choice(live)))
    elif choice == "drop" and len(pair.held) > 1:
        pair.drop(int(rng.choice(list(pair.held))))
    elif choice == "branch":
        pair.branch()
    elif choice == "truncate":
        pair.truncate(int(rng.integers(0, pair.held[live[0]] + 1)))
    elif choice in ("collapse", "cut"):
        path = int(rng.choice(list(pair.held)))
        cut = int(rng.integers(0, pair.held[path] + 1)) if choice == "cut" else None
        pair.collapse(path, cut)
