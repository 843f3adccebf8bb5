"""The key-value cache of one generation: a prefix stored once, and short tails of K paths.

The prefix lives in mlx-lm's own caches, so that a single sequence costs and gives exactly what mlx-lm
gives. A fork opens empty tails over it (nothing is copied), a collapse appends one path's tail to
it. Memory is O(prefix + K x segment) at every moment: tails grow in steps of ``segment_length``
columns, the prefix in mlx-lm's steps of 256.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from msi_engine.cache import hook, support
from msi_engine.cache.hook import Fetched
from msi_engine.cache.kinds import QuantizedTail, Tail, open_tail
from msi_engine.cache.tail import KVTail
from msi_engine.cache.upstream import KVCache, make_prompt_cache, trim_prompt_cache
from msi_engine.errors import CacheError, NotTrimmableError


class SharedPrefixCache:
    """Keys, values and states of one generation.

    It is *linear* (one sequence, the prefix) or *forked* (paths with tails over the prefix).
    Live paths always have tails of one length. Not for use from several threads at once.

    Attributes:
        prefix_length: Tokens in the prefix.
    """

    def __init__(
        self,
        model: nn.Module,
        prefix: list[Any],
        *,
        segment_length: int,
        quantization: support.Quantization | None,
    ) -> None:
        """Use `for_model`, which checks the model first."""
        self.prefix_length = 0
        self._model = model
        self._prefix = prefix
        self._step = segment_length
        self._quantization = quantization
        self._recurrent = support.is_recurrent(prefix)
        self._fetches: dict[int, Fetched] = {}
        self._intact = True
        self._close()

    @classmethod
    def for_model(
        cls,
        model: nn.Module,
        *,
        segment_length: int = 32,
        max_kv_size: int | None = None,
        kv_bits: int | None = None,
        kv_group_size: int = 64,
        quantized_kv_start: int = 5000,
    ) -> SharedPrefixCache:
        """An empty cache for ``model``.

        Args:
            model: A model of mlx-lm, as loaded.
            segment_length: Columns by which tails grow; the usual longest segment.
            max_kv_size: Tokens of a sliding window over the cache. As in mlx-lm it counts only for
                models that do not make caches of their own.
            kv_bits: Bits of a quantised cache; None keeps it as it is.
            kv_group_size: Entries that share a scale.
            quantized_kv_start: Tokens from which on the cache is quantised.

        Raises:
            UnsupportedModelError: If this model, or this combination, cannot be served rightly.
        """
        quantization = None
        if kv_bits is not None:
            quantization = support.Quantization(kv_bits, kv_group_size, quantized_kv_start)
        prefix = make_prompt_cache(model, max_kv_size)
        support.check(model, prefix, quantization)
        return cls(model, prefix, segment_length=segment_length, quantization=quantization)

    # One sequence

    def prefill(
        self,
        tokens: Sequence[int],
        step_size: int,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Append ``tokens`` to the prefix in chunks of ``step_size`` and compute it.

        Logits are never computed. ``on_progress(done, total)`` is called after each chunk.

        Raises:
            CacheError: If paths are open.
        """
        self._require_linear("prefill")
        for start in range(0, len(tokens), step_size):
            chunk = mx.array(tokens[start : start + step_size])[None]
            self.forward(chunk)
            self.evaluate()
            mx.clear_cache()
            if on_progress is not None:
                on_progress(min(start + step_size, len(tokens)), len(tokens))

    def forward(self, tokens: mx.array) -> mx.array:
        """Append tokens and return the logits after each of them, lazily.

        Args:
            tokens: Linear: shape ``(1, L)``. Forked: shape ``(len(live), L)``, row i belonging to
                path ``live[i]``. They need not be evaluated yet.

        Returns:
            Logits, shape ``(rows, L, V)``.

        Raises:
            CacheError: If no path is live, or the number of rows is wrong.
        """
        self._require_intact()
        rows = len(self._live) if self._tails is not None else 1
        if tokens.ndim != 2 or tokens.shape[0] != rows or rows == 0 or tokens.shape[1] == 0:
            raise CacheError(
                f"tokens must have shape ({rows}, L) for {rows} sequences, got {tokens.shape}; "
                "feed one row for each live path"
            )
        return self._forward_prefix(tokens) if self._tails is None else self._forward_tails(tokens)

    def can_trim(self, num_tokens: int) -> bool:
        """Whether `trim` can take back that many tokens."""
        return (
            self._tails is None
            and 0 <= num_tokens <= self.prefix_length
            and all(support.can_trim(c, num_tokens) for c in self._prefix)
        )

    def trim(self, num_tokens: int) -> None:
        """Take back the last tokens of the prefix.

        Raises:
            NotTrimmableError: If a layer's state cannot be taken back that far.
            CacheError: If paths are open, or there are fewer tokens.
        """
        self._require_linear("trim")
        if not 0 <= num_tokens <= self.prefix_length:
            raise CacheError(f"cannot trim {num_tokens} of {self.prefix_length} tokens")
        if num_tokens == 0:
            return
        if not self.can_trim(num_tokens):
            kinds = sorted({type(c).__name__ for c in self._prefix})
            raise NotTrimmableError(
                f"{num_tokens} tokens cannot be taken back from {', '.join(kinds)}; "
                "fork before tokens that may have to go"
            )
        trim_prompt_cache(self._prefix, num_tokens)
        self.prefix_length -= num_tokens

    # Paths

    @property
    def live(self) -> tuple[int, ...]:
        """Paths that the next `forward` steps, in row order; empty when linear."""
        return tuple(self._live)

    def fork(self, num_paths: int) -> None:
        """Open ``num_paths`` empty tails over the prefix, paths 0 to ``num_paths`` - 1.

        Raises:
            CacheError: If paths are open already, or there would be none.
        """
        self._require_linear("fork")
        if num_paths < 1:
            raise CacheError(f"a fork needs at least 1 path, got {num_paths}")
        hook.install(self._model)
        self._tails = [open_tail(c, num_paths, self._step, self._fetches) for c in self._prefix]
        self._live = list(range(num_paths))
        self._rows = list(self._live)
        self._next_path = num_paths

    def park(self, path: int) -> None:
        """Stop stepping a live path; its tail is kept until it is collapsed or dropped.

        Raises:
            CacheError: If the path is not live.
        """
        if path not in self._live:
            raise CacheError(f"path {path} cannot be parked; live are {self._live}")
        self._live.remove(path)
        self._parked[path] = self._length

    def drop(self, path: int) -> None:
        """Forget the tail of a live or parked path.

        Raises:
            CacheError: If there is no such path.
        """
        if path in self._live:
            self._live.remove(path)
        elif self._parked.pop(path, None) is not None:
            self._history.pop(path, None)
            for tail in self._open_tails():
                tail.drop(path)
        else:
            raise CacheError(f"path {path} cannot be dropped; open are {self._paths()}")

    def branch(self) -> int:
        """A fresh live path with an empty tail at the fork point, when no path is live.

        It counts as one more path against the bound on memory while the parked ones are kept.

        Raises:
            CacheError: If the cache is linear or a path is live.
        """
        tails = self._open_tails()
        if self._live:
            raise CacheError(f"a branch needs every path parked or dropped; live are {self._live}")
        self._settle()
        self._restart(tails, [self._next_path])
        self._next_path += 1
        return self._live[0]

    def truncate_tails(self, length: int) -> None:
        """Take the tails of all live paths back to ``length`` tokens.

        A recurrent state is brought there by feeding the tokens again from the fork.

        Raises:
            CacheError: If the cache is linear or the tails are shorter.
        """
        tails = self._open_tails()
        if not 0 <= length <= self._length:
            raise CacheError(f"tails of {self._length} tokens cannot be cut to {length}")
        if length == self._length or not self._live:
            return
        self._settle()
        if self._recurrent:
            tokens = mx.concatenate(self._log, axis=1)[:, :length]
            self._replay(tails, tokens, list(self._live))
            return
        for tail in tails:
            tail.truncate(length)
        self._length = length

    def collapse(self, path: int, length: int | None = None) -> None:
        """Make a path's tail part of the prefix, forget all others, and be linear again.

        The tail is appended in place. Only a recurrent model, when ``length`` is less than the
        tail, has to feed these tokens once more.

        Args:
            path: A live or parked path.
            length: How many of its tail's tokens to take; all when None.

        Raises:
            CacheError: If there is no such path, or its tail is shorter.
        """
        tails = self._open_tails()
        if path not in self._live and path not in self._parked:
            raise CacheError(f"path {path} cannot be collapsed to; open are {self._paths()}")
        held = self._parked.get(path, self._length)
        length = held if length is None else length
        if not 0 <= length <= held:
            raise CacheError(f"path {path} has {held} tokens, cannot take {length}")
        row = self._rows.index(path) if path in self._rows else None
        if self._recurrent and length < held:
            tokens = mx.concatenate(self._log_of(path), axis=1)[:, :length]
            self._replay(tails, tokens, [path])
            row = 0
        for tail in tails:
            tail.commit(row, path, length)
        self._close()
        self.prefix_length += length
        self.evaluate()

    # Memory

    @property
    def nbytes(self) -> int:
        """Bytes allocated now, prefix and tails."""
        tails = self._tails or ()
        return sum(c.nbytes for c in self._prefix if not c.empty()) + sum(t.nbytes for t in tails)

    def evaluate(self) -> None:
        """Compute everything held, and nothing else (no logits)."""
        held = [c.state for c in self._prefix] + [t.arrays() for t in self._tails or ()]
        mx.eval(held)

    # How it is done

    def _forward_prefix(self, tokens: mx.array) -> mx.array:
        self._intact = False  # stays so if the model raises half-way: some layers have the tokens
        logits: mx.array = self._model(tokens, cache=self._prefix)
        self._intact = True
        self.prefix_length += tokens.shape[1]
        if self._quantization is not None:
            self._prefix = [self._quantization.applied(c) for c in self._prefix]
        return logits

    def _forward_tails(self, tokens: mx.array) -> mx.array:
        self._settle()
        self._intact = False
        with hook.watching(self._fetches):
            logits: mx.array = self._model(tokens, cache=self._tails)
        self._intact = True
        self._length += tokens.shape[1]
        if self._recurrent:
            self._log.append(tokens)
        if self._quantization is not None:
            self._quantize_tails(self._quantization)
        return logits

    def _quantize_tails(self, quantization: support.Quantization) -> None:
        """Quantise prefix and tails together once prefix + tail is long enough, as mlx-lm does."""
        tails = self._open_tails()
        for i, tail in enumerate(tails):
            plain = type(tail) is KVTail and type(self._prefix[i]) is KVCache
            if plain and tail.offset >= quantization.start:
                self._prefix[i] = quantization.quantized(self._prefix[i])
                tails[i] = QuantizedTail.from_plain(tail, self._prefix[i])

    def _settle(self) -> None:
        """Set parked rows aside and close the gaps, so that rows are exactly the live paths.

        Late, so that paths that leave in the same step cost one copy of the tails and not one each.
        """
        if self._rows == self._live:
            return
        tails = self._open_tails()
        keep = [self._rows.index(path) for path in self._live]
        aside = [(path, row) for row, path in enumerate(self._rows) if path in self._parked]
        for tail in tails:
            for path, row in aside:
                tail.park(path, row)
            tail.select(keep)
        if self._recurrent:
            for path, _ in aside:
                self._history[path] = self._log_of(path)
            index = mx.array(keep, mx.int32)
            self._log = [mx.take(x, index, axis=0) for x in self._log] if keep else []
        self._rows = list(self._live)

    def _restart(self, tails: list[Tail], paths: list[int]) -> None:
        for tail in tails:
            tail.restart(len(paths))
        self._live, self._rows = paths, list(paths)
        self._length, self._log = 0, []

    def _replay(self, tails: list[Tail], tokens: mx.array, paths: list[int]) -> None:
        self._restart(tails, paths)
        if tokens.shape[1]:
            self._forward_tails(tokens)
        self.evaluate()

    def _log_of(self, path: int) -> list[mx.array]:
        if path not in self._rows:
            return self._history[path]
        row = self._rows.index(path)
        return [x[row : row + 1] for x in self._log]

    def _close(self) -> None:
        """Linear, with nothing beside the prefix."""
        self._tails: list[Tail] | None = None
        self._live: list[int] = []
        self._rows: list[int] = []  # path of each row of the tails' buffers; live once settled
        self._parked: dict[int, int] = {}  # tail length of each
        self._length = 0  # tokens in every live tail
        self._log: list[mx.array] = []  # tokens fed since the fork, kept for recurrent models
        self._history: dict[int, list[mx.array]] = {}  # the same of parked paths
        self._next_path = 0

    def _paths(self) -> list[int]:
        return sorted([*self._live, *self._parked])

    def _open_tails(self) -> list[Tail]:
        self._require_intact()
        if self._tails is None:
            raise CacheError("no paths are open; fork first")
        return self._tails

    def _require_linear(self, what: str) -> None:
        self._require_intact()
        if self._tails is not None:
            raise CacheError(f"cannot {what} while paths are open; collapse first")

    def _require_intact(self) -> None:
        if not self._intact:
            raise CacheError("a forward pass broke off half-way through the layers; start afresh")
