"""The key-value tails of K paths over one of mlx-lm's own caches.

A tail looks to the model like the mlx-lm cache of the same kind with one row a path. It writes new
keys and values into its own buffer and hands out a lazy concatenation of the prefix (never copied)
and the tails. It does not know about path numbers, the model or the other layers.

While paths are open the prefix cache below is read and never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from msi_engine.cache.attention import Packing, Stored
from msi_engine.cache.hook import Fetched
from msi_engine.cache.span import Span, columns, take
from msi_engine.cache.stored import each, nbytes, stack, width
from msi_engine.cache.upstream import create_causal_mask


class BufferTail:
    """Tails kept in one buffer; every path sees the whole prefix unless a subclass says otherwise.

    Attributes:
        keys: Buffer of the live rows, ``(A, H, capacity, D)``; None before the first token. Only
            the first ``length`` columns count. Models may read and replace it, as they do mlx-lm's.
        values: The same for values.
        length: Tokens that every live row holds.
    """

    packing: Packing | None = None
    keep = 0  # leading columns that a window never drops

    def __init__(self, prefix: Any, step: int, fetches: dict[int, Fetched]) -> None:
        """Open tails over ``prefix``, growing by ``step`` columns and reporting to ``fetches``."""
        self.prefix = prefix
        self.keys: Any = None
        self.values: Any = None
        self.length = 0
        self._step = step
        self._fetches = fetches
        self._base: int = prefix.offset
        self._parked: dict[int, tuple[Stored, Stored]] = {}
        self._spans = self._prefix_spans()
        self._have = sum(stop - start for start, stop in self._spans)
        self._seen: tuple[Span, ...] | None = None
        self._shared: tuple[tuple[Stored, Stored], ...] = ()

    # What a model asks of a layer's cache

    @property
    def offset(self) -> int:
        """Position of the next token."""
        return self._base + self.length

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Stored, Stored]:
        """Append a token or more to every row; return all that the new tokens may see."""
        start, self.length = self.length, self.length + keys.shape[2]
        self._grow(keys, values)
        self._write(keys, values, start)
        return self._fetch(keys.shape[2])

    def keys_and_values(self) -> tuple[Stored, Stored]:
        """What `update_and_fetch` returned last, for layers that share it."""
        return self._fetch(self._last)

    # What the owner asks

    def select(self, rows: Sequence[int]) -> None:
        """Keep the live rows with these indices, in this order."""
        if self.keys is not None:
            index = mx.array(list(rows))
            self.keys, self.values = (
                each(lambda x: mx.take(x, index, axis=0), kv) if rows else None
                for kv in (self.keys, self.values)
            )

    def park(self, path: int, row: int) -> None:
        """Set a copy of a live row aside under the name ``path``."""
        if self.keys is not None:
            index = mx.array([row])  # taken, not sliced: a slice would hold on to every row
            self._parked[path] = tuple(
                each(lambda x: mx.take(x, index, axis=0), kv) for kv in (self.keys, self.values)
            )

    def drop(self, path: int) -> None:
        """Forget a parked row."""
        self._parked.pop(path, None)

    def restart(self, rows: int) -> None:
        """``rows`` live rows with empty tails; what is parked stays."""
        self.keys = self.values = None
        self.length = 0

    def truncate(self, length: int) -> None:
        """Take every live row back to ``length`` tokens."""
        self.length = min(self.length, length)

    def mark(self) -> Any:
        """What `reset` needs to undo the next forward pass."""
        return self.length

    def reset(self, mark: Any) -> None:
        """Undo a forward pass that broke off."""
        self.length = mark

    def commit(self, row: int | None, path: int, length: int) -> None:
        """Append the first ``length`` tokens of a live row, or of a parked path, to the prefix."""
        pair = self._parked.get(path) if row is None else (self.keys, self.values)
        self._seen, self._shared = None, ()  # views of the buffer would make the append copy it
        if pair is None or pair[0] is None or length == 0:
            return
        row = row or 0
        self._append(*(each(lambda x: x[row : row + 1, :, :length], kv) for kv in pair))

    def arrays(self) -> list[Any]:
        """Everything held beside the prefix."""
        return [self.keys, self.values, list(self._parked.values())]

    @property
    def nbytes(self) -> int:
        """Bytes allocated beside the prefix."""
        parked = sum(nbytes(x) for pair in self._parked.values() for x in pair)
        return nbytes(self.keys) + nbytes(self.values) + parked

    # How it is done

    _last = 0  # tokens that the last update appended

    def _prefix_spans(self) -> tuple[Span, ...]:
        """Where the prefix lies in its buffer, oldest first."""
        return ((0, self._base),) if self._base else ()

    def _dropped(self, length: int, appended: int) -> int:
        """Columns after `keep` that the newest ``appended`` tokens cannot see any more."""
        return 0

    def _grow(self, keys: mx.array, values: mx.array) -> None:
        capacity = -(-self.length // self._step) * self._step
        have = 0 if self.keys is None else width(self.keys)
        if capacity <= have:
            return
        rows, heads = keys.shape[:2]
        new = [
            mx.zeros((rows, heads, capacity - have, x.shape[3]), x.dtype) for x in (keys, values)
        ]
        self.keys = new[0] if have == 0 else mx.concatenate([self.keys, new[0]], axis=2)
        self.values = new[1] if have == 0 else mx.concatenate([self.values, new[1]], axis=2)

    def _write(self, keys: mx.array, values: mx.array, start: int) -> None:
        self.keys[:, :, start : self.length] = keys
        self.values[:, :, start : self.length] = values

    def _append(self, keys: Stored, values: Stored) -> None:
        self.prefix.update_and_fetch(keys, values)

    def _fetch(self, appended: int) -> tuple[Stored, Stored]:
        self._last, have = appended, self._have
        dropped = self._dropped(self.length - appended, appended)
        visible = columns(have + self.length, self.keep, dropped)
        spans = take(self._spans, visible)
        if spans != self._seen:
            self._seen, self._shared = spans, tuple(self._piece(a, b) for a, b in spans)
        inside = [(max(a, have) - have, b - have) for a, b in visible if b > have]
        tail = (stack(self.keys, inside), stack(self.values, inside))
        rows = tail[0].shape[0] if isinstance(tail[0], mx.array) else tail[0][0].shape[0]
        keys = gather([k for k, _ in self._shared], tail[0], rows)
        values = gather([v for _, v in self._shared], tail[1], rows)
        self._fetches[id(keys)] = Fetched(keys, values, self._shared, tail, self.packing)
        return keys, values

    def _piece(self, start: int, stop: int) -> tuple[Stored, Stored]:
        keys, values = self.prefix.keys, self.prefix.values
        return each(lambda x: x[:, :, start:stop], keys), each(
            lambda x: x[:, :, start:stop], values
        )


class KVTail(BufferTail):
    """Tails over a `KVCache`."""

    def make_mask(
        self, N: int, window_size: int | None = None, return_array: bool = False
    ) -> mx.array | None:
        """The mask of ``N`` new tokens over the columns that they will be given."""
        if N == 1 and window_size is None:
            return None
        mask: mx.array = create_causal_mask(N, self.offset, window_size=window_size)
        return mask


def gather(shared: Sequence[Stored], tail: Stored, rows: int) -> Stored:
    """Shared pieces and tail side by side, for every row: lazy, so free unless read."""
    if not shared:
        return tail
    if isinstance(tail, mx.array):
        wide = [mx.broadcast_to(x, (rows, *x.shape[1:])) for x in shared]
        return mx.concatenate([*wide, tail], axis=2)
    return tuple(gather([x[i] for x in shared], tail[i], rows) for i in range(len(tail)))
