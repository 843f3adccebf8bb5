"""What an answer carries beside its text: usage, how it ended, what the paths and scorers did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from langchain_core.language_models import LangSmithParams
from langchain_core.messages.ai import UsageMetadata

from langchain_msi.fields import MSIFields, stop_strings
from langchain_msi.identity import model_name
from msi_engine import DecodeConfig, Generation

PROVIDER = "msi"


def ls_params(
    fields: MSIFields,
    kind: Literal["chat", "llm"],
    stop: str | Sequence[str] | None,
    options: Mapping[str, Any],
) -> LangSmithParams:
    """What LangSmith wants to know of a call."""
    params = LangSmithParams(
        ls_provider=PROVIDER,
        ls_model_type=kind,
        ls_model_name=str(options.get("model") or model_name(fields.model)),
        ls_temperature=options.get("temperature", fields.temperature),
        ls_max_tokens=options.get("max_tokens", fields.max_tokens),
    )
    if stopping := list(stop_strings(fields.stop if stop is None else stop)):
        params["ls_stop"] = stopping
    return params


def usage_of(generation: Generation) -> UsageMetadata:
    """Tokens read and written. Those of paths that were not chosen are in `metadata_of`."""
    stats = generation.stats
    return UsageMetadata(
        input_tokens=stats.prompt_tokens,
        output_tokens=stats.output_tokens,
        total_tokens=stats.prompt_tokens + stats.output_tokens,
        input_token_details={"cache_read": stats.prompt_tokens - stats.prefilled_tokens},
    )


def metadata_of(
    generation: Generation, *, with_trace: bool = False, called: bool = False
) -> dict[str, Any]:
    """Plain JSON, for the last chunk or the whole message.

    ``finish_reason`` is ``length`` at the token budget, ``tool_calls`` if there are any, and
    ``stop`` otherwise, as elsewhere in LangChain; ``ended_by`` tells ``eos`` from a ``stop``
    string.

    Args:
        generation: A finished answer.
        with_trace: Add every sentence with its paths, as ``trace``.
        called: The answer calls tools.
    """
    ended = "tool_calls" if called else "stop"
    trace, stats = generation.trace, generation.stats
    told = {"trace": generation.summary()} if with_trace else {}
    return {
        **told,
        "model_name": trace.model,
        "model_provider": PROVIDER,
        "finish_reason": "length" if generation.finish_reason == "length" else ended,
        "ended_by": generation.finish_reason,
        "seed": generation.seed,
        "paths": trace.config.k,
        "path_tokens": stats.path_tokens,
        "forward_passes": stats.forward_passes,
        "collapses": stats.collapses,
        "trajectories": stats.trajectories,
        "scorers": _scorers(trace.config, generation),
        **({"refinement": stats.refinement.as_dict()} if stats.refinement else {}),
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
