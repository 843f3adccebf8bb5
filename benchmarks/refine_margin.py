"""How well does a draft's margin tell where the target would differ, and what does that save?

The target's own greedy text comes from the log of `refine_equality`; each draft is read along it,
in a few passes, and every tau and window follows from that (`llm_msi.tuning`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.refine_common import Log, Own, encode, own_greedy, pair_of
from benchmarks.refine_prompts import PROMPTS
from llm_msi.tune_refine import observed
from llm_msi.tuning import VERIFY, Costs, Observed, area_under_roc, predict
from msi_engine import DecodeConfig, Engine

TAUS = (0.0, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, VERIFY)
WINDOWS = (1, 2, 4, 8, 16)


def margin(
    log: Log,
    engine: Engine,
    draft: str,
    target: dict[str, Any],
    costs: Costs,
    *,
    num_prompts: int,
    max_tokens: int,
) -> None:
    """Print the table of a draft.

    Args:
        log: Runs so far.
        engine: Of the draft.
        draft: What it is called.
        target: Options that choose the target.
        costs: Bytes of a pass of either.
        num_prompts: Of the fifty, the first.
        max_tokens: Most tokens of the target's text.
    """
    numbers = range(min(num_prompts, len(PROMPTS)))
    answers = [observe(log, engine, number, max_tokens, target) for number in numbers]
    table(draft, answers, costs)


def drafts(folder: Path, bits: Sequence[int]) -> Iterator[tuple[str, Path]]:
    """Quantisations of the embedded model in full precision, in groups of 64."""
    from mlx_lm import convert

    from benchmarks.targets import original

    source = folder / "full" if (folder / "full").exists() else original(folder)
    for width in bits:
        path = folder / f"q{width}"
        if not path.exists():
            with contextlib.redirect_stdout(io.StringIO()):
                convert(str(source), str(path), quantize=True, q_bits=width, q_group_size=64)
        yield f"draft of {width} bits", path


def own_of(
    log: Log, engine: Engine, number: int, max_tokens: int, target: dict[str, Any]
) -> tuple[list[int], Own]:
    """A prompt's tokens, and what the target writes after it, from the log if it is there."""
    tokens = encode(engine, PROMPTS[number])
    key = {"part": "equality", "kind": "resident", "prompt": number, "max_tokens": max_tokens}
    line = log.once(
        lambda: dataclasses.asdict(own_greedy(pair_of(engine, **target), tokens, max_tokens)),
        **key,
        window=0,
    )
    return tokens, Own(line["tokens"], line["leads"])


def observe(
    log: Log, engine: Engine, number: int, max_tokens: int, target: dict[str, Any]
) -> Observed:
    """The draft along the target's own text after a prompt."""
    prompt, own = own_of(log, engine, number, max_tokens, target)
    draft = engine.opinions(prompt, own.tokens, DecodeConfig(**target), of="draft")
    ends = engine.ends(DecodeConfig(refine="verify", **target))
    return observed(draft, own.tokens, ends, max_tokens)


def table(name: str, answers: Sequence[Observed], costs: Costs) -> None:
    """Print what each tau comes to, and bytes for each window."""
    size = sum(len(o.flips) for o in answers)
    flips = sum(sum(o.flips) for o in answers)
    area = area_under_roc(answers)
    print(
        f"\n{name}: {len(answers)} prompts, {size} tokens, {flips} flips ({flips / size:.1%}), "
        f"area under ROC {'-' if area is None else f'{area:.3f}'}, a pass of the draft reads "
        f"{costs.draft / costs.target:.2f} of the target's\n"
        f"{'tau':>6}{'checked':>9}{'caught':>8}{'agreement':>11}"
        + "".join(f"{f'w {w}':>7}" for w in WINDOWS)
    )
    for tau in TAUS:
        row = [predict(answers, costs, tau, window) for window in WINDOWS]
        print(
            f"{'all' if tau == VERIFY else f'{tau:g}':>6}{row[0].checked:9.3f}{row[0].caught:8.3f}"
            f"{row[0].agreement:11.3f}" + "".join(f"{s.bytes:7.2f}" for s in row),
            flush=True,
        )
