"""Tails over the other kinds of mlx-lm caches, and the table of the kinds that are served."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import mlx.core as mx

from msi_engine.cache.attention import Packing, Stored
from msi_engine.cache.hook import Fetched
from msi_engine.cache.span import Span, ring
from msi_engine.cache.stored import each, width
from msi_engine.cache.tail import BufferTail, KVTail
from msi_engine.cache.upstream import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
    create_causal_mask,
)


class Tail(Protocol):
    """What the owner asks of the tails of one layer; `BufferTail` says what each means."""

    def select(self, rows: Sequence[int]) -> None: ...  # noqa: D102
    def park(self, path: int, row: int) -> None: ...  # noqa: D102
    def drop(self, path: int) -> None: ...  # noqa: D102
    def restart(self, rows: int) -> None: ...  # noqa: D102
    def truncate(self, length: int) -> None: ...  # noqa: D102
    def commit(self, row: int | None, path: int, length: int) -> None: ...  # noqa: D102
    def mark(self) -> Any: ...  # noqa: D102
    def reset(self, mark: Any) -> None: ...  # noqa: D102
    def arrays(self) -> list[Any]: ...  # noqa: D102
    @property
    def nbytes(self) -> int: ...  # noqa: D102


class WindowTail(KVTail):
    """Tails over a `RotatingKVCache`: what has slid out of the window is not handed out.

    Columns are laid out as mlx-lm's own ring lays them out when it appends a chunk, so that its
    masks fit.
    """

    def __init__(self, prefix: Any, step: int, fetches: dict[int, Fetched]) -> None:
        """Open tails over ``prefix``; see `BufferTail`."""
        self.keep = prefix.keep
        self._max_size: int = prefix.max_size
        super().__init__(prefix, step, fetches)

    def make_mask(
        self, N: int, window_size: int | None = None, return_array: bool = False
    ) -> mx.array | None:
        """The mask of ``N`` new tokens over the columns that they will be given."""
        past = min(self._max_size - 1, self.offset)
        if N > 1:
            window = window_size or self._max_size
            mask: mx.array = create_causal_mask(N, past, window_size=window)
            return mask
        if window_size is None or past < window_size or self._max_size <= window_size:
            return None
        return mx.arange(past + 1) >= past + 1 - window_size

    def _prefix_spans(self) -> tuple[Span, ...]:
        keys, _, offset, keep, _, index = self.prefix.state
        if keys is None or offset == 0:
            return ()
        return ring(keys.shape[2], index, keep, rotated=index < offset)

    def _dropped(self, length: int, appended: int) -> int:
        past = self._have + length
        return past - min(self._max_size - 1, past)


class ChunkedTail(BufferTail):
    """Tails over a `ChunkedKVCache`: the model says when the front may go, and makes its masks."""

    def __init__(self, prefix: Any, step: int, fetches: dict[int, Fetched]) -> None:
        """Open tails over ``prefix``; see `BufferTail`."""
        self.start_position: int = prefix.start_position
        super().__init__(prefix, step, fetches)

    def maybe_trim_front(self) -> None:
        """Hide what is more than a chunk old; nothing is freed before the collapse."""
        first: int = self.prefix.start_position
        if self.keys is not None or self._spans:
            self.start_position = max(first, self.offset - self.prefix.chunk_size)

    def _prefix_spans(self) -> tuple[Span, ...]:
        length = self._base - self.prefix.start_position
        return ((0, length),) if length else ()

    def _dropped(self, length: int, appended: int) -> int:
        first: int = self.prefix.start_position
        return self.start_position - first


class QuantizedTail(KVTail):
    """Tails over a `QuantizedKVCache`: each token's keys and values are quantised as it comes."""

    def __init__(self, prefix: Any, step: int, fetches: dict[int, Fetched]) -> None:
        """Open tails over ``prefix``; see `BufferTail`."""
        self.bits: int = prefix.bits  # mlx-lm's attention looks for these two
        self.group_size: int = prefix.group_size
        self.packing = Packing(self.bits, self.group_size)
        super().__init__(prefix, step, fetches)

    @classmethod
    def from_plain(cls, plain: KVTail, prefix: Any) -> QuantizedTail:
        """Quantise tails, as ``prefix`` has just been quantised."""
        tail = cls(prefix, plain._step, plain._fetches)
        tail.length, tail._last = plain.length, plain._last
        tail.keys, tail.values = tail._pack(plain.keys), tail._pack(plain.values)
        for path, (keys, values) in plain._parked.items():
            tail._parked[path] = (tail._pack(keys), tail._pack(values))
        return tail

    def _pack(self, x: mx.array | None) -> Any:
        if x is None:
            return None
        return tuple(mx.quantize(x, group_size=self.group_size, bits=self.bits))

    def _grow(self, keys: mx.array, values: mx.array) -> None:
        capacity = -(-self.length // self._step) * self._step
        self.keys = widened(self.keys, self._pack(keys), capacity)
        self.values = widened(self.values, self._pack(values), capacity)

    def _write(self, keys: mx.array, values: mx.array, start: int) -> None:
        for buffer, new in ((self.keys, self._pack(keys)), (self.values, self._pack(values))):
            for held, x in zip(buffer, new, strict=True):
                held[:, :, start : self.length] = x

    def _append(self, keys: Stored, values: Stored) -> None:
        # The prefix's own update would quantise once more what is quantised already.
        start = self.prefix.offset
        stop = start + width(keys)
        step = type(self.prefix).step
        have = 0 if self.prefix.keys is None else width(self.prefix.keys)
        if stop > have:
            capacity = start + -(-(stop - start) // step) * step
            self.prefix.keys = widened(self.prefix.keys, keys, capacity, start)
            self.prefix.values = widened(self.prefix.values, values, capacity, start)
        for buffer, new in ((self.prefix.keys, keys), (self.prefix.values, values)):
            for held, x in zip(buffer, new, strict=True):
                held[:, :, start:stop] = x
        self.prefix.offset = stop


def widened(buffer: Any, like: Any, capacity: int, used: int | None = None) -> Any:
    """``buffer`` with at least ``capacity`` columns, the first ``used`` kept, zeros behind them.

    A new one shaped ``like`` the arrays given when there is none yet.
    """
    have = 0 if buffer is None else width(buffer)
    if capacity <= have:
        return buffer
    used = have if used is None else min(used, have)
    zeros = each(lambda x: mx.zeros((*x.shape[:2], capacity - used, *x.shape[3:]), x.dtype), like)
    if used == 0:
        return zeros
    pairs = zip(buffer, zeros, strict=True)
    return tuple(mx.concatenate([held[:, :, :used], new], axis=2) for held, new in pairs)


class StateTail(ArraysCache):
    """Recurrent states of K paths: constant in size, one row a path.

    The rows begin as a broadcast of the prefix's state and part as the model replaces them.
    """

    cache: list[Any]  # arrays or None; the model reads and replaces them by index

    def __init__(self, prefix: Any, rows: int) -> None:
        super().__init__(len(prefix.cache))
        self.prefix = prefix
        self._parked: dict[int, list[mx.array | None]] = {}
        self.restart(rows)

    def select(self, rows: Sequence[int]) -> None:
        """Keep the live rows with these indices, in this order."""
        self.cache = self._rows(rows) if rows else [None] * len(self.cache)

    def park(self, path: int, row: int) -> None:
        """Set a copy of a live row aside under the name ``path``."""
        self._parked[path] = self._rows([row])

    def drop(self, path: int) -> None:
        """Forget a parked row."""
        self._parked.pop(path, None)

    def restart(self, rows: int) -> None:
        """``rows`` live rows in the state at the fork; what is parked stays."""
        self.cache = [
            None if x is None else mx.broadcast_to(x, (rows, *x.shape[1:]))
            for x in self.prefix.cache
        ]

    def truncate(self, length: int) -> None:
        """A state cannot be taken back; the owner feeds the tokens again."""

    def mark(self) -> Any:
        """What `reset` needs to undo the next forward pass."""
        return list(self.cache)  # models replace the arrays, they do not write into them

    def reset(self, mark: Any) -> None:
        """Undo a forward pass that broke off."""
        self.cache = mark

    def commit(self, row: int | None, path: int, length: int) -> None:
        """Make the state of a live row, or of a parked path, the prefix's."""
        self.prefix.cache = self._parked[path] if row is None else self._rows([row])

    def arrays(self) -> list[Any]:
        """Everything held beside the prefix."""
        return [self.cache, list(self._parked.values())]

    @property
    def nbytes(self) -> int:
        """Bytes allocated beside the prefix."""
        held = [*self.cache, *(x for row in self._parked.values() for x in row)]
        return sum(x.nbytes for x in held if x is not None)

    def _rows(self, rows: Sequence[int]) -> list[mx.array | None]:
        index = mx.array(list(rows))
        return [None if x is None else mx.take(x, index, axis=0) for x in self.cache]


class TailList(CacheList):
    """Tails over a `CacheList`: each member does its own."""

    def __init__(self, prefix: Any, tails: Sequence[Tail]) -> None:
        super().__init__(*tails)  # type: ignore[no-untyped-call]
        self.prefix = prefix

    def select(self, rows: Sequence[int]) -> None:
        """Keep the live rows with these indices, in this order."""
        for tail in self.caches:
            tail.select(rows)

    def park(self, path: int, row: int) -> None:
        """Set a copy of a live row aside under the name ``path``."""
        for tail in self.caches:
            tail.park(path, row)

    def drop(self, path: int) -> None:
        """Forget a parked row."""
        for tail in self.caches:
            tail.drop(path)

    def restart(self, rows: int) -> None:
        """``rows`` live rows as at the fork; what is parked stays."""
        for tail in self.caches:
            tail.restart(rows)

    def truncate(self, length: int) -> None:
        """Take every live row back to ``length`` tokens."""
        for tail in self.caches:
            tail.truncate(length)

    def mark(self) -> Any:
        """What `reset` needs to undo the next forward pass."""
        return [tail.mark() for tail in self.caches]

    def reset(self, mark: Any) -> None:
        """Undo a forward pass that broke off."""
        for tail, its in zip(self.caches, mark, strict=True):
            tail.reset(its)

    def commit(self, row: int | None, path: int, length: int) -> None:
        """Append a row's first ``length`` tokens to the prefix."""
        for tail in self.caches:
            tail.commit(row, path, length)

    def arrays(self) -> list[Any]:
        """Everything held beside the prefix."""
        return [tail.arrays() for tail in self.caches]


KV_TAILS: dict[type, type[BufferTail]] = {
    KVCache: KVTail,
    RotatingKVCache: WindowTail,
    ChunkedKVCache: ChunkedTail,
    QuantizedKVCache: QuantizedTail,
}
SERVED: tuple[type, ...] = (*KV_TAILS, ArraysCache, CacheList)


def open_tail(prefix: Any, rows: int, step: int, fetches: dict[int, Fetched]) -> Tail:
    """Empty tails of ``rows`` paths over one layer's prefix cache, a kind in `SERVED`."""
    if isinstance(prefix, CacheList):
        return TailList(prefix, [open_tail(c, rows, step, fetches) for c in prefix.caches])
    if isinstance(prefix, ArraysCache):
        return StateTail(prefix, rows)
    return KV_TAILS[type(prefix)](prefix, step, fetches)
