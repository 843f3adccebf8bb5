"""Drawing tokens: the model's next-token logits, mlx-lm's filters, and the proposal they make.

NumPy throughout. On a CPU mlx-lm's top-p sorts the whole vocabulary on every path; here only the
few tokens that can matter are sorted. The filters and their order are mlx-lm's, so that K paths
draw from the distribution that its sampler draws from (`tests/engine/test_sampling.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from msi_engine.config import DecodeConfig
from msi_engine.errors import DecodeError
from msi_engine.path import Draw, How

# Tokens this many nats below the best are left out of the first top-p sort.
_SORT_FLOOR = 12.0


class NextToken:
    """The model's opinion of one path's next token.

    Args:
        raw: Unprocessed logits, shape ``(V,)`` float32.
        processed: The same after the logits processors; ``raw`` itself when there are none.
    """

    def __init__(self, raw: np.ndarray, processed: np.ndarray | None = None) -> None:
        self.raw = raw
        self.processed = raw if processed is None else processed

    @cached_property
    def sampled(self) -> int:
        """The token that ordinary decoding takes; here the most probable processed one."""
        return best_token(self.processed)

    @cached_property
    def has_choice(self) -> bool:
        """False if the logits processors leave a single token."""
        return self.processed is self.raw or int((self.processed > -np.inf).sum()) > 1

    @cached_property
    def _exp(self) -> tuple[np.ndarray, float, float]:
        top = float(self.raw.max())
        exp = np.exp(self.raw - top)
        return exp, top, float(exp.sum(dtype=np.float64))

    @property
    def log_z(self) -> float:
        """Log-sum-exp of the raw logits, nats."""
        _, top, total = self._exp
        return top + math.log(total)

    def logprob(self, token: int) -> float:
        """Raw log-probability of a token, nats."""
        return float(self.raw[token]) - self.log_z

    def mass(self, mask: np.ndarray) -> float:
        """Raw probability of the tokens in a boolean mask of shape ``(V,)``."""
        exp, _, total = self._exp
        return float(exp[mask].sum(dtype=np.float64)) / total

    @cached_property
    def margin(self) -> float:
        """Greatest minus second greatest raw logit, nats; infinite for a vocabulary of one."""
        best = int(self.raw.argmax())
        rest = max(self.raw[:best].max(initial=-np.inf), self.raw[best + 1 :].max(initial=-np.inf))
        return float(self.raw[best]) - float(rest)

    def draw(
        self, token: int, log_q: float, how: How = "inner", penalized: tuple[int, ...] = ()
    ) -> Draw:
        """The record of having drawn ``token`` with log-probability ``log_q``; see `Draw`."""
        return Draw(int(token), self.logprob(token), log_q, self.margin, how, penalized)


def processed_logprobs(logits: np.ndarray) -> np.ndarray:
    """log_softmax of processed logits, shape ``(V,)`` float32.

    Raises:
        DecodeError: If every token is masked, or a logit is not a number.
    """
    top = logits.max()
    if not np.isfinite(top):
        what = "are not numbers" if np.isnan(top) else "mask every token"
        raise DecodeError(
            f"the logits after processing {what} (largest: {top}); check the logits processors"
        )
    shifted: np.ndarray = logits - top
    shifted -= np.log(np.exp(shifted).sum(dtype=np.float64)).astype(logits.dtype)
    return shifted


class Proposal:
    """The distribution that tokens inside a path are drawn from.

    Args:
        config: Temperature, top_p, min_p, min_tokens_to_keep, xtc_*, top_k.
        xtc_special_tokens: Token ids that XTC never removes.
    """

    def __init__(self, config: DecodeConfig, xtc_special_tokens: Sequence[int] = ()) -> None:
        self.config = config
        self.xtc_special_tokens = np.asarray(sorted(xtc_special_tokens), dtype=np.int64)

    @property
    def greedy(self) -> bool:
        """True at temperature 0, where the most probable token is taken."""
        return self.config.temperature == 0

    def draw(
        self, row: NextToken, rng: np.random.Generator | None, logits: np.ndarray | None = None
    ) -> Draw:
        """Draw one token.

        Args:
            row: The model's opinion.
            rng: Source of at most two uniform draws; None takes the most probable token.
            logits: Processed logits to draw from in place of ``row.processed``.
        """
        logits = row.processed if logits is None else logits
        if self.greedy or rng is None:
            return row.draw(best_token(logits), 0.0)
        plain, thinned = self._supports(processed_logprobs(logits))
        chosen = plain
        if thinned is not None and rng.random() <= self.config.xtc_probability:
            chosen = thinned
        token = chosen.pick(rng.random())
        return row.draw(token, self._log_q(token, plain, thinned))

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """What `draw` draws from, where it is not greedy.

        Args:
            logits: Processed logits, shape ``(V,)``.

        Returns:
            Shape ``(V,)`` float64, summing to 1; XTC's coin is summed out.
        """
        probs = np.zeros(len(logits))
        plain, thinned = self._supports(processed_logprobs(logits))
        share = 0.0 if thinned is None else self.config.xtc_probability
        probs[plain.tokens] += (1 - share) * np.exp(plain.log_probs)
        if thinned is not None:
            probs[thinned.tokens] += share * np.exp(thinned.log_probs)
        return probs

    def log_q(self, row: NextToken, token: int) -> float:
        """Log-probability with which `draw` draws ``token``, nats; 0 when greedy."""
        if self.greedy:
            return 0.0
        return self._log_q(token, *self._supports(processed_logprobs(row.processed)))

    def _log_q(self, token: int, plain: _Support, thinned: _Support | None) -> float:
        if thinned is None:
            return plain.log_prob(token)
        share = self.config.xtc_probability  # XTC's coin is summed out
        return float(
            np.logaddexp(
                plain.log_prob(token) + (math.log1p(-share) if share < 1 else -np.inf),
                thinned.log_prob(token) + math.log(share),
            )
        )

    def _supports(self, logprobs: np.ndarray) -> tuple[_Support, _Support | None]:
        """What may be drawn without XTC and, when it is on, with it."""
        config = self.config
        kept = np.arange(len(logprobs))
        if 0 < config.top_p < 1:
            kept = _top_p(logprobs, config.top_p)
        if config.min_p > 0:
            kept = _min_p(logprobs, kept, config.min_p, config.min_tokens_to_keep)
        plain = _Support.of(logprobs, _top_k(logprobs, kept, config.top_k), config.temperature)
        if config.xtc_probability == 0:
            return plain, None
        thin = _xtc(logprobs, kept, config.xtc_threshold, self.xtc_special_tokens)
        thin = _top_k(logprobs, thin, config.top_k)
        return plain, _Support.of(logprobs, thin, config.temperature)


class _Support:
    """A finite set of tokens with tempered, normalised log-probabilities."""

    def __init__(self, tokens: np.ndarray, log_probs: np.ndarray) -> None:
        self.tokens = tokens
        self.log_probs = log_probs

    @classmethod
    def of(cls, logprobs: np.ndarray, kept: np.ndarray, temperature: float) -> _Support:
        scaled = logprobs[kept].astype(np.float64) / temperature
        scaled -= scaled.max()
        return cls(kept, scaled - np.log(np.exp(scaled).sum()))

    def pick(self, uniform: float) -> int:
        cumulative = np.cumsum(np.exp(self.log_probs))
        position = np.searchsorted(cumulative, uniform * cumulative[-1], side="right")
        return int(self.tokens[min(int(position), len(self.tokens) - 1)])

    def log_prob(self, token: int) -> float:
        position = np.searchsorted(self.tokens, token)  # kept tokens are in ascending order
        if position == len(self.tokens) or self.tokens[position] != token:
            return -math.inf
        return float(self.log_probs[position])


def processed_max(logits: np.ndarray) -> float:
    """The greatest processed logit.

    Raises:
        DecodeError: If every token is masked, or a logit is not a number.
    """
    top = float(logits.max())
    if not math.isfinite(top):
        processed_logprobs(logits)
    return top


def best_token(logits: np.ndarray) -> int:
    """The most probable token by processed logits, the lower id of equals.

    Raises:
        DecodeError: If every token is masked, or a logit is not a number.
    """
    processed_max(logits)
    return int(logits.argmax())


def _top_p(logprobs: np.ndarray, top_p: float) -> np.ndarray:
    """Tokens that hold ``top_p`` of the mass: kept while the mass above them is less."""
    total = float(np.exp(logprobs).sum(dtype=np.float64))
    candidates = np.flatnonzero(logprobs >= logprobs.max() - _SORT_FLOOR)
    probs = np.exp(logprobs[candidates]).astype(np.float64)
    if probs.sum() < top_p * total:  # a flat tail: everything has to be sorted
        candidates = np.arange(len(logprobs))
        probs = np.exp(logprobs).astype(np.float64)
    order = np.argsort(-probs, kind="stable")
    above = np.cumsum(probs[order]) - probs[order]
    threshold = logprobs[candidates[order[np.flatnonzero(above < top_p * total)[-1]]]]
    return np.flatnonzero(logprobs >= threshold)


def _min_p(logprobs: np.ndarray, kept: np.ndarray, min_p: float, at_least: int) -> np.ndarray:
    values = logprobs[kept]
    passes = values >= values.max() + math.log(min_p)
    if at_least > 1:  # exactly so many, whatever is tied; of equals the lower ids
        passes[np.argsort(-values, kind="stable")[:at_least]] = True
    survivors: np.ndarray = kept[passes]
    return survivors


def _xtc(
    logprobs: np.ndarray, kept: np.ndarray, threshold: float, special: np.ndarray
) -> np.ndarray:
    """Drop every token more probable than the least of those above ``threshold``."""
    probs = np.exp(logprobs[kept])
    probs /= probs.sum()
    above = probs[probs > threshold]
    if not len(above):
        return kept
    survivors: np.ndarray = kept[(probs <= above.min()) | np.isin(kept, special)]
    return survivors


def _top_k(logprobs: np.ndarray, kept: np.ndarray, top_k: int) -> np.ndarray:
    if not 0 < top_k < len(kept):
        return kept
    best = np.argpartition(-logprobs[kept], top_k - 1)[:top_k]
    survivors: np.ndarray = kept[np.sort(best)]
    return survivors
