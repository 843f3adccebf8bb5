"""The three laws, credences and their entropy, written out from the specification."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from msi_engine import DecodeConfig


def log_softmax(logits: np.ndarray) -> np.ndarray:
    top = logits.max()
    return np.asarray(logits - (top + math.log(np.exp(logits - top).sum())))


def log_weight(
    config: DecodeConfig,
    num_spawned: int,
    logprobs: Sequence[float],
    log_qs: Sequence[float],
    signals: Sequence[float],
) -> float:
    """One path's log-weight, nats.

    ``logprobs``, ``log_qs`` and ``signals`` (sum_j lambda_j phi_j(t)) have an entry a token.
    """
    n = len(logprobs)
    if config.law == "paper":
        paid = [logprobs[t] + signals[t] for t in range(1, n)]
        return -math.log(num_spawned) + math.fsum(paid)
    if config.law == "mean":
        return math.fsum(logprobs) / float(n**config.length_penalty) + signals[n - 1]
    paid = [config.beta * logprobs[t] - log_qs[t] for t in range(n)]
    return math.fsum(paid) + signals[n - 1]


def credences(log_weights: Sequence[float]) -> list[float]:
    top = max(log_weights)
    shares = [math.exp(w - top) for w in log_weights]
    return [s / math.fsum(shares) for s in shares]


def entropy(shares: Sequence[float]) -> float:
    return -math.fsum(c * math.log(c) for c in shares if c > 0)
