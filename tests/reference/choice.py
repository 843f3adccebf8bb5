"""Spawn and the collapse modes, written out from the specification."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from sacrebleu import sentence_chrf


def argmax(values: Sequence[float]) -> int:
    return max(range(len(values)), key=lambda i: (values[i], -i))


def gap(values: Sequence[float]) -> float:
    """How far the best is ahead of the second."""
    ordered = sorted(values, reverse=True)
    return ordered[0] - ordered[1] if len(ordered) > 1 else math.inf


def spawn(logits: np.ndarray, k: int, min_p: float) -> tuple[list[int], float]:
    """The first tokens of at most ``k`` paths, and how narrow that choice was, in logits."""
    top = logits.max()
    if top == -math.inf:
        raise ValueError("every token is masked")
    order = np.lexsort((np.arange(len(logits)), -logits))[: k + 1]  # ties to the lower id
    floor = top + math.log(min_p) if k > 1 and min_p > 0 else -math.inf
    tokens = [int(t) for t in order[:k] if logits[t] >= floor and logits[t] > -math.inf]
    leads = -np.diff(logits[order[: len(tokens) + 1]])
    if floor > -math.inf:
        leads = np.append(leads, np.abs(logits[order[:k]] - floor))
    return tokens, float(min(leads, default=math.inf))


def similarities(texts: Sequence[str], shares: Sequence[float]) -> list[float]:
    """Each path's mean similarity to the others, weighted by their credence."""
    found = []
    for i, text in enumerate(texts):
        others = [j for j in range(len(texts)) if j != i]
        total = sum(shares[j] * _chrf(text, texts[j]) for j in others)
        rest = 1 - shares[i]
        found.append(total / rest if rest > 0 else math.inf)
    return found


def _chrf(text: str, reference: str) -> float:
    if not text.strip() or not reference.strip():  # chrF is not defined there
        return float(text.strip() == reference.strip())
    return sentence_chrf(text, [reference]).score / 100


def vote(
    segments: Sequence[Sequence[int]], shares: Sequence[float]
) -> tuple[tuple[int, ...], float]:
    """The voted segment, and the least lead that a token had over another."""
    tokens, lead = [], math.inf
    for position in range(min(map(len, segments))):
        ballots: dict[int, float] = {}  # in the order of the paths, so the first wins a tie
        for segment, share in zip(segments, shares, strict=True):
            ballots[segment[position]] = ballots.get(segment[position], 0.0) + share
        tokens.append(max(ballots, key=lambda token: ballots[token]))
        lead = min(lead, gap(list(ballots.values())))
    return tuple(tokens), lead
