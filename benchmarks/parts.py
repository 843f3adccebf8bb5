"""What each part of a step costs, in milliseconds a forward pass.

    python -m benchmarks.parts [--tokens 64] [--length 64]

Times the parts where they are called, so that a part's share includes a clock of about a
microsecond a call. With one path the device works while Python does, and waiting is what is left.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks.speed import PATHS, TEXT
from msi_engine import DecodeConfig, Engine
from msi_engine.service import ENGINE_THREAD


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.parts")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--length", type=int, default=64)
    options = parser.parse_args()
    engine = Engine.load("embedded")
    prompt = engine.tokenizer.encode(TEXT * (options.length // 20 + 2))[: options.length]
    ENGINE_THREAD.call(lambda: table(engine, prompt, options.tokens))


def table(engine: Engine, prompt: list[int], tokens: int) -> None:
    columns = {k: measure(engine, prompt, k, tokens) for k in PATHS}
    heads = "".join(f"{f'K={k}':>9}" for k in columns)
    print(f"prompt {len(prompt)} tokens, ms a pass     {heads}")
    for name in next(iter(columns.values())):
        print(f"{name:36}" + "".join(f"{column[name]:9.2f}" for column in columns.values()))


def measure(engine: Engine, prompt: list[int], k: int, tokens: int) -> dict[str, float]:
    """Milliseconds a forward pass of each part, the prompt's own passes left out."""
    config = DecodeConfig(
        k=k, max_tokens=tokens, spawn_temperature=2.0, spawn_min_p=0, majority=1, seed=0
    )
    list(engine.stream(prompt, config.replace(max_tokens=4)))  # warm, and the prompt is kept
    seconds: dict[str, float] = defaultdict(float)
    with timed(engine, seconds):
        for event in engine.stream(prompt, config):
            stats = getattr(event, "stats", None)
    seconds["else; at K=1 waiting for the device"] = stats.decode_s - sum(seconds.values())
    seconds["in all"] = stats.decode_s
    return {name: 1e3 * value / stats.forward_passes for name, value in seconds.items()}


@contextmanager
def timed(engine: Engine, seconds: dict[str, float]) -> Iterator[None]:
    """Count the seconds spent in each part."""
    from msi_engine import runner
    from msi_engine.bundle import Bundle
    from msi_engine.cache import SharedPrefixCache
    from msi_engine.drawing import Drawer
    from msi_engine.growth import Growth

    text = type(engine._held.vocabulary("").detokenizer())
    parts: list[tuple[str, Any, str]] = [
        ("build the graph of the model", SharedPrefixCache, "forward"),
        ("wait for it, copy the logits", runner, "to_numpy"),
        ("draw tokens", Drawer, "next"),
        ("decode text", text, "push"),
        ("test boundaries", Growth, "_test_boundary"),
        ("weigh", Bundle, "record_step"),
        ("find duplicates", Bundle, "drop_duplicates"),
        ("merge the winner", SharedPrefixCache, "collapse"),
    ]
    with ExitStack() as stack:
        for name, owner, attribute in parts:
            seconds[name] = 0.0
            function = getattr(owner, attribute)
            setattr(owner, attribute, _clocked(function, name, seconds))
            stack.callback(setattr, owner, attribute, function)
        yield


def _clocked(function: Callable[..., Any], name: str, seconds: dict[str, float]) -> Any:
    def clocked(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            seconds[name] += time.perf_counter() - start

    return clocked


if __name__ == "__main__":
    main()
