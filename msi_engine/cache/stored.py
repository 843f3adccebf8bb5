"""Arrays and quantised triples of arrays, treated alike. Columns are axis 2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from msi_engine.cache.attention import Stored
from msi_engine.cache.span import Span


def each(function: Callable[[mx.array], mx.array], stored: Any) -> Any:
    """``function`` of the array, or of each array of the triple."""
    if isinstance(stored, mx.array):
        return function(stored)
    return tuple(function(x) for x in stored)


def width(stored: Stored) -> int:
    """Number of columns."""
    return (stored if isinstance(stored, mx.array) else stored[0]).shape[2]


def nbytes(stored: Any) -> int:
    """Bytes allocated; None holds none."""
    if stored is None:
        return 0
    return stored.nbytes if isinstance(stored, mx.array) else sum(x.nbytes for x in stored)


def stack(stored: Any, spans: Sequence[Span]) -> Any:
    """The columns of ``spans``, side by side: a view when there is one span."""
    if len(spans) == 1:
        start, stop = spans[0]
        return each(lambda x: x[:, :, start:stop], stored)
    return each(lambda x: mx.concatenate([x[:, :, a:b] for a, b in spans], axis=2), stored)
