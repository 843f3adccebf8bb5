"""Runs of mode `margin` on a pair: how near to the target's own greedy text, at what cost."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.refine_common import Log, Own, encode
from benchmarks.refine_prompts import PROMPTS
from msi_engine import DecodeConfig, Engine


def runs(
    engine: Engine, log: Log, taus: Sequence[float], window: int, num_prompts: int, max_tokens: int
) -> None:
    """Run what the log lacks; print a line for each tau over the prompts of `equality`.

    Only prompts whose verified run the log has are taken: it is what these are compared with.
    """
    print(
        f"{'tau':>6}{'window':>8}{'runs':>6}{'checked':>9}{'agreement':>11}{'identical':>11}"
        f"{'prefix':>8}{'sweeps':>8}{'rollbacks':>11}{'bytes':>7}"
    )
    for tau in taus:
        found = []
        for number in range(num_prompts):
            key = {"part": "equality", "kind": "resident", "prompt": number, "window": 0}
            own = log.find(**key, max_tokens=max_tokens)
            if own is None:
                continue
            options = {"refine": "margin", "tau": tau, "window": window, "max_tokens": max_tokens}
            found.append(
                log.once(
                    lambda n=number, o=options, own=own: _run(
                        engine, n, o, Own(own["tokens"], own["leads"])
                    ),
                    part="margin",
                    prompt=number,
                    tau=tau,
                    window=window,
                    max_tokens=max_tokens,
                )
            )
        _print(tau, window, found)


def _run(engine: Engine, number: int, options: dict[str, Any], own: Own) -> dict[str, Any]:
    tokens = encode(engine, PROMPTS[number])
    config = DecodeConfig(k=1, temperature=0, **options)
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


def _print(tau: float, window: int, found: Sequence[dict[str, Any]]) -> None:
    if not found:
        return
    costs = [line["cost"] for line in found]
    tokens = sum(len(line["tokens"]) for line in found)
    read = sum(c["draft_bytes"] + c["target_bytes"] for c in costs)
    drafted = sum(c["drafted"] for c in costs)
    print(
        f"{tau:6g}{window:8}{len(found):6}{sum(c['deferred'] for c in costs) / drafted:9.2f}"
        f"{sum(line['agreed'] for line in found) / tokens:11.3f}"
        f"{sum(line['identical'] for line in found):11}"
        f"{sum(line['prefix'] for line in found) / len(found):8.2f}"
        f"{sum(c['sweeps'] for c in costs):8}{sum(c['rollbacks'] for c in costs):11}"
        f"{read / tokens / costs[0]['plain_bytes_per_token']:7.2f}",
        flush=True,
    )
