"""Does the engine decode what it should? Token by token on the embedded model, in a table.

    python -m benchmarks.identity [--prompts N] [--tokens N] [--k 4,8] [--part single,paths]

K = 1 against `mlx_lm.stream_generate`; K > 1 against the slow reference of the tests, under every
law and every collapse mode. A run is compared up to the first position that rounding may turn (two
best logits less than 1e-3 apart, credences less than 1e-4), if the two part there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping
from typing import Any

from msi_engine import Engine
from tests.reference.real import PROMPTS, Outcome, Slow, against_mlx_lm

SINGLE: Mapping[str, Mapping[str, Any]] = {
    "greedy": {},
    "temperature 0.8": {"temperature": 0.8, "seed": 0},
    "top_p": {"temperature": 1.0, "top_p": 0.9, "seed": 1},
    "min_p": {"temperature": 1.2, "min_p": 0.05, "min_tokens_to_keep": 2, "seed": 2},
    "top_k": {"temperature": 0.9, "top_k": 20, "seed": 3},
    "xtc": {"temperature": 0.9, "xtc_probability": 0.5, "xtc_threshold": 0.1, "seed": 4},
    "all filters": {
        "temperature": 1.1,
        "top_p": 0.95,
        "min_p": 0.02,
        "top_k": 40,
        "xtc_probability": 0.3,
        "seed": 5,
    },
}
PENALTIES: Mapping[str, Any] = {
    "repetition_penalty": 1.2,
    "presence_penalty": 0.3,
    "frequency_penalty": 0.2,
    "logit_bias": {198: -1.5},
}
LAWS = ("paper", "mean", "posterior")
MODES = ("argmax", "sample", "token_vote", "mbr")
# One for each prompt, so that every option meets every law and mode.
VARIATIONS: tuple[Mapping[str, Any], ...] = (
    {},
    {"short_circuit": 0.9},
    {"diversity": 1.0},
    {"repetition_penalty": 1.3, "presence_penalty": 0.2},
    {"scorers": {"wit": 0.5}, "score_every": 4},
    {"majority": 1.0, "dedup_tokens": 1},
    {"boundary": (), "segment_length": 8, "spawn_min_p": 0.0},
    {"align_steps": 2, "length_penalty": 0.5, "beta": 0.7},
    {"spawn_min_p": 0.0, "vote_guard": None},
    {"stop": ("\n\n", "price"), "scorers": {"wit": 2.0}, "vote_guard": 0.0},
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=None)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--k", default="4,8")
    parser.add_argument("--part", default="single,paths")
    options = parser.parse_args()
    engine = Engine.load("embedded")
    if "single" in options.part:
        single(engine, options.prompts or 20, options.tokens)
    if "paths" in options.part:
        widths = [int(k) for k in options.k.split(",")]
        paths(engine, widths, options.prompts or 10, options.tokens)


def single(engine: Engine, num_prompts: int, max_tokens: int) -> None:
    print(f"K = 1 against mlx_lm.stream_generate, {num_prompts} prompts x {max_tokens} tokens")
    header()
    for name, sampling in SINGLE.items():
        for with_penalties in (False, True):
            options = {
                **sampling,
                **(PENALTIES if with_penalties else {}),
                "max_tokens": max_tokens,
            }
            label = name + (" + penalties" if with_penalties else "")
            report(label, (against_mlx_lm(engine, p, options) for p in PROMPTS[:num_prompts]))


def paths(engine: Engine, widths: Iterable[int], num_prompts: int, max_tokens: int) -> None:
    print(f"\nK > 1 against the slow reference, {num_prompts} prompts x {max_tokens} tokens")
    header()
    cells: dict[str, list[Outcome | AssertionError]] = {}
    for number, prompt in enumerate(PROMPTS[:num_prompts]):
        start = time.perf_counter()
        slow = Slow(engine, prompt)  # logits that one law has asked for serve all others
        for k in widths:
            for law in LAWS:
                for mode in MODES:
                    options = {"k": k, "law": law, "collapse": mode, "max_tokens": max_tokens}
                    options |= VARIATIONS[number % len(VARIATIONS)]
                    cells.setdefault(f"K = {k}  {law:9}  {mode}", []).append(attempt(slow, options))
        elapsed = time.perf_counter() - start
        report(f"prompt {number + 1} ({elapsed:.0f} s)", [o[-1] for o in cells.values()])
    print()
    for label, outcomes in cells.items():
        report(label, outcomes)


def attempt(slow: Slow, options: Mapping[str, Any]) -> Outcome | AssertionError:
    try:
        return slow.against_engine(options)
    except AssertionError as difference:
        print(f"  DIFFERENT with {dict(options)}: {difference}", flush=True)
        return difference


def header() -> None:
    print(f"{'':32}{'runs':>6}{'equal':>7}{'ties':>6}{'wrong':>7}{'tokens':>8}{'collapses':>11}")


def report(label: str, outcomes: Iterable[Outcome | AssertionError]) -> None:
    found: list[Outcome | AssertionError] = []
    stream = iter(outcomes)
    while True:
        try:
            found.append(next(stream))
        except StopIteration:
            break
        except AssertionError as difference:
            print(f"  DIFFERENT: {difference}")
            found.append(difference)
    right = [o for o in found if isinstance(o, Outcome)]
    ties = sum(o.tie is not None for o in right)
    print(
        f"{label:32}{len(found):6}{len(right) - ties:7}{ties:6}{len(found) - len(right):7}"
        f"{sum(o.tokens for o in right):8}{sum(o.collapses for o in right):11}",
        flush=True,
    )


if __name__ == "__main__":
    main()
