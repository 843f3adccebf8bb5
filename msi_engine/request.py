"""A request: everything that a caller asks of one generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msi_engine.config import DecodeConfig
from msi_engine.evidence import Embedder, Evidence
from msi_engine.grammar import JsonSchema
from msi_engine.scorer import ScorerFactory

if TYPE_CHECKING:
    from msi_engine.prompt import Prompt
    from msi_engine.stepping import LogitsProcessor  # brings MLX, before its backend is prepared


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller asks for.

    Attributes:
        prompt: Text, messages, token ids, or messages with tools.
        config: Every option.
        logits_processors: mlx-lm logits processors, beside those of the options.
        scorer_factories: Scorers that no plugin has registered, by name.
        evidence: Passages for the scorers.
        embedder: What embeds texts for the scorers, and for collapse by `mbr`.
        constraint: What the answer may be; None is anything.
    """

    prompt: Prompt
    config: DecodeConfig
    logits_processors: Sequence[LogitsProcessor] = ()
    scorer_factories: Mapping[str, ScorerFactory] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()
    embedder: Embedder | None = None
    constraint: JsonSchema | None = None
