"""What refinement gives and costs, on the embedded pair or another.

    python -m benchmarks.refine --part equality [--windows 4,16] [--prompts 50] [--tokens 96]

Runs are written to ``--log`` as they end, and not run again from there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.refine_common import Log
from benchmarks.refine_equality import equality
from msi_engine import Engine

KINDS = {
    "resident": {"target_residency": "resident"},
    "stream": {"target_residency": "stream"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.refine")
    parser.add_argument("--part", choices=["equality"], required=True)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--log", type=Path, default=Path("refine.jsonl"))
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--windows", default="4,16")
    parser.add_argument("--kind", choices=sorted(KINDS), default="resident")
    options = parser.parse_args()
    engine = Engine.load(options.model)
    equality(
        engine,
        Log(options.log),
        kind=options.kind,
        windows=[int(w) for w in options.windows.split(",")],
        num_prompts=options.prompts,
        max_tokens=options.tokens,
        target=dict(KINDS[options.kind]),
    )


if __name__ == "__main__":
    main()
