"""Run every benchmark, one after the other: ``python -m benchmarks``, which is ``make bench``."""

import subprocess
import sys

BENCHMARKS = (
    "speed",
    "parts",
    "scorer_cost",
    "identity",
    "sweep_architectures",
    "sweep_streaming",
    "targets",
)


def main() -> int:
    """Run them in processes of their own; 1 if any of them failed."""
    codes = []
    for name in BENCHMARKS:
        print(f"\n== {name}", flush=True)
        codes.append(subprocess.run([sys.executable, "-m", f"benchmarks.{name}"]).returncode)
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
