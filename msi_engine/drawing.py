"""Drawing: which tokens the paths take, and from which stream of random numbers.

Every path of every segment has a stream of its own, and so have each spawn and each sampled
collapse. What one path draws therefore never depends on how many others are alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from msi_engine.config import DecodeConfig
from msi_engine.path import Draw, PathState
from msi_engine.sampling import NextToken, Proposal
from msi_engine.spawn import spawn

# Streams beside those of the paths, which are numbered from 0.
_SPAWN = 2**32 - 1
_COLLAPSE = 2**32 - 2
_VERIFY = 2**32 - 3


class Drawer:
    """Draws tokens for the paths of a generation.

    Args:
        config: K, spawn options, diversity.
        proposal: How tokens inside a path are drawn.
        seed: Root of all randomness, >= 0.
    """

    def __init__(self, config: DecodeConfig, proposal: Proposal, seed: int) -> None:
        self.seed = seed
        self._config = config
        self._proposal = proposal
        self._streams: dict[tuple[int, int], np.random.Generator] = {}
        # Ordinary decoding leaves its draws to mlx-lm's sampler, which whoever runs the model has.
        self._sampled_outside = config.k == 1 and not config.verifies

    def first(self, root: NextToken, segment: int) -> list[Draw]:
        """First tokens of the paths, given the logits after the committed text."""
        self._streams.clear()  # those of the segment before
        if self._config.k == 1:  # ordinary decoding: a first token is a token like any other
            return self.next([PathState(0)], {0: root}, segment, greedy=False)
        return spawn(
            root,
            self._config.k,
            temperature=self._config.spawn_temperature,
            min_p=self._config.spawn_min_p,
            rng=self._stream(segment, _SPAWN),
        )

    def next(
        self,
        paths: Iterable[PathState],
        rows: Mapping[int, NextToken],
        segment: int,
        *,
        greedy: bool,
    ) -> list[Draw]:
        """One token for each path, in order.

        Args:
            paths: Live paths, by ascending index.
            rows: Next-token logits by path index.
            segment: Number of the segment.
            greedy: Take the most probable token, without the diversity penalty (stragglers).
        """
        if self._sampled_outside:
            return [self._sampled(rows[path.index]) for path in paths]
        draws: list[Draw] = []
        for path in paths:
            row = rows[path.index]
            if greedy:
                draws.append(replace(self._proposal.draw(row, None), how="greedy"))
                continue
            rng = None if self._proposal.greedy else self._stream(segment, path.index)
            penalized = self._penalized(draws)
            logits = penalize(row.processed, penalized, self._config.diversity)
            draw = self._proposal.draw(row, rng, logits)
            draws.append(replace(draw, penalized=penalized) if penalized else draw)
        return draws

    def collapse_stream(self, segment: int) -> np.random.Generator:
        """Randomness for choosing a path; the same at every call."""
        return self._generator(segment, _COLLAPSE)

    def verify_stream(self, segment: int) -> np.random.Generator:
        """Randomness for checking a segment against the target; the same at every call."""
        return self._generator(segment, _VERIFY)

    def _sampled(self, row: NextToken) -> Draw:
        return row.draw(row.sampled, self._proposal.log_q(row, row.sampled))

    def _penalized(self, earlier: list[Draw]) -> tuple[int, ...]:
        """Tokens that the diversity penalty acts on: those of earlier paths at this position."""
        return tuple(draw.token for draw in earlier) if self._config.diversity else ()

    def _stream(self, segment: int, number: int) -> np.random.Generator:
        key = (segment, number)
        if key not in self._streams:
            self._streams[key] = self._generator(segment, number)
        return self._streams[key]

    def _generator(self, segment: int, number: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, segment, number])


def penalize(logits: np.ndarray, tokens: Iterable[int], penalty: float) -> np.ndarray:
    """Logits less the penalty for each mention of a token; the same array if there is none.

    References:
        Vijayakumar et al. (2016), diverse beam search, Hamming diversity, arXiv:1610.02424.
    """
    lowered = logits
    for token in tokens:
        lowered = logits.copy() if lowered is logits else lowered
        lowered[token] -= penalty
    return lowered
