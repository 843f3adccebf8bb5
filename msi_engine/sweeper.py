"""The sweeper: runs the target over candidates for the next segment, on a cache of its own.

A sweep opens tails over the target's prefix and reads the candidates there, so that taking tokens
back costs nothing for any kind of cache, and a sweep that breaks off leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx

from msi_engine.cache import SharedPrefixCache
from msi_engine.feed import Accept, Reject
from msi_engine.sampling import NextToken
from msi_engine.stepping import LogitsProcessor, next_tokens

_LATE = 256  # tokens read with a sweep: their logits, each as wide as the vocabulary, are made too
_PAD = 0  # after the end of a shorter row; no token before it can see it


class Sweeper:
    """The target's part of one generation.

    Args:
        cache: The target's cache, through which it is run. Holds some of the committed tokens,
            never the last one: its logits are wanted with the next sweep.
        processors: The logits processors of the generation; they act on the target's logits, too.
        history: Token ids of the prompt and of what is committed.
        step_size: Most committed tokens that a sweep reads on the way.
        num_logits: Logits to keep of each row, from the first; None is all.

    Attributes:
        passes: Passes of the target over its weights so far, those that took a recurrent state
            back among them.
    """

    def __init__(
        self,
        cache: SharedPrefixCache,
        processors: Sequence[LogitsProcessor],
        history: Callable[[], list[int]],
        step_size: int,
        num_logits: int | None = None,
    ) -> None:
        self.passes = 0
        self._num_logits = num_logits
        self._cache = cache
        self._processors = list(processors)
        self._history = history
        self._step_size = step_size
        self._late = 0  # committed tokens that the sweep under way has read

    @property
    def nbytes(self) -> int:
        """Bytes of its cache."""
        return self._cache.nbytes

    def sweep(self, rows: Sequence[Sequence[int]]) -> list[NextToken]:
        """The target's logits before each token of each row, row after row."""
        committed = self._history()
        late = self._catch_up(committed)
        length = len(late) + max(map(len, rows)) - 1
        padded = [[*late, *row[:-1]] for row in rows]
        tokens = mx.array([row + [_PAD] * (length - len(row)) for row in padded])
        self._cache.fork(len(rows))
        try:
            self.passes += 1
            logits = self._cache.forward(tokens)[..., : self._num_logits]
            mx.eval(logits)
            self._late = len(late)
            return [
                opinion
                for row, own in zip(rows, logits, strict=True)
                for opinion in self._opinions(committed, row, own[len(late) - 1 :])
            ]
        except BaseException:
            self._cache.abandon()
            raise

    def settle(self, op: Accept | Reject) -> None:
        """Keep part of what the last sweep read, or nothing."""
        match op:
            case Accept(row, length):
                self.passes += self._cache.collapse(row, self._late + length)
            case Reject():
                self._cache.abandon()

    def _catch_up(self, committed: Sequence[int]) -> Sequence[int]:
        """Committed tokens that the target has not seen; if they are too many, the last of them."""
        late = committed[self._cache.prefix_length :]
        if len(late) <= min(self._step_size, _LATE):
            return late
        self.passes += -(-(len(late) - 1) // self._step_size)
        self._cache.prefill(late[:-1], self._step_size)
        return late[-1:]

    def _opinions(
        self, committed: list[int], row: Sequence[int], logits: mx.array
    ) -> list[NextToken]:
        """Raw and processed logits before each token of a row."""
        histories = ([*committed, *row[:i]] for i in range(len(row)))
        return next_tokens(self._processors, logits[: len(row)], histories)
