"""Runs of mode `margin` on a pair: how near to the target's own greedy text, at what cost."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.refine_common import Log, Own
from benchmarks.refine_margin import observe, own_of
from benchmarks.refine_prompts import PROMPTS
from llm_msi.tuning import Costs, Observed, account, predict
from msi_engine import DecodeConfig, Engine

# Sweeps and rollbacks are for a token; answers that are the target's own; the same up to.
_HEAD = (
    f"{'tau':>6}{'':10}{'checked':>9}{'agreement':>11}{'sweeps':>8}{'rollbacks':>11}{'bytes':>7}"
    f"{'identical':>11}{'prefix':>8}"
)


def runs(
    engine: Engine,
    log: Log,
    draft: str,
    target: dict[str, Any],
    costs: Costs,
    *,
    taus: Sequence[float],
    window: int,
    num_prompts: int,
    max_tokens: int,
) -> None:
    """Run what the log lacks; print a row for each tau, and one of what was forecast for it.

    Args:
        engine: Of the draft.
        log: Runs so far, with the target's own texts.
        draft: What the draft is called in the log.
        target: Options that choose the target.
        costs: Bytes of a pass of either.
        taus: Of each prompt.
        window: Of all runs.
        num_prompts: Of the fifty, the first.
        max_tokens: Budget of a run.
    """
    numbers = range(min(num_prompts, len(PROMPTS)))
    seen = [observe(log, engine, number, max_tokens, target) for number in numbers]
    print(f"\n{draft}, {len(numbers)} prompts, window {window}\n{_HEAD}", flush=True)
    for tau in taus:
        options = {"tau": tau, "window": window, "max_tokens": max_tokens, **target}
        found = []
        for number in numbers:
            prompt, own = own_of(log, engine, number, max_tokens, target)
            found.append(
                log.once(
                    lambda p=prompt, o=options, own=own: _run(engine, p, o, own),
                    part="margin",
                    draft=draft,
                    prompt=number,
                    tau=tau,
                    window=window,
                    max_tokens=max_tokens,
                )
            )
        _print(tau, found)
        _print_forecast(seen, costs, tau, window)


def _run(engine: Engine, tokens: list[int], options: dict[str, Any], own: Own) -> dict[str, Any]:
    config = DecodeConfig(k=1, temperature=0, refine="margin", **options)
    start = time.perf_counter()
    done = engine.generate(tokens, config)
    seconds = time.perf_counter() - start
    target = engine.opinions(tokens, done.tokens, config, of="target")
    pairs = list(zip(done.tokens, own.tokens, strict=False))
    parted = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
    cost = done.stats.refinement
    return {
        "tokens": list(done.tokens),
        "agreed": sum(o.token == t for o, t in zip(target, done.tokens, strict=True)),
        "identical": list(done.tokens) == own.tokens,
        "prefix": parted / len(own.tokens),
        "seconds": seconds,
        "cost": None if cost is None else dataclasses.asdict(cost),
    }


def _print(tau: float, found: Sequence[dict[str, Any]]) -> None:
    costs = [line["cost"] for line in found]
    tokens = sum(len(line["tokens"]) for line in found)
    read = sum(c["draft_bytes"] + c["target_bytes"] for c in costs)
    drafted = sum(c["drafted"] for c in costs)
    print(
        f"{tau:6g}  run     {sum(c['deferred'] for c in costs) / drafted:9.2f}"
        f"{sum(line['agreed'] for line in found) / tokens:11.3f}"
        f"{sum(c['sweeps'] for c in costs) / tokens:8.2f}"
        f"{sum(c['rollbacks'] for c in costs) / tokens:11.2f}"
        f"{read / tokens / costs[0]['plain_bytes_per_token']:7.2f}"
        f"{sum(line['identical'] for line in found):11}"
        f"{sum(line['prefix'] for line in found) / len(found):8.2f}",
        flush=True,
    )


def _print_forecast(seen: Sequence[Observed], costs: Costs, tau: float, window: int) -> None:
    promised = predict(seen, costs, tau, window)
    told = [account(answer, tau, window) for answer in seen]
    tokens = sum(a.tokens for a in told)
    print(
        f"{'':6}  forecast{promised.checked:9.2f}{promised.agreement:11.3f}"
        f"{sum(a.sweeps for a in told) / tokens:8.2f}"
        f"{sum(a.rollbacks for a in told) / tokens:11.2f}{promised.bytes:7.2f}",
        flush=True,
    )
