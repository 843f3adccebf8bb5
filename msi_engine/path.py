"""A path: one of K parallel continuations of the committed text.

Knows what a path is made of and nothing about how it is weighed, drawn or cached.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np


class PathStatus(StrEnum):
    """Where a path stands within its segment."""

    LIVE = "live"
    WAITING = "waiting"  # has reached a boundary, pays nothing more
    DROPPED = "dropped"  # short-circuited, or a duplicate of another


@dataclass(frozen=True, slots=True)
class Draw:
    """A token as it was drawn.

    Attributes:
        token: Token id.
        logprob: Log-probability under the model's raw distribution (log_softmax of the
            unprocessed logits), nats.
        log_q: Log-probability with which it was really drawn, after temperature, filters and
            penalties; 0 when greedy. For a spawn token the log inclusion probability. Nats.
        margin: Greatest minus second greatest raw logit, nats.
    """

    token: int
    logprob: float
    log_q: float
    margin: float


@dataclass(slots=True)
class PathState:
    """One path's segment: the tokens since the last collapse.

    Attributes:
        index: Position among the K spawned paths; ties go to the lower index.
        draws: The segment's tokens in order, the spawn token first.
        text: Decoded segment, without incomplete UTF-8 at its end.
        phi_sum: Running weighted signal, one entry a token: sum_j lambda_j phi_j(t). Float64 nats.
        log_weight: Unnormalised log-weight by the law, nats.
        status: Live, waiting or dropped.
        boundary: Why the path waits (``sentence``, ``paragraph``, ``length``, ``eos``, ``stop``,
            ``budget``, or a third party's name), else None.
        end_logits: The next token's logits at the moment the path began to wait, shape ``(V,)``
            float32: the root of the next spawn if this path wins. None where no token can follow.
    """

    index: int
    draws: list[Draw] = field(default_factory=list)
    text: str = ""
    phi_sum: list[float] = field(default_factory=list)
    log_weight: float = 0.0
    status: PathStatus = PathStatus.LIVE
    boundary: str | None = None
    end_logits: np.ndarray | None = None

    @property
    def tokens(self) -> tuple[int, ...]:
        """Token ids of the segment, in order."""
        return tuple(d.token for d in self.draws)

    @property
    def logprob(self) -> float:
        """Sum of the raw log-probabilities of the segment's tokens, nats."""
        return sum(d.logprob for d in self.draws)

    def __len__(self) -> int:
        return len(self.draws)


@dataclass(frozen=True, slots=True)
class PathView:
    """What a scorer sees of a path: text and numbers, no tensors.

    Attributes:
        index: Position among the K spawned paths.
        prompt: The prompt as text.
        committed: Text committed so far in this generation.
        segment: Text of this path since the last collapse.
        tokens: Token ids of the segment.
        logprob: Sum of raw log-probabilities of the segment's tokens, nats.
        finished: True if the path has reached its boundary.
    """

    index: int
    prompt: str
    committed: str
    segment: str
    tokens: tuple[int, ...]
    logprob: float
    finished: bool

    @property
    def text(self) -> str:
        """Committed text followed by the segment."""
        return self.committed + self.segment
