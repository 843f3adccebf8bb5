"""A path: one of K parallel continuations of the committed text.

Knows what a path is made of and nothing about how it is weighed, drawn or cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import accumulate
from typing import Literal

How = Literal["inner", "spawn", "greedy"]


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
        how: ``inner`` as the proposal draws inside a path, ``spawn`` as one of K first tokens,
            ``greedy`` for a straggler that is being aligned.
        penalized: Tokens whose logits the diversity penalty had lowered, once for each mention.
    """

    token: int
    logprob: float
    log_q: float
    margin: float
    how: How = "inner"
    penalized: tuple[int, ...] = ()


@dataclass(slots=True)
class PathState:
    """One path's segment: the tokens since the last collapse, and what they have cost.

    Sums are kept per token, so that a weight can be computed for any earlier moment: scorers may
    answer late, and the weights must come out as if they had answered at once.

    Attributes:
        index: Position among the K spawned paths; ties go to the lower index.
        draws: The segment's tokens in order, the spawn token first.
        texts: Decoded segment after each token, without incomplete UTF-8 at its end.
        cum_logprob: Sum of raw log-probabilities up to each token, float64 nats.
        cum_log_q: Sum of drawing log-probabilities up to each token, float64 nats.
        signals: Weighted signal sum_j lambda_j phi_j(t) after each token, as far as scored, nats.
        scores: Each scorer's value after each token, unweighted, as far as scored.
        status: Live, waiting or dropped.
        boundary: Why the path waits (``sentence``, ``paragraph``, ``length``, ``eos``, ``stop``,
            ``budget``, ``choice``, or a third party's name), else None.
        complete: False while the last token leaves a character incomplete.
    """

    index: int
    draws: list[Draw] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    cum_logprob: list[float] = field(default_factory=list)
    cum_log_q: list[float] = field(default_factory=list)
    signals: list[float] = field(default_factory=list)
    scores: dict[str, list[float]] = field(default_factory=dict)
    status: PathStatus = PathStatus.LIVE
    boundary: str | None = None
    complete: bool = True

    def push(self, draw: Draw, text: str, *, complete: bool = True) -> None:
        """Append a token, the text that it completes, and whether a character is left open."""
        self.draws.append(draw)
        self.texts.append(self.text + text)
        self.complete = complete
        self.cum_logprob.append(self.logprob_at(len(self.cum_logprob)) + draw.logprob)
        self.cum_log_q.append((self.cum_log_q[-1] if self.cum_log_q else 0.0) + draw.log_q)

    def replace_logprobs(self, logprobs: Sequence[float]) -> None:
        """Take another model's word for what each token costs, nats."""
        self.draws = [replace(d, logprob=p) for d, p in zip(self.draws, logprobs, strict=True)]
        self.cum_logprob = list(accumulate(logprobs))

    def forget_scores(self, num_tokens: int) -> None:
        """Take back what scorers said of more than the first ``num_tokens`` tokens."""
        for values in (self.signals, *self.scores.values()):
            del values[num_tokens:]

    def wait(self, boundary: str) -> None:
        """Mark the path as having reached ``boundary``."""
        self.status = PathStatus.WAITING
        self.boundary = boundary

    def logprob_at(self, num_tokens: int) -> float:
        """Sum of the raw log-probabilities of the first ``num_tokens`` tokens, nats."""
        return self.cum_logprob[num_tokens - 1] if num_tokens else 0.0

    @property
    def tokens(self) -> tuple[int, ...]:
        """Token ids of the segment, in order."""
        return tuple(d.token for d in self.draws)

    @property
    def text(self) -> str:
        """The segment as text."""
        return self.texts[-1] if self.texts else ""

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
        others: Segment texts of the other paths after the same number of tokens, by index. A
            path that waits has its last text, one that was dropped before has none.
    """

    index: int
    prompt: str
    committed: str
    segment: str
    tokens: tuple[int, ...]
    logprob: float
    finished: bool
    others: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Committed text followed by the segment."""
        return self.committed + self.segment
