"""What a step costs: the whole engine against mlx-lm, in one process, in alternating runs.

    python -m benchmarks.speed [--tokens 48] [--rounds 5] [--lengths 64 1024 4096] [--steps-only]

A step is the time from one forward pass to the next with all K paths live and no collapse in
between: sampling, weights, boundaries and detokenising included. Medians; read the ratios.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from msi_engine import DecodeConfig, Engine
from msi_engine.events import Committed, Spawned
from msi_engine.model import prepare_backend
from msi_engine.service import ENGINE_THREAD

TEXT = (
    "The lighthouse keeper counted the ships that passed in the night and wrote each of them "
    "down in a long book, with the hour, the weather and the colour of her lights. "
)
PATHS = (1, 4, 8)


def main() -> None:
    options = arguments()
    report = prepare_backend()
    engine = Engine.load("embedded")
    print(f"{engine.model_name} float32; BLAS {report.blas}, {report.threads} thread(s)")
    for length in options.lengths:
        bench = Bench(engine, length, options.tokens)
        for _ in range(options.rounds):
            ENGINE_THREAD.call(bench.round)
            if not options.steps_only:
                ENGINE_THREAD.call(bench.time_to_first)
        bench.print()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.speed")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps-only", action="store_true", help="no time to first token")
    parser.add_argument("--lengths", type=int, nargs="*", default=[64, 1024, 4096])
    return parser.parse_args()


class Bench:
    """All contenders at one prompt length; runs on the engine thread."""

    def __init__(self, engine: Engine, length: int, tokens: int) -> None:
        from mlx_lm.models.cache import make_prompt_cache

        self.engine = engine
        self.model, self.tokenizer = engine._held.loaded.model, engine.tokenizer
        ids = self.tokenizer.encode(TEXT * (length // 20 + 2))
        self.prompt = ids[:length]
        self.tokens = tokens
        self.steps: dict[str, list[float]] = defaultdict(list)
        self.first: dict[str, list[float]] = defaultdict(list)
        self.bytes: dict[str, int] = {}
        self.rounds = 0
        self.cache = make_prompt_cache(self.model)  # mlx-lm's, filled once

    def round(self) -> None:
        self.mlx_lm()
        for k in PATHS:
            self.msi(k)
        self.replicated(max(PATHS))
        self.rounds += 1

    def mlx_lm(self) -> None:
        """Ordinary decoding by mlx-lm, from a cache that holds the prompt."""
        from mlx_lm import stream_generate
        from mlx_lm.models.cache import trim_prompt_cache

        held = self.cache[0].offset
        trim_prompt_cache(self.cache, max(0, held - (len(self.prompt) - 1)))
        rest = self.prompt[self.cache[0].offset :]
        times = [time.perf_counter()]
        for _ in stream_generate(
            self.model, self.tokenizer, rest, max_tokens=self.tokens, prompt_cache=self.cache
        ):
            times.append(time.perf_counter())
        self.steps["mlx-lm"] += _differences(times)[2:-1]

    def msi(self, k: int) -> None:
        """The whole engine; the prompt is in the cache from the round before."""
        with Probe() as probe:
            for event in self.stream(k, self.tokens):
                probe.see(event)
        self.steps[f"K={k}"] += probe.steps(k)
        self.bytes[f"K={k}"] = probe.bytes

    def stream(self, k: int, tokens: int) -> Iterator[Any]:
        # First tokens drawn at random, others every round: most of them go on for a while.
        config = DecodeConfig(
            k=k,
            max_tokens=tokens,
            spawn_temperature=2.0,
            spawn_min_p=0,
            majority=1,
            seed=self.rounds,
        )
        return self.engine.stream(self.prompt, config)

    def replicated(self, k: int) -> None:
        """K full copies of the prefix and a bare greedy step: what sharing saves."""
        import mlx.core as mx
        import numpy as np
        from mlx_lm.models.cache import KVCache

        copies = [KVCache() for _ in self.cache]
        for own, cache in zip(copies, self.cache, strict=True):
            keys, values = (a[..., : cache.offset, :] for a in (cache.keys, cache.values))
            own.update_and_fetch(mx.repeat(keys, k, axis=0), mx.repeat(values, k, axis=0))
        mx.eval([(c.keys, c.values) for c in copies])
        tokens = mx.array([[self.prompt[-1]]] * k)
        times = []
        for _ in range(8):
            start = time.perf_counter()
            logits = np.array(self.model(tokens, cache=copies)[:, -1].astype(mx.float32))
            tokens = mx.array(logits.argmax(axis=-1)[:, None])
            times.append(time.perf_counter() - start)
        self.steps[f"replicated K={k}"] += times[2:]
        self.bytes[f"replicated K={k}"] = sum(c.nbytes for c in copies)
        del copies
        mx.clear_cache()

    def time_to_first(self) -> None:
        """From the request to the first token, nothing in any cache; who is first changes."""
        contenders = {
            "mlx-lm": self.first_of_mlx_lm,
            "K=1": lambda: self.first_of_msi(1),
            "K=4": lambda: self.first_of_msi(4),
        }
        turn = self.rounds % len(contenders)
        for name in [*list(contenders)[turn:], *list(contenders)[:turn]]:
            self.engine._held.keeper.clear()
            start = time.perf_counter()
            contenders[name]()
            self.first[name].append(time.perf_counter() - start)

    def first_of_mlx_lm(self) -> None:
        from mlx_lm import stream_generate

        next(iter(stream_generate(self.model, self.tokenizer, self.prompt, max_tokens=2)))

    def first_of_msi(self, k: int) -> None:
        wanted = Committed if k == 1 else Spawned
        next(event for event in self.stream(k, 2) if isinstance(event, wanted))

    def print(self) -> None:
        print(f"\nprompt {len(self.prompt)} tokens")
        base = statistics.median(self.steps["K=1"])
        for name, times in self.steps.items():
            if not times:
                print(f"  step {name}: no step had all paths live")
                continue
            median = statistics.median(times)
            reference = statistics.median(self.steps["mlx-lm"])
            print(
                f"  step {name:15} {median * 1e3:7.1f} ms   {median / base:5.2f} x K=1   "
                f"{median / reference:5.2f} x mlx-lm   ({len(times)} steps)"
            )
        k = max(PATHS)
        own, copies = self.steps[f"K={k}"], self.steps[f"replicated K={k}"]
        print(
            f"  shared against replicated, K={k}: "
            f"time {statistics.median(own) / statistics.median(copies):.2f} x, "
            f"memory {self.bytes[f'K={k}'] / self.bytes[f'replicated K={k}']:.3f} x"
        )
        if not self.first:
            return
        reference = statistics.median(self.first["mlx-lm"])
        for name, times in sorted(self.first.items()):
            median = statistics.median(times)
            print(f"  first token {name:8} {median:6.3f} s   {median / reference:5.2f} x mlx-lm")


class Probe:
    """Notes when each forward pass begins, of how many rows, and whether a collapse came before."""

    def __init__(self) -> None:
        self.passes: list[tuple[float, int, bool]] = []
        self.bytes = 0

    def __enter__(self) -> Probe:
        from msi_engine.feed import Fork
        from msi_engine.runner import Runner

        self._run = run = Runner.run

        def timed(runner: Runner, turn: Any) -> Any:
            rows = len(turn.feed.tokens) if turn.feed else 0
            spawned = any(isinstance(op, Fork) for op in turn.ops)
            self.passes.append((time.perf_counter(), rows, spawned))
            return run(runner, turn)

        Runner.run = timed  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        from msi_engine.runner import Runner

        Runner.run = self._run  # type: ignore[method-assign]

    def see(self, event: Any) -> None:
        if stats := getattr(event, "stats", None):
            self.bytes = stats.peak_cache_bytes

    def steps(self, k: int) -> list[float]:
        """Seconds of steps with all K rows and nothing else, the first left out."""
        return [
            later[0] - earlier[0]
            for earlier, later in zip(self.passes[1:], self.passes[2:], strict=False)
            if earlier[1] == later[1] == k and not earlier[2] and not later[2]
        ]


def _differences(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


if __name__ == "__main__":
    main()
