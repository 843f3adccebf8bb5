"""A token vote under way: a segment that is none of the paths, and whom to fall back on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from msi_engine.path import Draw, PathState
from msi_engine.sampling import NextToken


class Vote:
    """A voted segment waiting for its logits.

    Args:
        tokens: The voted token ids, at least one.
        fallback: The path that `argmax` would choose.
    """

    def __init__(self, tokens: tuple[int, ...], fallback: PathState) -> None:
        self.tokens = tokens
        self.fallback = fallback
        self._masked = False  # a voted token follows one that it may not follow

    def draws(self, rows: Sequence[NextToken]) -> list[Draw]:
        """The voted tokens with the model's own logprobs.

        Args:
            rows: Next-token logits before each voted token (the spawn's root first).
        """
        pairs = list(zip(self.tokens, rows, strict=False))  # one row more than tokens
        self._masked = any(row.processed[token] == -np.inf for token, row in pairs)
        return [row.draw(t, 0.0, "inner" if i else "spawn") for i, (t, row) in enumerate(pairs)]

    def refused(self, path: PathState, guard: float | None) -> bool:
        """True if the vote is more than ``guard`` nats a token worse than the fallback.

        Also if it has a token that the logits processors mask: each path obeys them, but a mixture
        of paths need not.
        """
        worse = guard is not None and _mean(path) < _mean(self.fallback) - guard
        return self._masked or worse

    def note(self, path: PathState) -> str:
        """Why the vote was refused, for the trace."""
        if self._masked:
            return "vote refused: the logits processors mask one of its tokens"
        return (
            f"vote refused: mean logprob {_mean(path):.2f} against "
            f"{_mean(self.fallback):.2f} of the path with the greatest credence"
        )


def _mean(path: PathState) -> float:
    return path.logprob_at(len(path)) / len(path)
