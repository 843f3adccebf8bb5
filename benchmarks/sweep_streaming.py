"""Which of mlx-lm's architectures stream, and whether their logits are the same to the bit.

    python -m benchmarks.sweep_streaming [NAME ...]

Tiny random models with weights of 8 bits, stored in two files, are run resident and streamed: a
prefill, two paths for two steps, a collapse and a step. Exit code 1 if any logit differs.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from msi_engine.model import prepare_backend

prepare_backend()
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "model"))

import mlx.core as mx  # noqa: E402
from folders import tiny_folder  # noqa: E402

from msi_engine.cache import SharedPrefixCache, proved  # noqa: E402
from msi_engine.errors import UnsupportedModelError  # noqa: E402
from msi_engine.model.load import load_weights, open_weights  # noqa: E402
from msi_engine.model.streaming import stream  # noqa: E402


def main(names: list[str]) -> int:
    outcomes: Counter[str] = Counter()
    for name in names or sorted(proved.PROVED):
        with tempfile.TemporaryDirectory() as folder:
            outcome, detail = compared(name, Path(folder) / name)
        outcomes[outcome] += 1
        if outcome != "equal":
            print(f"{name}: {outcome}: {detail}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()))
    return int(outcomes["different"] > 0)


def compared(name: str, folder: Path) -> tuple[str, str]:
    """What became of an architecture, and why."""
    try:
        tiny_folder(folder, name, 8, mx.float32)
        resident = load_weights(folder)
    except Exception as error:
        return "not made", str(error).splitlines()[0]
    streamed = open_weights(folder)
    try:
        stream(streamed, folder)
    except UnsupportedModelError as error:
        return "refused", str(error).partition("streamed: ")[2]
    pairs = zip(logits(streamed), logits(resident), strict=True)
    worst = max(float(np.abs(got - want).max()) for got, want in pairs)
    return ("equal", "") if worst == 0 else ("different", f"by {worst:.3g}")


def logits(model: Any) -> list[np.ndarray]:
    cache = SharedPrefixCache.for_model(model)
    found = [cache.forward(mx.array([[1, 2, 3, 4, 5, 6, 7]]))]
    cache.evaluate()
    cache.fork(2)
    found.append(cache.forward(mx.array([[1], [2]])))
    found.append(cache.forward(mx.array([[3], [4]])))
    cache.collapse(1)
    found.append(cache.forward(mx.array([[9]])))
    return [np.array(array) for array in found]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
