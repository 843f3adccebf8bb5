"""Does verified text equal what the target writes by itself, token for token?"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.refine_common import Log, Own, encode, meeting, own_greedy, pair_of
from benchmarks.refine_prompts import PROMPTS
from msi_engine import Engine


def equality(
    engine: Engine,
    log: Log,
    *,
    kind: str,
    windows: Sequence[int],
    num_prompts: int,
    max_tokens: int,
    target: dict[str, Any],
) -> None:
    """Run what the log lacks, prompt by prompt, and print the table.

    Args:
        engine: Of the draft, or of the pair.
        log: Runs so far.
        kind: What the target is called in the log.
        windows: Of each prompt, in this order.
        num_prompts: Of the fifty, the first.
        max_tokens: Budget of a run.
        target: Options that choose the target.
    """
    pair = pair_of(engine, **target)
    for number, prompt in enumerate(PROMPTS[:num_prompts]):
        tokens = encode(engine, prompt)
        key = {"part": "equality", "kind": kind, "prompt": number, "max_tokens": max_tokens}
        own_line = log.once(
            lambda tokens=tokens: dataclasses.asdict(own_greedy(pair, tokens, max_tokens)),
            **{**key, "kind": "resident" if kind == "stream" else kind},  # one model, one text
            window=0,
        )
        own = Own(own_line["tokens"], own_line["leads"])
        for window in windows:
            options = {"window": window, "max_tokens": max_tokens, **target}
            line = log.once(
                lambda t=tokens, o=options, own=own: _run(engine, t, o, own), **key, window=window
            )
            print(
                f"{kind} prompt {number} window {window}: {line['result']} up to {line['same']}, "
                f"{line['seconds']:.0f} s",
                flush=True,
            )
    report(log, kind, max_tokens)


def _run(engine: Engine, tokens: list[int], options: dict[str, Any], own: Own) -> dict[str, Any]:
    start = time.perf_counter()
    done = engine.generate(tokens, k=1, refine="verify", temperature=0, **options)
    seconds = time.perf_counter() - start
    result, same = meeting(done.tokens, own)
    cost = done.stats.refinement
    return {
        "result": result,
        "same": same,
        "lead": own.leads[same] if same < len(own.leads) else None,
        "seconds": seconds,
        "tokens": list(done.tokens),
        "cost": None if cost is None else dataclasses.asdict(cost),
    }


def report(log: Log, kind: str, max_tokens: int) -> None:
    """Print a table of the runs of one kind of target, a row for each window."""
    print(
        f"\n{kind} target, {max_tokens} tokens at most\n"
        f"{'window':>8}{'runs':>6}{'equal':>7}{'ties':>6}{'differ':>8}{'tokens':>8}"
        f"{'drafted':>9}{'sweeps':>8}{'rollbacks':>11}{'accepted':>10}{'bytes':>8}"
    )
    lines = [x for x in log.lines if x["part"] == "equality" and x["kind"] == kind and x["window"]]
    lines = [x for x in lines if x["max_tokens"] == max_tokens]
    for window in sorted({x["window"] for x in lines}):
        rows = [x for x in lines if x["window"] == window]
        count = {r: sum(x["result"] == r for x in rows) for r in ("equal", "tie", "differs")}
        total = {
            key: sum(x["cost"][key] for x in rows)
            for key in ("drafted", "accepted", "sweeps", "rollbacks", "draft_bytes", "target_bytes")
        }
        tokens = sum(len(x["tokens"]) for x in rows)
        plain = sum(len(x["tokens"]) * x["cost"]["plain_bytes_per_token"] for x in rows)
        read = (total["draft_bytes"] + total["target_bytes"]) / plain
        print(
            f"{window:8}{len(rows):6}{count['equal']:7}{count['tie']:6}{count['differs']:8}"
            f"{tokens:8}{total['drafted']:9}{total['sweeps']:8}{total['rollbacks']:11}"
            f"{total['accepted'] / total['drafted']:10.2f}{read:8.2f}"
        )
    for x in lines:
        if x["result"] != "equal":
            lead = "" if x["lead"] is None else f", {x['lead']:.2g} ahead"
            print(
                f"  prompt {x['prompt']}, window {x['window']}: {x['result']} at {x['same']}{lead}"
            )
