"""What refinement gives and costs, on the embedded pair or another.

    python -m benchmarks.refine --part equality [--windows 4,16] [--kind stream]
    python -m benchmarks.refine --part margin [--bits 4,3,2]    drafts read along the target's text
    python -m benchmarks.refine --part runs [--taus 1,2] [--bits 4,3,2]         mode margin, run
    python -m benchmarks.refine --part modes                    bytes a token, K = 1 and K = 4
    python -m benchmarks.refine --part cost                     of the runs in the log

Runs are written to ``--log`` as they end, and not run again from there; `margin` and `runs` take
the target's own text from the log, too. A residual target is named by ``--model`` (a pair).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.refine_common import Log
from benchmarks.refine_cost import cost
from benchmarks.refine_equality import equality
from benchmarks.refine_margin import drafts, margin
from benchmarks.refine_modes import modes
from benchmarks.refine_runs import runs
from llm_msi.tuning import Costs
from msi_engine import Engine
from msi_engine.model import logical_nbytes, prepare_backend, resolve

PARTS = ["equality", "margin", "runs", "modes", "cost"]
KINDS = {
    "resident": {"target_residency": "resident"},
    "stream": {"target_residency": "stream"},
    "residual": {},
}


def main() -> None:
    prepare_backend()
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="python -m benchmarks.refine",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--part", choices=PARTS, required=True)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--log", type=Path, default=Path("refine.jsonl"))
    parser.add_argument("--folder", type=Path, default=Path("refine-drafts"))
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--windows", default="4,16")
    parser.add_argument("--taus", default="1,2")
    parser.add_argument("--bits", default="4,3,2")
    parser.add_argument("--kind", choices=sorted(KINDS), default="resident")
    options = parser.parse_args()
    log, (prompts, tokens) = Log(options.log), (options.prompts, options.tokens)
    windows = [int(w) for w in options.windows.split(",")]
    if options.part == "cost":
        cost(log)
    elif options.part == "modes":
        modes(Engine.load(options.model), log, num_prompts=prompts, max_tokens=tokens)
    elif options.part in ("margin", "runs"):
        path = resolve(options.model).target
        if path is None:
            parser.error(f"{options.model} is no pair that is here")
        options.folder.mkdir(exist_ok=True)
        target = {"target": str(path), "target_residency": "resident"}
        taus = [float(t) for t in options.taus.split(",")]
        size = {"num_prompts": prompts, "max_tokens": tokens}
        for name, draft in drafts(options.folder, [int(b) for b in options.bits.split(",")]):
            engine = Engine.load(str(draft))
            costs = Costs(logical_nbytes(draft), logical_nbytes(path))
            if options.part == "margin":
                margin(log, engine, name, target, costs, **size)
            else:
                runs(engine, log, name, target, costs, taus=taus, window=windows[0], **size)
    else:
        equality(
            Engine.load(options.model),
            log,
            kind=options.kind,
            windows=windows,
            num_prompts=prompts,
            max_tokens=tokens,
            target=dict(KINDS[options.kind]),
        )


if __name__ == "__main__":
    main()
