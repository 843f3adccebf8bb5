"""A process of its own for the memory tests: loads a pair, sweeps, prints what it took as JSON.

    python streaming_child.py DRAFT TARGET RESIDENCY LIMIT

LIMIT: bytes of memory beyond what the process has once the draft is loaded; 0 is none.
"""

import json
import resource
import sys
from pathlib import Path

from msi_engine.model import load_model, load_target, prepare_backend

TOKENS = 16
SWEEPS = 2


def status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def main(draft: str, target: str, residency: str, limit: str) -> None:
    prepare_backend()
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache
    from mlx_lm.utils import load_tokenizer

    mx.eval(mx.ones((999, 999)) @ mx.ones((999, 999)))  # the BLAS makes its buffers
    load_tokenizer(Path(draft))  # imports what it needs
    before = status("VmRSS:")
    loaded = load_model(draft)
    mx.eval(loaded.model(mx.array([[1, 2, 3]])))
    mx.clear_cache()
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    if int(limit):
        most = status("VmData:") + int(limit)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    found = load_target(loaded, name=target, residency=residency)
    cache = make_prompt_cache(found.model)
    total = 0.0
    for start in range(SWEEPS):
        tokens = mx.array([[(start + i) % 300 for i in range(TOKENS)]])
        total += mx.sum(mx.abs(found.model(tokens, cache=cache))).item()
    result = {
        "before": before,
        "draft": loaded.nbytes,
        "target": found.nbytes,
        "kind": found.kind,
        "caches": sum(c.nbytes for c in cache),
        "peak": status("VmHWM:"),
        "sum": total,
    }
    sys.stdout.write(json.dumps(result))


main(*sys.argv[1:])
