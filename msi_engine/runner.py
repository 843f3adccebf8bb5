"""The runner: carries out the decoder's turns on a model and its shared-prefix cache.

The only place where a generation meets MLX. With one path it keeps one forward pass in flight,
as mlx-lm does: the next token is sampled on the device and fed before Python has seen it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import mlx.core as mx
import numpy as np

from msi_engine.cache import SharedPrefixCache
from msi_engine.errors import CacheError, DecodeError
from msi_engine.feed import (
    BRANCH,
    Accept,
    Branch,
    CacheOp,
    Drop,
    Feed,
    Fork,
    Merge,
    Park,
    Reject,
    Sweep,
    Turn,
)
from msi_engine.sampling import NextToken, processed_max
from msi_engine.stepping import LogitsProcessor, next_tokens, process, to_numpy
from msi_engine.sweeper import Sweeper

Sampler = Callable[[mx.array], mx.array]

_CLEAR_EVERY = 256  # passes between releases of MLX's buffer cache, as in mlx-lm


class Runner:
    """Cache and processors of one generation.

    Args:
        cache: The cache of the model, through which it is run; holds the prompt but its last token.
        processors: mlx-lm logits processors ``(tokens (n,), logits (1, V)) -> (1, V)``. They must
            be functions of their arguments: each path calls them with its own tokens.
        history: The decoder's `history`: token ids of a path, for the processors.
        sweeper: Runs the target, where there is one.
        num_logits: Logits to keep of each row, from the first; None is all.

    Attributes:
        peak_bytes: Most bytes that the caches have held.
        draft_s: Seconds in passes of the model, those of the target not counted.
        sweep_s: Seconds in sweeps of the target.
        replays: Passes of the model that took a recurrent state back, beside those asked for.
    """

    def __init__(
        self,
        cache: SharedPrefixCache,
        processors: Sequence[LogitsProcessor],
        history: Callable[[int | None], list[int]],
        sweeper: Sweeper | None = None,
        num_logits: int | None = None,
    ) -> None:
        self.draft_s = 0.0
        self.sweep_s = 0.0
        self.replays = 0
        self._cache = cache
        self._sweeper = sweeper
        self._num_logits = num_logits
        self._processors = list(processors)
        self._history = history
        self._branch: int | None = None
        self._passes = 0
        self.peak_bytes = cache.nbytes

    def run(self, turn: Turn) -> list[NextToken]:
        """Apply the turn's cache operations, run its feed, return next-token logits by row."""
        for op in turn.ops:
            self._apply(op)
        if turn.feed is None:
            return []
        self._passes += 1
        if self._passes % _CLEAR_EVERY == 0:
            mx.clear_cache()
        start = time.perf_counter()
        if isinstance(turn.feed, Sweep):
            rows = self._target.sweep(turn.feed.rows)
            self.sweep_s += time.perf_counter() - start
        else:
            rows = self._forward(turn.feed)
            self.draft_s += time.perf_counter() - start
        held = self._cache.nbytes + (0 if self._sweeper is None else self._sweeper.nbytes)
        self.peak_bytes = max(self.peak_bytes, held)
        return rows

    def root(self, token: int) -> NextToken:
        """Feed the prompt's last token, on the prefix."""
        return self._rows(self._logits(((token,),))[:, -1], [None])[0]

    def _apply(self, op: CacheOp) -> None:
        match op:
            case Fork(num_paths):
                self._cache.fork(num_paths)
            case Park(path):
                self._cache.park(path)
            case Drop(path):
                self._cache.drop(path)
            case Merge(path, length):
                winner = self._branch if path == BRANCH else path
                self.replays += self._cache.collapse(winner, length)  # type: ignore[arg-type]
            case Branch():
                self._branch = self._cache.branch()
            case Accept() | Reject():
                self._target.settle(op)

    @property
    def _target(self) -> Sweeper:
        if self._sweeper is None:
            raise DecodeError("a sweep was asked for and there is no target; this is a bug")
        return self._sweeper

    def _forward(self, feed: Feed) -> list[NextToken]:
        logits = self._logits(feed.tokens)
        if feed.all_positions:
            return self._positions(logits[0], feed.paths[0])
        return self._rows(logits[:, -1], feed.paths)

    def _logits(self, tokens: tuple[tuple[int, ...], ...]) -> mx.array:
        return self._cache.forward(mx.array(tokens))[..., : self._num_logits]

    def _rows(self, logits: mx.array, paths: Sequence[int | None]) -> list[NextToken]:
        return next_tokens(self._processors, logits, map(self._history, paths))

    def _positions(self, logits: mx.array, path: int | None) -> list[NextToken]:
        """Logits after each token of one row, each processed as if it were the last."""
        history = self._history(path)
        begin = len(history) - len(logits) + 1
        histories = (history[:end] for end in range(begin, len(history) + 1))
        return next_tokens(self._processors, logits, histories)


class SingleRunner(Runner):
    """K = 1: ordinary decoding with mlx-lm's own sampler, one pass ahead of Python.

    Args:
        sampler: mlx-lm sampler, log-probabilities ``(1, V)`` to tokens ``(1,)``.
        max_tokens: Tokens after which nothing is fed ahead.
    """

    def __init__(self, *args: Any, sampler: Sampler, max_tokens: int) -> None:
        super().__init__(*args)
        self._sampler = sampler
        self._left = max_tokens
        self._tokens = mx.array(self._history(None)) if self._processors else None
        self._ahead: _Sampled | None = None

    def root(self, token: int) -> NextToken:
        """Feed the prompt's last token and begin to run ahead."""
        current = self._sample(self._cache.forward(mx.array([[token]]))[:, -1])
        self._run_ahead(current)
        return current

    def _forward(self, feed: Feed) -> list[NextToken]:
        current = self._ahead
        if current is None:
            raise CacheError("a token was fed after the last one; this is a bug in the decoder")
        self._run_ahead(current)
        return [current]

    def _sample(self, logits: mx.array) -> _Sampled:
        processed = logits
        if self._tokens is not None:
            processed = process(self._processors, self._tokens, logits[:])
        logprobs = processed - mx.logsumexp(processed, keepdims=True)
        return _Sampled(logits, processed, self._sampler(logprobs))

    def _run_ahead(self, current: _Sampled) -> None:
        """Feed the token that is still being sampled, unless it is the last."""
        self._left -= 1
        if self._left <= 0:
            self._ahead = None
            mx.async_eval(*current.arrays)
            return
        if self._tokens is not None:
            self._tokens = mx.concatenate([self._tokens, current.token])
        self._ahead = self._sample(self._cache.forward(current.token[None])[:, -1])
        mx.async_eval(*current.arrays, *self._ahead.arrays)


class _Sampled(NextToken):
    """Logits and sampled token still on the device; read when somebody looks."""

    def __init__(self, logits: mx.array, processed: mx.array, token: mx.array) -> None:
        self.arrays = (logits, processed, token)
        self.token = token

    @cached_property
    def raw(self) -> np.ndarray:  # type: ignore[override]
        row: np.ndarray = to_numpy(self.arrays[0])[0]
        return row

    @cached_property
    def processed(self) -> np.ndarray:  # type: ignore[override]
        logits, processed, _ = self.arrays
        return self.raw if processed is logits else to_numpy(processed)[0]

    @cached_property
    def sampled(self) -> int:
        token = int(np.array(self.token)[0])
        processed_max(self.processed)
        if not np.isfinite(self.processed[token]):
            raise DecodeError(
                "the logits after processing leave no token to draw; check the logits processors"
            )
        return token
