"""Bytes read for a token and time for a token, from the runs that a log holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.refine_common import Log


def cost(log: Log) -> None:
    """Print a row for each setting that was run, on the prompts that all of them share.

    On hardware whose time goes to reading weights, a token takes as long as its bytes: the speed-up
    over the target alone is 1 / bytes, at the acceptance that was measured. On a CPU both models
    compute in float32 and a pass of either takes the same: the last column says what that is.
    """
    by_setting: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
    for line in log.lines:
        if line["part"] != "modes" and line["window"]:
            tau = line["tau"] if line["part"] == "margin" else "all"
            key = (line.get("kind") or line["draft"], line["max_tokens"], tau, line["window"])
            by_setting.setdefault(key, {})[line["prompt"]] = line
    print(
        f"{'':>16}{'tau':>6}{'window':>8}{'runs':>6}{'passes':>8}{'sweeps':>8}{'bytes':>8}"
        f"{'speed-up':>10}{'ms a pass':>11}{'ms a sweep':>12}"
    )
    for (kind, _, tau, window), runs in by_setting.items():
        _row(kind, tau, window, list(runs.values()))


def _row(kind: str, tau: float | str, window: int, lines: Sequence[dict[str, Any]]) -> None:
    costs = [line["cost"] for line in lines]
    tokens = sum(len(line["tokens"]) for line in lines)
    plain = costs[0]["plain_bytes_per_token"]
    read = sum(c["draft_bytes"] + c["target_bytes"] for c in costs) / tokens / plain
    sweeps = sum(c["sweeps"] for c in costs)
    passes = sum(c["drafted"] + c["rollbacks"] for c in costs)
    draft_ms = 1e3 * sum(c["draft_s"] for c in costs) / passes
    sweep_ms = 1e3 * sum(c["sweep_s"] for c in costs) / max(sweeps, 1)
    print(
        f"{kind:>16}{tau!s:>6}{window:8}{len(lines):6}{passes / tokens:8.2f}{sweeps / tokens:8.2f}"
        f"{read:8.2f}{1 / read:10.2f}{draft_ms:11.0f}{sweep_ms:12.0f}"
    )
