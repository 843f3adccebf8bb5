"""Laws, and what is made of log-weights: credences, entropy, effective sample size.

Pure float64 mathematics (docs/decoder.md has the formulas). Knows paths as numbers; nothing of text
or models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from msi_engine.config import DecodeConfig
from msi_engine.path import PathState

LawFn = Callable[[PathState, int], float]
"""``law(path, n)`` is the log-weight (nats) of the path's first ``n`` tokens, n >= 1."""


def paper_law(config: DecodeConfig, num_paths: int) -> LawFn:
    """-log K + sum over t >= 2 of [log pi(x_t) + signals(t)]; the spawn token is free.

    References:
        MSI preprint, token-level form.
    """
    log_share = -math.log(num_paths)

    def law(path: PathState, n: int) -> float:
        paid = path.cum_logprob[n - 1] - path.cum_logprob[0]
        return log_share + paid + math.fsum(path.signals[1:n])

    return law


def mean_law(config: DecodeConfig, num_paths: int) -> LawFn:
    """(1 / n^alpha) * sum of log pi(x_t) + signals(n), alpha = ``length_penalty``.

    References:
        Wu et al. (2016), sec. 7, arXiv:1609.08144, in its simplest form.
    """
    alpha = config.length_penalty

    def law(path: PathState, n: int) -> float:
        return float(path.cum_logprob[n - 1] / n**alpha + path.signals[n - 1])

    return law


def posterior_law(config: DecodeConfig, num_paths: int) -> LawFn:
    """Sum of [beta log pi(x_t) - log q(x_t)] + signals(n).

    Properly weighted for pi^beta * exp(signals): the sum over paths of weight times any function
    of the path is an unbiased estimate of that function's sum under the unnormalised target.

    References:
        Kool, van Hoof, Welling (2019), sec. 4.2, arXiv:1903.06059 (the spawn token's log q).
    """
    beta = config.beta

    def law(path: PathState, n: int) -> float:
        return beta * path.cum_logprob[n - 1] - path.cum_log_q[n - 1] + path.signals[n - 1]

    return law


LAWS: dict[str, Callable[[DecodeConfig, int], LawFn]] = {
    "paper": paper_law,
    "mean": mean_law,
    "posterior": posterior_law,
}


def make_law(config: DecodeConfig, num_paths: int) -> LawFn:
    """The law of ``config`` for a segment of ``num_paths`` spawned paths."""
    return LAWS[config.law](config, num_paths)


def normalize(log_weights: Sequence[float]) -> np.ndarray:
    """Credences: softmax of the log-weights.

    Args:
        log_weights: Shape ``(n,)``, nats; ``-inf`` is a path without weight.

    Returns:
        Shape ``(n,)`` float64, summing to 1. Uniform where no path has any weight.
    """
    weights = np.asarray(log_weights, dtype=np.float64)
    top = weights.max()
    if top == -np.inf:
        return np.full(len(weights), 1.0 / len(weights))
    shares: np.ndarray = np.exp(weights - top)
    shares /= shares.sum()
    return shares


def entropy(credences: np.ndarray) -> float:
    """Entropy of the credences in nats, between 0 and log n."""
    positive = credences[credences > 0]
    return max(0.0, float(-(positive * np.log(positive)).sum()))


def effective_sample_size(credences: np.ndarray) -> float:
    """1 / sum of squared credences, between 1 and n.

    References:
        Kong (1992); Liu (2001), Monte Carlo Strategies, sec. 2.5.3.
    """
    return float(1.0 / (credences**2).sum())
