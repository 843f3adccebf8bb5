"""Collapse: K segments become one. Pure; ties go to the lower index."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Similarity = Callable[[Sequence[str]], np.ndarray]
"""Texts to pairwise similarities, shape ``(n, n)``: row = candidate, column = the other."""

_ROUNDING = 1e-12  # means of similarities that differ by less are equal: rounding settles nothing


def argmax(credences: np.ndarray) -> int:
    """Position of the greatest credence."""
    return int(np.argmax(credences))


def sample(credences: np.ndarray, rng: np.random.Generator) -> int:
    """A position drawn by credence."""
    cumulative = np.cumsum(credences)
    position = np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")
    return min(int(position), len(credences) - 1)


def token_vote(segments: Sequence[Sequence[int]], credences: np.ndarray) -> tuple[int, ...]:
    """At each position the token with the most credence, up to the shortest segment's end.

    Args:
        segments: Token ids of each path's segment.
        credences: Shape ``(n,)``.

    References:
        MSI preprint, token-level collapse.
    """
    voted = []
    for column in zip(*segments, strict=False):  # zip stops at the shortest
        votes: dict[int, float] = {}
        for token, credence in zip(column, credences, strict=True):
            votes[token] = votes.get(token, 0.0) + float(credence)
        voted.append(max(votes, key=votes.__getitem__))  # the first of equals: the lowest path's
    return tuple(voted)


def minimum_bayes_risk(texts: Sequence[str], credences: np.ndarray, similarity: Similarity) -> int:
    """Position of the text most similar to the others, weighted by their credences.

    Similarities are averaged over the *other* texts only, so that a text cannot vote for itself.

    References:
        Kumar & Byrne (2004); Eikema & Aziz (2022), arXiv:2108.04718.
    """
    if len(texts) == 1:
        return 0
    scores = similarity(texts).astype(np.float64)
    np.fill_diagonal(scores, 0.0)
    if not (credences < 1).all():  # one path has all the weight: there is nobody to agree with
        return argmax(credences)
    weights = np.tile(credences, (len(texts), 1))
    np.fill_diagonal(weights, 0.0)
    weights /= weights.sum(axis=1, keepdims=True)
    means = (scores * weights).sum(axis=1)
    return int(np.argmax(means > means.max() - _ROUNDING))


class Choice:
    """The collapse of one bundle, which may be asked what it would be under other credences.

    Args:
        mode: ``argmax``, ``sample``, ``token_vote`` or ``mbr``.
        segments: Token ids of each candidate.
        texts: Their texts.
        similarity: Of texts; computed once, and only by `mbr`.
        stream: Makes the randomness of `sample`, the same each time.
    """

    def __init__(
        self,
        mode: str,
        segments: Sequence[tuple[int, ...]],
        texts: Sequence[str],
        similarity: Similarity,
        stream: Callable[[], np.random.Generator],
    ) -> None:
        self._mode = mode
        self._segments = segments
        self._texts = texts
        self._stream = stream
        self._similarity = functools.cache(lambda: similarity(texts))

    def segment(self, credences: np.ndarray) -> tuple[int, ...]:
        """The segment that these credences choose; by vote it may be none of the candidates."""
        if self._mode == "token_vote":
            return token_vote(self._segments, credences)
        return self._segments[self._position(credences)]

    def _position(self, credences: np.ndarray) -> int:
        if self._mode == "sample":
            return sample(credences, self._stream())
        if self._mode == "mbr":
            return minimum_bayes_risk(self._texts, credences, lambda _: self._similarity())
        return argmax(credences)


def chrf_similarity(texts: Sequence[str]) -> np.ndarray:
    """Pairwise chrF in [0, 1], the row as hypothesis and the column as reference.

    References:
        Popović (2015), chrF, https://aclanthology.org/W15-3049, as computed by sacrebleu.
    """
    from sacrebleu.metrics.chrf import CHRF  # imported on first use: half a second

    chrf = CHRF()
    scores = np.ones((len(texts), len(texts)))
    for row, hypothesis in enumerate(texts):
        for column, reference in enumerate(texts):
            if row != column:
                scores[row, column] = _chrf(chrf, hypothesis, reference)
    return scores


def _chrf(chrf: Any, hypothesis: str, reference: str) -> float:
    if not hypothesis.strip() or not reference.strip():
        return float(hypothesis.strip() == reference.strip())
    return float(chrf.sentence_score(hypothesis, [reference]).score) / 100.0
