"""What a generation tells while it runs. Surfaces only consume these; nothing is computed twice.

Events are plain values: Python numbers and strings, no tensors, safe to pass between threads.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Prefilled:
    """Part of the prompt has been run through the model.

    Attributes:
        done: Prompt tokens in the cache so far, those reused included.
        total: Prompt tokens in all.
        reused: Prompt tokens that an earlier turn had left in the cache.
    """

    done: int
    total: int
    reused: int


@dataclass(frozen=True, slots=True)
class Spawned:
    """Paths start from the committed text.

    Attributes:
        segment: Number of the segment, from 0.
        tokens: The first token of each path.
        logprobs: Their raw log-probabilities, nats.
    """

    segment: int
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Stepped:
    """One token has been drawn for every live path and weighed.

    Attributes:
        segment: Number of the segment, from 0.
        step: Tokens in the segment so far.
        paths: Index of each path that counts (live or waiting).
        credences: Credence of each of them; they sum to 1.
        entropy: Entropy of the credences, nats.
    """

    segment: int
    step: int
    paths: tuple[int, ...]
    credences: tuple[float, ...]
    entropy: float


@dataclass(frozen=True, slots=True)
class PathReport:
    """One path as it stood at the collapse.

    Attributes:
        index: Position among the spawned paths.
        text: Its segment as text.
        tokens: Its segment as token ids.
        credence: Share of the weight at the collapse; 0 if it had been dropped.
        log_weight: Log-weight by the law, nats.
        logprob: Sum of raw log-probabilities, nats.
        signals: Each scorer's last value, unweighted.
        status: ``live``, ``waiting`` or ``dropped``.
        boundary: Why it waited, or None.
    """

    index: int
    text: str
    tokens: tuple[int, ...]
    credence: float
    log_weight: float
    logprob: float
    signals: dict[str, float]
    status: str
    boundary: str | None


@dataclass(frozen=True, slots=True)
class Collapsed:
    """K segments became one.

    Attributes:
        segment: Number of the segment, from 0.
        reason: The winner's boundary; ``majority`` for a winner cut off after alignment;
            ``vote`` for a voted segment that is none of the paths and does not end the answer.
        mode: Collapse mode that chose (``argmax`` where the vote guard refused a vote).
        winner: Index of the winning path; None if the voted segment is none of the paths.
        tokens: The committed segment.
        text: The committed segment as text.
        paths: Every path of the segment.
        effective_sample_size: 1 / sum of squared credences.
        note: What a reader of the trace should know, or None (vote guard, short circuit).
        decided: Scorers without which another segment would have been chosen.
    """

    segment: int
    reason: str
    mode: str
    winner: int | None
    tokens: tuple[int, ...]
    text: str
    paths: tuple[PathReport, ...]
    effective_sample_size: float
    note: str | None = None
    decided: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verified:
    """The target has looked at the tokens about to be committed.

    Attributes:
        segment: Number of the segment, from 0.
        tokens: How many were pending.
        checked: Positions among them that were checked, ascending. A flip ends the check.
        accepted: How many of the pending tokens stand.
    """

    segment: int
    tokens: int
    checked: tuple[int, ...]
    accepted: int


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The target would have gone on otherwise: what followed is undone, its token stands instead.

    Attributes:
        segment: Number of the segment, from 0.
        position: Of the flipped token in the segment, from 0.
        discarded: The tokens undone, the flipped one first.
        token: The target's.
        text: What was undone, as text.
        instead: What stands in its place, as text.
    """

    segment: int
    position: int
    discarded: tuple[int, ...]
    token: int
    text: str
    instead: str


@dataclass(frozen=True, slots=True)
class Committed:
    """Text that is final. The answer is the concatenation of these."""

    text: str


@dataclass(slots=True)
class RefineStats:
    """What refinement did and cost.

    Attributes:
        mode: ``verify``, ``margin`` or ``rescore``.
        target_kind: ``resident``, ``stream`` or ``residual``.
        drafted: Tokens that came up for commitment; those undone are drafted again.
        deferred: Those of them that were flagged for the target.
        accepted: Drafted tokens that were committed.
        sweeps: Passes of the target over candidates.
        rollbacks: Flips, each undone.
        draft_s: Seconds in passes of the draft.
        sweep_s: Seconds in sweeps.
        draft_bytes: Weights of the draft that its passes read, bytes as stored.
        target_bytes: Weights of the target that the sweeps read, bytes as stored.
        bytes_per_token: Both, by token of output.
        plain_bytes_per_token: What decoding with the target alone reads by token.
    """

    mode: str
    target_kind: str = ""
    drafted: int = 0
    deferred: int = 0
    accepted: int = 0
    sweeps: int = 0
    rollbacks: int = 0
    draft_s: float = 0.0
    sweep_s: float = 0.0
    draft_bytes: int = 0
    target_bytes: int = 0
    bytes_per_token: float = 0.0
    plain_bytes_per_token: int = 0

    @property
    def acceptance_rate(self) -> float:
        """Share of the drafted tokens that were committed, in [0, 1]; 1 if none was drafted."""
        return self.accepted / self.drafted if self.drafted else 1.0

    def as_dict(self) -> dict[str, Any]:
        """All of it by name, the acceptance rate with it."""
        return {**asdict(self), "acceptance_rate": self.acceptance_rate}


@dataclass(slots=True)
class Stats:
    """What a generation cost and came to.

    Attributes:
        prompt_tokens: Tokens of the prompt.
        prefilled_tokens: Those run through the model for this generation (the rest was reused).
        output_tokens: Tokens committed, an end-of-sequence token included.
        path_tokens: Tokens drawn on all paths.
        forward_passes: Batched forward passes after the prompt.
        forward_tokens: Tokens run through the model after the prompt, all rows.
        collapses: Segments committed.
        trajectories: Sum of the spawned paths, at most K x collapses.
        entropy: Credence entropy at every step, nats.
        peak_cache_bytes: Most bytes that the key-value cache held.
        scorer_calls: Calls of each scorer.
        scorer_s: Seconds that the generation waited for each scorer.
        decided: Collapses that each scorer decided. One that decided none did nothing.
        prompt_s: Seconds until the first token was drawn.
        decode_s: Seconds from then on.
        refinement: What the target did; None without one.
    """

    prompt_tokens: int = 0
    prefilled_tokens: int = 0
    output_tokens: int = 0
    path_tokens: int = 0
    forward_passes: int = 0
    forward_tokens: int = 0
    collapses: int = 0
    trajectories: int = 0
    entropy: list[float] = field(default_factory=list)
    peak_cache_bytes: int = 0
    scorer_calls: dict[str, int] = field(default_factory=dict)
    scorer_s: dict[str, float] = field(default_factory=dict)
    decided: dict[str, int] = field(default_factory=dict)
    prompt_s: float = 0.0
    decode_s: float = 0.0
    refinement: RefineStats | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The generation is over.

    Attributes:
        reason: ``eos``, ``stop`` (a stop string) or ``length`` (the token budget).
        stats: What it cost.
        seed: The seed in force, given or drawn.
    """

    reason: str
    stats: Stats
    seed: int


Event = Prefilled | Spawned | Stepped | Collapsed | Verified | RolledBack | Committed | Finished
