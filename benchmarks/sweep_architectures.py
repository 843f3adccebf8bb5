"""Runs random cache programs on every model file of mlx-lm that can be built tiny.

    python benchmarks/sweep_architectures.py [--no-hook] [--max-kv-size N] [file ...]

Prints one line a file: cache kinds, whether attention went through the hook or through gathered
arrays, and the greatest relative difference of logits from K independent copies of mlx-lm's own
caches over all programs.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from pathlib import Path

import mlx.core as mx
import mlx_lm.models
from mlx_lm.models.cache import make_prompt_cache

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cache"))

from programs import Pair, random_program
from tiny_models import make

from msi_engine.cache import hook
from msi_engine.errors import UnsupportedModelError

TOLERANCE = 2e-5
PREFIXES = (0, 1, 6, 21, 40)
# Cannot be imported or run on this kind of machine at all, with or without the cache.
SKIP = {"olmo": "needs ai2-olmo", "bitnet": "needs Metal", "phi3small": "crashes in its own code"}


def main() -> int:
    """Sweep; return 1 if a file that could be run does not match."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="file", help="model files; all by default")
    parser.add_argument("--no-hook", action="store_true", help="gathered arrays everywhere")
    parser.add_argument("--max-kv-size", type=int, help="where models do not make their own caches")
    given = parser.parse_args()
    if given.no_hook:
        hook.install = lambda modules: None
    options = {} if given.max_kv_size is None else {"max_kv_size": given.max_kv_size}
    outcomes: dict[str, list[str]] = {"match": [], "do not": [], "not run": []}
    for name in given.names or sorted(m.name for m in pkgutil.iter_modules(mlx_lm.models.__path__)):
        outcome, line = examine(name, options)
        if outcome is not None:
            outcomes[outcome].append(name)
            print(f"{name:24} {line}", flush=True)
    counts = (f"{len(names)} {outcome}" for outcome, names in outcomes.items())
    print(", ".join(counts), *outcomes["do not"], *outcomes["not run"])
    return 1 if outcomes["do not"] else 0


def examine(name: str, options: dict[str, int]) -> tuple[str | None, str]:
    """The outcome for one file and what to print about it; None if it holds no model."""
    if name in SKIP:
        return "not run", f"not run: {SKIP[name]}"
    if not hasattr(importlib.import_module(f"mlx_lm.models.{name}"), "Model"):
        return None, ""
    try:
        model = make(name)
        mx.eval(model(mx.array([[1, 2]]), cache=make_prompt_cache(model)))
    except Exception as error:
        return "not run", f"not run: {str(error).splitlines()[0][:80]}"
    try:
        error, hits = run(model, options)
    except UnsupportedModelError as refused:
        return "not run", f"refused: {refused}"
    except Exception as broken:
        return "do not", f"FAILED: {type(broken).__name__}: {broken}"
    way = "hook" if hits else "gather"
    outcome = "match" if error <= TOLERANCE else "do not"
    return outcome, f"{kinds(model):44} {way:7} {error:.1e}  {outcome}"


def run(model: object, options: dict[str, int]) -> tuple[float, int]:
    """Greatest error over the programs, and calls of the hook."""
    hits = 0
    split = hook.split_attention

    def counted(*args: object, **kwargs: object) -> mx.array:
        nonlocal hits
        hits += 1
        return split(*args, **kwargs)

    hook.split_attention = counted
    try:
        error = 0.0
        for seed, prefix in enumerate(PREFIXES):
            pair = Pair(model, **options)
            random_program(pair, seed, prefix=prefix)
            error = max(error, pair.error)
        return error, hits
    finally:
        hook.split_attention = split


def kinds(model: object) -> str:
    """Cache classes of the model, short."""
    names = set()
    for cache in make_prompt_cache(model):
        members = getattr(cache, "caches", None)
        names.add("+".join(type(c).__name__ for c in members) if members else type(cache).__name__)
    return " ".join(sorted(names)).replace("Cache", "")


if __name__ == "__main__":
    sys.exit(main())
