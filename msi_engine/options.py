"""From options to mlx-lm's samplers and logits processors, checked against a vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

from mlx_lm.sample_utils import make_logits_processors, make_sampler

from msi_engine.config import DecodeConfig
from msi_engine.errors import ConfigError
from msi_engine.runner import Sampler
from msi_engine.stepping import LogitsProcessor


def fit_to_vocabulary(config: DecodeConfig, size: int) -> DecodeConfig:
    """The options with counts of tokens that a vocabulary of ``size`` has.

    Raises:
        ConfigError: If ``logit_bias`` names a token that is not in it.
    """
    for token in config.logit_bias or ():
        if not 0 <= token < size:
            raise ConfigError(
                f"`logit_bias`: token {token} is not in the vocabulary; ids go from 0 to {size - 1}"
            )
    fitted: dict[str, int] = {}
    if config.top_k >= size:
        fitted["top_k"] = 0  # all of them: no filter
    if config.min_tokens_to_keep > size:
        fitted["min_tokens_to_keep"] = size
    return config.replace(**fitted) if fitted else config


def sampler(config: DecodeConfig, xtc_special_tokens: Sequence[int]) -> Sampler:
    """mlx-lm's sampler for a single path."""
    return make_sampler(
        temp=config.temperature,
        top_p=config.top_p,
        min_p=config.min_p,
        min_tokens_to_keep=config.min_tokens_to_keep,
        top_k=config.top_k,
        xtc_probability=config.xtc_probability,
        xtc_threshold=config.xtc_threshold,
        xtc_special_tokens=list(xtc_special_tokens),
    )


def penalties(config: DecodeConfig) -> list[LogitsProcessor]:
    """mlx-lm's processors for biases and penalties; none where nothing is asked for."""
    processors: list[LogitsProcessor] = make_logits_processors(
        logit_bias=config.logit_bias,
        repetition_penalty=config.repetition_penalty,
        repetition_context_size=config.repetition_context_size,
        presence_penalty=config.presence_penalty,
        presence_context_size=config.presence_context_size,
        frequency_penalty=config.frequency_penalty,
        frequency_context_size=config.frequency_context_size,
    )
    return processors
