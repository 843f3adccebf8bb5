"""Spawn: the first tokens of K paths, drawn without replacement. Pure NumPy."""

from __future__ import annotations

import math

import numpy as np

from msi_engine.path import Draw
from msi_engine.sampling import NextToken, processed_logprobs


def spawn(
    row: NextToken,
    k: int,
    *,
    temperature: float,
    min_p: float,
    rng: np.random.Generator,
) -> list[Draw]:
    """Choose up to ``k`` distinct first tokens.

    At temperature 0 the most probable ones (ties to the lower id), each with log q = 0. Otherwise
    a Gumbel top-k sample from softmax(logits / temperature), each with its log inclusion
    probability given the (k+1)-th perturbed log-probability.

    Args:
        row: The model's opinion after the committed text. Candidates come from the processed
            logits, floor included, so that masked tokens are never spawned.
        k: Most paths, at least 1.
        temperature: Spawn temperature, >= 0.
        min_p: Tokens of less than this share of the top probability are not spawned, in [0, 1].
        rng: Source of one Gumbel draw a candidate; unused at temperature 0.

    Returns:
        Between 1 and ``k`` draws, the first choice first.

    Raises:
        DecodeError: If every token is masked.

    References:
        Kool, van Hoof, Welling (2019), secs. 3 and 4.2, arXiv:1903.06059.
    """
    if temperature == 0:
        return [row.draw(token, 0.0, "spawn") for token in most_probable(row, k, min_p)]
    candidates, values = tempered(row, temperature, min_p)
    perturbed = values + rng.gumbel(size=len(values))
    order = _largest(perturbed, k + 1)
    kappa = perturbed[order[k]] if len(order) > k else -np.inf
    return [row.draw(candidates[i], log_inclusion(values[i], kappa), "spawn") for i in order[:k]]


def most_probable(row: NextToken, k: int, min_p: float) -> list[int]:
    """The tokens that are spawned at temperature 0, the most probable first."""
    candidates, logprobs = _candidates(row, min_p)
    return [int(candidates[i]) for i in _largest(logprobs, k)]


def tempered(row: NextToken, temperature: float, min_p: float) -> tuple[np.ndarray, np.ndarray]:
    """Tokens that may be spawned, ascending, and their log-probabilities at a temperature > 0."""
    candidates, logprobs = _candidates(row, min_p)
    values = logprobs / temperature
    values -= np.logaddexp.reduce(values)
    return candidates, values


def _candidates(row: NextToken, min_p: float) -> tuple[np.ndarray, np.ndarray]:
    """Tokens above the floor, ascending, with processed log-probabilities, float64 nats."""
    logprobs = processed_logprobs(row.processed)
    floor = logprobs.max() + math.log(min_p) if min_p > 0 else -np.inf
    candidates = np.flatnonzero((logprobs >= floor) & (logprobs > -np.inf))
    return candidates, logprobs[candidates].astype(np.float64)


def log_inclusion(log_prob: float, kappa: float) -> float:
    """Log of P(Gumbel(log_prob) > kappa) = log(1 - exp(-exp(log_prob - kappa))), nats.

    ``kappa`` is the greatest perturbed log-probability that was not chosen; ``-inf`` when
    everything was, and the answer is then 0.
    """
    if kappa == -np.inf:
        return 0.0
    log_rate = log_prob - kappa
    if log_rate < -30:  # 1 - exp(-x) is x to float64 precision, and exp(-x) might be 1
        return log_rate
    return math.log(-math.expm1(-math.exp(min(log_rate, 700.0))))


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """Positions of the greatest values, greatest first, ties to the lower position."""
    if count < len(values):
        # Everything at or above the count-th value, so that ties are cut by position alone.
        edge = np.partition(values, -count)[-count]
        positions = np.flatnonzero(values >= edge)
    else:
        positions = np.arange(len(values))
    return positions[np.argsort(-values[positions], kind="stable")][:count]
