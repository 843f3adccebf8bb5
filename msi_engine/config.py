"""Every option of a generation, once: bounds, default, description and presets.

Both surfaces derive their options from `DecodeConfig`; nothing about an option is written twice.
Spelling and meaning follow mlx-lm wherever mlx-lm has the option.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from msi_engine.errors import ConfigError

Law = Literal["paper", "mean", "posterior"]
Collapse = Literal["auto", "argmax", "sample", "token_vote", "mbr"]
EvidenceFrom = Literal["auto", "given", "prompt"]
Refine = Literal["off", "verify", "margin", "rescore"]
Residency = Literal["auto", "resident", "stream"]

MAX_PATHS = 64

# An ISO 639 code, with or without script and region; a name in words would be no language's.
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]+)*")


class DecodeConfig(BaseModel):
    """Options of one generation. Immutable; see each field's description.

    Build one with keyword arguments, from a preset (`DecodeConfig.preset`), or derive one from
    another (`replace`). Bad values raise `ConfigError` with one line that names option, value
    and bounds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    # Paths
    k: int = Field(4, ge=1, le=MAX_PATHS, description="Parallel paths; 1 is ordinary decoding")
    max_tokens: int = Field(512, ge=1, le=1_000_000, description="Most tokens to generate")
    law: Law = Field("mean", description="How logprobs and signals become log-weights")
    length_penalty: float = Field(
        1.0, ge=0, le=4, description="alpha of law `mean`: logprobs are divided by n^alpha"
    )
    beta: float = Field(1.0, ge=0, le=16, description="Power of the model in law `posterior`")

    # Boundaries
    boundary: tuple[str, ...] = Field(
        ("sentence", "paragraph"), description="Where paths may be collapsed (comma-separated)"
    )
    segment_length: int = Field(
        32, ge=1, le=4096, description="Cap on a segment in tokens: the bound on memory"
    )
    language: str = Field(
        "en", min_length=2, max_length=12, description="Language of sentence rules"
    )
    stop: tuple[str, ...] = Field(
        (), description="Strings that end the answer (JSON list or one string)"
    )

    # Collapse
    collapse: Collapse = Field(
        "auto", description="auto is mbr without signals and argmax with them"
    )
    vote_guard: float | None = Field(
        1.0, ge=0, description="token_vote: nats a token below the winner at which argmax is used"
    )
    majority: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Credence of waiting paths at which the bundle collapses; 1 waits for all",
    )
    align_steps: int = Field(
        8, ge=0, le=4096, description="Greedy tokens that stragglers get after the majority"
    )
    short_circuit: float = Field(
        1.0, gt=0, le=1, description="Credence above which the other paths are dropped; 1 is never"
    )

    # Spawn
    spawn_temperature: float = Field(
        0.0, ge=0, le=16, description="Temperature of the first tokens; 0 takes the K most probable"
    )
    spawn_min_p: float = Field(
        0.02,
        ge=0,
        le=1,
        description="First tokens below this share of the top probability are not spawned",
    )
    dedup_tokens: int = Field(
        4,
        ge=0,
        le=4096,
        description="Tokens after which paths of equal text count as duplicates; 0 is off",
    )
    diversity: float = Field(
        0.0, ge=0, le=100, description="Hamming penalty of diverse beam search, nats"
    )

    # Sampling inside a path, spelled as in mlx-lm
    temperature: float = Field(0.0, ge=0, le=16, description="Sampling temperature; 0 is greedy")
    top_p: float = Field(0.0, ge=0, le=1, description="Nucleus mass; 0 or 1 is off")
    min_p: float = Field(
        0.0, ge=0, le=1, description="Least share of the top probability; 0 is off"
    )
    min_tokens_to_keep: int = Field(
        1, ge=1, le=100_000, description="Tokens that min_p cannot remove"
    )
    top_k: int = Field(0, ge=0, le=1_000_000, description="Most probable tokens kept; 0 is off")
    xtc_probability: float = Field(
        0.0, ge=0, le=1, description="Chance of removing the top choices"
    )
    xtc_threshold: float = Field(0.1, ge=0, le=0.5, description="Probability that XTC may remove")
    seed: int | None = Field(
        None, ge=0, lt=2**63, description="Random seed; 0 is a seed. Unset: drawn and reported"
    )

    # Penalties, spelled as in mlx-lm
    logit_bias: dict[int, float] | None = Field(
        None, description="Token id to additive bias (JSON)"
    )
    repetition_penalty: float | None = Field(
        None, ge=0, le=100, description="Multiplicative penalty"
    )
    repetition_context_size: int = Field(20, ge=1, description="Tokens it looks back on")
    presence_penalty: float | None = Field(
        None, ge=-100, le=100, description="Additive penalty, once"
    )
    presence_context_size: int = Field(20, ge=1, description="Tokens it looks back on")
    frequency_penalty: float | None = Field(
        None, ge=-100, le=100, description="Additive penalty, each time"
    )
    frequency_context_size: int = Field(20, ge=1, description="Tokens it looks back on")

    # Signals
    scorers: dict[str, float] = Field(
        default_factory=dict, description="Scorer weights lambda, e.g. length=0.1"
    )
    scorer_options: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Options of the scorers (JSON)"
    )
    score_every: int = Field(1, ge=1, le=4096, description="Tokens between calls of the scorers")
    evidence_from: EvidenceFrom = Field(
        "auto",
        description="Passages for the scorers: those given, the prompt's as well, or auto, the "
        "prompt's if none is given and it holds more than three statements",
    )

    # Refinement
    refine: Refine = Field(
        "off", description="What the model of higher precision does with what the draft wrote"
    )
    tau: float = Field(
        1.0,
        ge=0,
        le=1000,
        description="margin: tokens that the draft was surer of than this, in nats, go unchecked",
    )
    window: int = Field(
        16, ge=1, le=4096, description="Tokens drafted between two checks when k is 1"
    )
    target: str | None = Field(
        None, min_length=1, description="Model that checks; unset: the pair's own target"
    )
    target_residency: Residency = Field(
        "auto", description="Keep the target in memory, or read it layer by layer at each check"
    )

    # Cache, spelled as in mlx-lm
    prefill_step_size: int = Field(
        2048, ge=1, le=1_000_000, description="Prompt tokens in one pass"
    )
    max_kv_size: int | None = Field(
        None,
        ge=8,
        description="Sliding window over the cache, tokens; some models decide it themselves",
    )
    kv_bits: Literal[2, 3, 4, 5, 6, 8] | None = Field(None, description="Bits of a quantised cache")
    kv_group_size: Literal[32, 64, 128] = Field(64, description="Group size of a quantised cache")
    quantized_kv_start: int = Field(
        5000, ge=0, description="Token from which the cache is quantised"
    )

    @field_validator("stop")
    @classmethod
    def _no_empty_stop(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(not s for s in value):
            raise ValueError("a stop string is empty; leave it out or give it a character")
        return value

    @field_validator("language")
    @classmethod
    def _language_code(cls, value: str) -> str:
        if not _LANGUAGE.fullmatch(value):
            raise ValueError("must be a language code such as en or pt-BR")
        return value

    @field_validator("scorers", "logit_bias")
    @classmethod
    def _finite(cls, value: dict[Any, float] | None) -> dict[Any, float] | None:
        for name, weight in (value or {}).items():
            if not abs(weight) < 1e6:
                raise ValueError(f"weight of {name!r} must be within +-1e6, got {weight}")
        return value

    @model_validator(mode="after")
    def _combinations(self) -> DecodeConfig:
        unknown = set(self.scorer_options) - set(self.scorers)
        if unknown:
            raise ValueError(f"scorer_options for scorers that are not active: {sorted(unknown)}")
        if self.kv_bits is not None and self.max_kv_size is not None:
            raise ValueError("kv_bits and max_kv_size cannot be used together, as in mlx-lm")
        if self.refine != "off" and self.max_kv_size is not None:
            raise ValueError(
                "`refine` and max_kv_size cannot be used together: past its window a target that "
                "reads several tokens at once is not the one that reads them singly; leave one out"
            )
        if self.refine == "rescore" and self.k == 1:
            raise ValueError(
                "`refine` rescore chooses among paths and k is 1; use verify or margin"
            )
        return self

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(one_line(error)) from None

    @property
    def effective_collapse(self) -> str:
        """The collapse mode in force, `auto` resolved."""
        if self.collapse != "auto":
            return self.collapse
        return "argmax" if self.scorers else "mbr"

    @property
    def verifies(self) -> bool:
        """True if tokens are checked before they are committed."""
        return self.refine in ("verify", "margin")

    def replace(self, **values: Any) -> DecodeConfig:
        """A copy with other values, validated.

        Raises:
            ConfigError: If a value is out of bounds or a name is unknown.
        """
        return DecodeConfig(**{**self.model_dump(exclude_unset=True), **values})

    @classmethod
    def preset(cls, name: str = "default", /, **values: Any) -> DecodeConfig:
        """The options of preset ``name``, then ``values`` over them.

        Raises:
            ConfigError: If there is no such preset, or a value is out of bounds.
        """
        if name not in PRESETS:
            raise ConfigError(f"no preset {name!r}; there are {', '.join(PRESETS)}")
        return cls(**{**PRESETS[name], **values})


PRESETS: Mapping[str, Mapping[str, Any]] = {
    # What did best in the trials of the specification; K = 4, greedy inside paths.
    "default": {},
    # The preprint's values.
    "paper": {
        "law": "paper",
        "collapse": "token_vote",
        "vote_guard": None,
        "short_circuit": 0.9,
        "spawn_min_p": 0.0,
    },
}


def one_line(error: ValidationError) -> str:
    """A pydantic error as one line: option, what is wrong, the value."""
    parts = []
    for item in error.errors():
        name = ".".join(str(p) for p in item["loc"]) or "options"
        if item["type"] == "extra_forbidden":
            parts.append(f"unknown option {name!r}")
            continue
        message = item["msg"].removeprefix("Value error, ")
        got = f", got {item['input']!r}" if item["loc"] else ""
        parts.append(f"`{name}`: {message[0].lower()}{message[1:]}{got}")
    return "; ".join(parts)
