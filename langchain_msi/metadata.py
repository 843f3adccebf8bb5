"""What an answer carries beside its text: usage, how it ended, what the paths and scorers did."""

from __future__ import annotations

from typing import Any

from langchain_core.messages.ai import UsageMetadata

from msi_engine import DecodeConfig, Generation

PROVIDER = "msi"


def usage_of(generation: Generation) -> UsageMetadata:
    """Tokens read and written. Those of paths that were not chosen are in `metadata_of`."""
    stats = generation.stats
    return UsageMetadata(
        input_tokens=stats.prompt_tokens,
        output_tokens=stats.output_tokens,
        total_tokens=stats.prompt_tokens + stats.output_tokens,
        input_token_details={"cache_read": stats.prompt_tokens - stats.prefilled_tokens},
    )


def metadata_of(generation: Generation) -> dict[str, Any]:
    """Plain JSON, for the last chunk or the whole message.

    ``finish_reason`` is ``length`` at the token budget and ``stop`` otherwise, as elsewhere in
    LangChain; ``ended_by`` tells ``eos`` from a ``stop`` string.
    """
    trace, stats = generation.trace, generation.stats
    return {
        "model_name": trace.model,
        "model_provider": PROVIDER,
        "finish_reason": "length" if generation.finish_reason == "length" else "stop",
        "ended_by": generation.finish_reason,
        "seed": generation.seed,
        "paths": trace.config.k,
        "path_tokens": stats.path_tokens,
        "forward_passes": stats.forward_passes,
        "collapses": stats.collapses,
        "trajectories": stats.trajectories,
        "scorers": _scorers(trace.config, generation),
    }


def _scorers(config: DecodeConfig, generation: Generation) -> dict[str, Any]:
    stats = generation.stats
    return {
        name: {
            "weight": weight,
            "calls": stats.scorer_calls.get(name, 0),
            "decided": stats.decided.get(name, 0),
        }
        for name, weight in config.scorers.items()
    }
