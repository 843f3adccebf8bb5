"""Bytes of weights read for a token of output, mode by mode, for one path and for several."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.refine_common import Log, encode
from benchmarks.refine_prompts import PROMPTS
from msi_engine import Engine

WINDOW = 4
TAU = 1.0
MODES = (
    (1, "off"),
    (1, "margin"),
    (1, "verify"),
    (4, "off"),
    (4, "margin"),
    (4, "verify"),
    (4, "rescore"),
)


def modes(engine: Engine, log: Log, *, num_prompts: int, max_tokens: int) -> None:
    """Run what the log lacks and print a row for each mode.

    Args:
        engine: Of a pair whose plain decoding is the target's: what `off` reads, it reads.
        log: Runs so far.
        num_prompts: Of the fifty, the first.
        max_tokens: Budget of a run.
    """
    print(
        f"{'K':>3}{'mode':>9}{'runs':>6}{'tokens':>8}{'drafted':>9}{'accepted':>10}{'sweeps':>8}"
        f"{'bytes':>8}{'speed-up':>10}{'ms a token':>12}"
    )
    plain: dict[int, float] = {}
    for k, mode in MODES:
        key = {"part": "modes", "k": k, "mode": mode, "max_tokens": max_tokens}
        found = [
            log.once(
                lambda p=prompt, k=k, m=mode: _run(engine, p, k, m, max_tokens),
                **key,
                prompt=number,
                window=WINDOW,
            )
            for number, prompt in enumerate(PROMPTS[:num_prompts])
        ]
        read = _total(found, "read") / _total(found, "num_tokens")
        plain.setdefault(k, read)
        _print(k, mode, found, read, plain[k])


def _run(engine: Engine, prompt: str, k: int, mode: str, max_tokens: int) -> dict[str, Any]:
    own: dict[str, Any] = {"tau": TAU, "window": WINDOW} if mode in ("margin", "verify") else {}
    start = time.perf_counter()
    done = engine.generate(
        encode(engine, prompt), k=k, refine=mode, max_tokens=max_tokens, seed=0, **own
    )
    seconds = time.perf_counter() - start
    stats, cost = done.stats, done.stats.refinement
    passes = stats.forward_passes + 1  # the prompt's last token leads to the first of the answer
    read = (
        float(passes)
        if cost is None
        else (cost.draft_bytes + cost.target_bytes) / cost.plain_bytes_per_token
    )
    return {
        "num_tokens": stats.output_tokens,
        "read": read,
        "seconds": seconds,
        "cost": None if cost is None else dataclasses.asdict(cost),
    }


def _total(found: Sequence[dict[str, Any]], name: str) -> float:
    return float(sum(line[name] for line in found))


def _print(k: int, mode: str, found: Sequence[dict[str, Any]], read: float, plain: float) -> None:
    costs = [line["cost"] for line in found if line["cost"] is not None]
    tokens = _total(found, "num_tokens")
    drafted, accepted = (sum(c[name] for c in costs) for name in ("drafted", "accepted"))
    print(
        f"{k:3}{mode:>9}{len(found):6}{tokens:8.0f}{drafted:9}"
        f"{f'{accepted / drafted:.2f}' if drafted else '-':>10}"
        f"{sum(c['sweeps'] for c in costs) / tokens:8.2f}{read:8.2f}{plain / read:10.2f}"
        f"{1e3 * _total(found, 'seconds') / tokens:12.0f}",
        flush=True,
    )
