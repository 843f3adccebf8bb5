"""Refinement: what the target makes of tokens that the draft wrote. Pure NumPy.

Asks of every token that is looked at: would the same draw, made from the target's logits, have
given it? For a greedy draw that is a comparison; for a sampled one it is the acceptance step of
speculative sampling, after which the token is distributed as the target's own.

References:
    Leviathan, Kalman, Matias (2023), sec. 2.3 and appendix A.1, arXiv:2211.17192.
    Chen et al. (2023), algorithm 2, arXiv:2302.01318.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from msi_engine.config import DecodeConfig
from msi_engine.drawing import penalize
from msi_engine.events import RefineStats
from msi_engine.path import Draw, PathState
from msi_engine.sampling import NextToken, Proposal, best_token
from msi_engine.spawn import most_probable, tempered

MOST_DRAFTED = 6
"""Tokens drafted for each token of the budget, at most."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the target says of a segment.

    Attributes:
        checked: Positions that were looked at, ascending; the flip is the last of them.
        accepted: How many tokens stand, from the first.
        token: What the target puts after them; None if all stand.
    """

    checked: tuple[int, ...]
    accepted: int
    token: int | None


class Refinement:
    """The rules of one generation.

    Args:
        config: Mode, tau, window, and how tokens are drawn.
        proposal: How tokens inside a path are drawn.
        eos_token_ids: Tokens that end the answer; whether to end is always checked.
        num_prompt: Tokens of the prompt.

    Attributes:
        stats: What it has come to so far.
    """

    def __init__(
        self,
        config: DecodeConfig,
        proposal: Proposal,
        eos_token_ids: Collection[int],
        num_prompt: int,
    ) -> None:
        self.stats = RefineStats(config.refine)
        self._config = config
        self._proposal = proposal
        self._eos = eos_token_ids
        self._num_prompt = num_prompt
        self._root: NextToken
        self._drafts: dict[int, list[NextToken]] = {}

    def begin(self, root: NextToken) -> None:
        """A segment starts; ``root`` is the draft's opinion of its first token."""
        self._root = root
        self._drafts = {}

    def remember(self, path: int, row: NextToken) -> None:
        """Keep what a path's next token, after the first, is drawn from, if that will be asked."""
        if self._config.verifies and not self._proposal.greedy:
            self._drafts.setdefault(path, []).append(row)

    def remember_all(self, path: int, rows: Sequence[NextToken]) -> None:
        """The same for a whole segment."""
        for row in rows:
            self.remember(path, row)

    def segment_length(self, num_output: int) -> int:
        """Cap on the next segment in tokens.

        It shrinks when the target takes back so much that more than `MOST_DRAFTED` times the
        budget would be drafted: checked one by one, every token brings the answer forward.

        Args:
            num_output: Tokens committed so far.
        """
        config = self._config
        if not config.verifies:
            return config.segment_length
        usual = self._window(num_output) if config.k == 1 else config.segment_length
        left = config.max_tokens - num_output
        spare = MOST_DRAFTED * config.max_tokens - self.stats.drafted - left
        return max(1, min(usual, spare + 1))

    def _window(self, num_output: int) -> int:
        """The window, cut where the cache is about to be quantised.

        A token attends to a quantised cache from the first after ``quantized_kv_start`` on. In one
        pass all do or none does, so that the tokens before it and those after it are not in one.
        """
        config = self._config
        before = config.quantized_kv_start - self._num_prompt - num_output
        if config.kv_bits is None or before < 0:
            return config.window
        return min(config.window, max(before, 1))

    def flagged(self, path: PathState) -> tuple[int, ...]:
        """Positions of the segment that the target has to look at."""
        if self._config.refine == "verify":
            return tuple(range(len(path)))
        tau, eos = self._config.tau, self._eos
        return tuple(i for i, d in enumerate(path.draws) if d.margin < tau or d.token in eos)

    def judge(
        self,
        path: PathState,
        flagged: Sequence[int],
        targets: Sequence[NextToken],
        rng: np.random.Generator,
    ) -> Verdict:
        """Look at the flagged tokens in order, up to the first that the target would not have.

        Args:
            path: The segment.
            flagged: Positions to look at, ascending.
            targets: The target's logits before each token of the segment.
            rng: Source of at most two uniform draws a token.
        """
        for count, i in enumerate(flagged):
            token = self._redraw(path.draws[i], self._draft(path.index, i), targets[i], rng)
            if token != path.draws[i].token:
                return Verdict(tuple(flagged[: count + 1]), i, token)
        return Verdict(tuple(flagged), len(path), None)

    def account(self, path: PathState, flagged: Sequence[int], accepted: int) -> None:
        """Count a segment whose first ``accepted`` tokens are being committed."""
        self.stats.drafted += len(path)
        self.stats.deferred += len(flagged)
        self.stats.accepted += accepted
        self.stats.rollbacks += accepted < len(path)

    def _draft(self, path: int, position: int) -> NextToken | None:
        """What a token was drawn from; None where that does not matter."""
        if position == 0:
            return self._root
        rows = self._drafts.get(path)
        return None if rows is None else rows[position - 1]

    def _redraw(
        self, draw: Draw, draft: NextToken | None, target: NextToken, rng: np.random.Generator
    ) -> int:
        """The token itself if it is accepted, else the one that replaces it."""
        if draw.how == "spawn":
            return self._redraw_spawned(draw, draft, target, rng)
        if draw.how == "greedy" or self._proposal.greedy or draft is None:
            return best_token(self._penalized(target, draw))
        wanted = self._proposal.probabilities(self._penalized(target, draw))
        had = self._proposal.probabilities(self._penalized(draft, draw))
        return accept_or_redraw(draw.token, wanted, had, rng)

    def _redraw_spawned(
        self, draw: Draw, draft: NextToken | None, target: NextToken, rng: np.random.Generator
    ) -> int:
        """One of K first tokens stands if the target might have spawned it, too."""
        config = self._config
        if config.spawn_temperature == 0 or draft is None:
            spawned = most_probable(target, config.k, config.spawn_min_p)
            return draw.token if draw.token in spawned else spawned[0]
        wanted, had = (self._spawn_probabilities(row) for row in (target, draft))
        return accept_or_redraw(draw.token, wanted, had, rng)

    def _spawn_probabilities(self, row: NextToken) -> np.ndarray:
        config = self._config
        tokens, logprobs = tempered(row, config.spawn_temperature, config.spawn_min_p)
        probs = np.zeros(len(row.processed))
        probs[tokens] = np.exp(logprobs)
        return probs

    def _penalized(self, row: NextToken, draw: Draw) -> np.ndarray:
        return penalize(row.processed, draw.penalized, self._config.diversity)


def accept_or_redraw(
    token: int, wanted: np.ndarray, had: np.ndarray, rng: np.random.Generator
) -> int:
    """Turn a draw from ``had`` into a draw from ``wanted``, changing it as rarely as possible.

    Args:
        token: Drawn from ``had``.
        wanted: Probabilities, shape ``(V,)`` float64.
        had: The same.
        rng: Source of one uniform draw, and of a second if the token is not accepted.

    Returns:
        The token with probability min(1, wanted / had), else one drawn from the normalised
        positive part of ``wanted - had``.
    """
    if rng.random() * had[token] < wanted[token]:
        return token
    surplus = np.maximum(wanted - had, 0.0)
    if not surplus.any():  # equal but for rounding
        surplus = wanted
    return _pick(surplus, rng.random())


def _pick(weights: np.ndarray, uniform: float) -> int:
    cumulative = np.cumsum(weights)
    place = np.searchsorted(cumulative, uniform * cumulative[-1], side="right")
    return int(min(place, np.flatnonzero(weights)[-1]))


def logprobs(path: PathState, targets: Sequence[NextToken]) -> list[float]:
    """The target's raw log-probability of each token of a segment, nats."""
    return [row.logprob(d.token) for d, row in zip(path.draws, targets, strict=True)]


def by_path(
    paths: Sequence[PathState], rows: Sequence[NextToken]
) -> Iterator[tuple[PathState, Sequence[NextToken]]]:
    """The rows of a sweep over several segments, dealt out to them."""
    begin = 0
    for path in paths:
        yield path, rows[begin : begin + len(path)]
        begin += len(path)
