"""The paths of one fork: which of them are stepped, which wait, and where their tails lie.

Knows path numbers and rows, and asks the tails of the layers to follow. Does not know how a tail
stores anything, nor what a path means to the decoder.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from msi_engine.cache import hook
from msi_engine.cache.hook import Fetched
from msi_engine.cache.kinds import QuantizedTail, Tail, open_tail
from msi_engine.cache.support import Quantization, is_recurrent
from msi_engine.cache.tail import KVTail
from msi_engine.cache.upstream import KVCache
from msi_engine.errors import CacheError


class Fork:
    """Tails of several paths over one prefix.

    Attributes:
        tails: One a layer; to the model this is its list of caches.
        live: Paths in row order.
        parked: Tail length of each path that waits.
        length: Tokens in every live tail.
        replays: Passes that fed tokens again, to take a recurrent state back.
    """

    def __init__(self, model: Module, prefix: list[Any], num_paths: int, step: int) -> None:
        self._model = model
        self._prefix = prefix
        self._fetches: dict[int, Fetched] = {}
        self.tails: list[Tail] = [open_tail(c, num_paths, step, self._fetches) for c in prefix]
        self.live = list(range(num_paths))
        self.parked: dict[int, int] = {}
        self.length = 0
        self.replays = 0
        self._rows = list(self.live)  # path of each row of the buffers; equals live once settled
        self._next_path = num_paths
        self._recurrent = is_recurrent(prefix)
        self._log: list[mx.array] = []  # tokens fed since the fork, kept for recurrent models
        self._parked_logs: dict[int, list[mx.array]] = {}

    def forward(self, tokens: mx.array, quantization: Quantization | None = None) -> mx.array:
        """Step every live path; see `SharedPrefixCache.forward`. All or nothing."""
        self._settle()
        marks = [tail.mark() for tail in self.tails]
        try:
            with hook.watching(self._fetches):
                logits: mx.array = self._model(tokens, cache=self.tails)
        except BaseException:
            for tail, mark in zip(self.tails, marks, strict=True):
                tail.reset(mark)
            raise
        self.length += tokens.shape[1]
        if self._recurrent:
            self._log.append(tokens)
        if quantization is not None:
            self._quantize(quantization)
        return logits

    def park(self, path: int) -> None:
        """Stop stepping a live path, keep its tail."""
        if path not in self.live:
            raise CacheError(f"path {path} cannot be parked; live are {self.live}")
        self.live.remove(path)
        self.parked[path] = self.length

    def drop(self, path: int) -> None:
        """Forget a path."""
        self._require(path, "dropped")
        if path in self.live:
            self.live.remove(path)
            return
        del self.parked[path]
        self._parked_logs.pop(path, None)
        for tail in self.tails:
            tail.drop(path)

    def branch(self) -> int:
        """A fresh live path with an empty tail."""
        if self.live:
            raise CacheError(f"a branch needs every path parked or dropped; live are {self.live}")
        self._settle()
        self._restart([self._next_path])
        self._next_path += 1
        return self.live[0]

    def truncate(self, length: int) -> None:
        """Take all live tails back to ``length`` tokens."""
        if not 0 <= length <= self.length:
            raise CacheError(f"tails of {self.length} tokens cannot be cut to {length}")
        if length == self.length or not self.live:
            return
        self._settle()
        if self._recurrent:
            self._replay(self._log, length, list(self.live))
            return
        for tail in self.tails:
            tail.truncate(length)
        self.length = length

    def commit(self, path: int, length: int | None) -> int:
        """Append a path's first ``length`` tokens (None: all) to the prefix; return how many.

        Nothing else may be asked of the fork afterwards.
        """
        self._require(path, "collapsed to")
        held = self.parked.get(path, self.length)
        length = held if length is None else length
        if not 0 <= length <= held:
            raise CacheError(f"path {path} has {held} tokens, cannot take {length}")
        row = self._rows.index(path) if path in self._rows else None
        if self._recurrent and length < held:
            self._replay(self._log_of(path), length, [path])
            row = 0
        for tail in self.tails:
            tail.commit(row, path, length)
        return length

    def arrays(self) -> list[Any]:
        """Everything held beside the prefix."""
        return [tail.arrays() for tail in self.tails]

    @property
    def nbytes(self) -> int:
        """Bytes allocated beside the prefix."""
        return sum(tail.nbytes for tail in self.tails)

    def _settle(self) -> None:
        """Set parked rows aside and close the gaps, so that rows are exactly the live paths.

        Late, so that paths that leave in the same step cost one copy of the tails and not one each.
        """
        if self._rows == self.live:
            return
        keep = [self._rows.index(path) for path in self.live]
        aside = [(path, row) for row, path in enumerate(self._rows) if path in self.parked]
        for tail in self.tails:
            for path, row in aside:
                tail.park(path, row)
            tail.select(keep)
        if self._recurrent:
            for path, _ in aside:
                self._parked_logs[path] = self._log_of(path)
            index = mx.array(keep, mx.int32)
            self._log = [mx.take(x, index, axis=0) for x in self._log] if keep else []
        self._rows = list(self.live)
        if aside:
            # No forward pass needs the parked copies; until they are made they hold all old rows.
            mx.async_eval(self.arrays())

    def _restart(self, paths: list[int]) -> None:
        for tail in self.tails:
            tail.restart(len(paths))
        self.live, self._rows = paths, list(paths)
        self.length, self._log = 0, []

    def _replay(self, log: list[mx.array], length: int, paths: list[int]) -> None:
        """Bring ``paths`` to ``length`` tokens from the fork: a recurrent state has no way back."""
        tokens = mx.concatenate(log, axis=1)[:, :length]
        self._restart(paths)
        if length:
            self.replays += 1
            self.forward(tokens)
            mx.eval(self.arrays())

    def _log_of(self, path: int) -> list[mx.array]:
        if path not in self._rows:
            return self._parked_logs[path]
        row = self._rows.index(path)
        return [x[row : row + 1] for x in self._log]

    def _quantize(self, quantization: Quantization) -> None:
        """Quantise prefix and tails together once prefix + tail is long enough, as mlx-lm does."""
        for i, tail in enumerate(self.tails):
            if type(self._prefix[i]) is not KVCache or not isinstance(tail, KVTail):
                continue
            if tail.offset >= quantization.start:
                self._prefix[i] = quantization.quantized(self._prefix[i])
                self.tails[i] = QuantizedTail.from_plain(tail, self._prefix[i])

    def _require(self, path: int, what: str) -> None:
        if path not in self.live and path not in self.parked:
            raise CacheError(
                f"path {path} cannot be {what}; open are {sorted([*self.live, *self.parked])}"
            )
