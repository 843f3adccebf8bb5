"""What a pass's logits go through before the decoder sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import mlx.core as mx
import numpy as np

from msi_engine.errors import DecodeError
from msi_engine.sampling import NextToken

LogitsProcessor = Callable[[mx.array, mx.array], mx.array]
"""mlx-lm's: token ids ``(n,)`` so far and logits ``(1, V)`` to logits ``(1, V)``."""


def process(processors: Sequence[LogitsProcessor], tokens: mx.array, logits: mx.array) -> mx.array:
    """Run mlx-lm logits processors over logits ``(1, V)`` that nobody else holds.

    Raises:
        DecodeError: If one of them does not return logits of that shape.
    """
    for processor in processors:
        processed = processor(tokens, logits)
        if not isinstance(processed, mx.array) or processed.shape != logits.shape:
            got = getattr(processed, "shape", type(processed).__name__)
            raise DecodeError(
                f"a logits processor must return logits of shape {logits.shape}, got {got}"
            )
        logits = processed
    return logits


def next_tokens(
    processors: Sequence[LogitsProcessor], logits: mx.array, histories: Iterable[list[int]]
) -> list[NextToken]:
    """Raw and processed logits, row by row.

    Args:
        processors: mlx-lm logits processors.
        logits: Shape ``(rows, V)``.
        histories: Token ids before each row; not looked at where there are no processors.

    Raises:
        DecodeError: If a processor does not return logits of the shape it was given.
    """
    if not processors:
        return [NextToken(row) for row in to_numpy(logits)]
    processed = mx.concatenate(
        [
            process(processors, mx.array(history), logits[i : i + 1])
            for i, history in enumerate(histories)
        ]
    )
    mx.eval(logits, processed)
    pairs = zip(to_numpy(logits), to_numpy(processed), strict=True)
    return [NextToken(raw, row) for raw, row in pairs]


def to_numpy(logits: mx.array) -> np.ndarray:
    """A float32 copy that NumPy owns."""
    copy: np.ndarray = np.array(logits.astype(mx.float32))
    return copy
