"""What the parts of the refinement benchmark share: a pair, what its target would write, a log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msi_engine import DecodeConfig, Engine
from msi_engine.service import ENGINE_THREAD

if TYPE_CHECKING:
    from msi_engine.pair import Pair  # brings MLX, before its backend is prepared

NEAR = 1e-3  # two best logits of the target nearer than this may be turned by rounding


@dataclass(frozen=True)
class Own:
    """What a target writes by itself.

    Attributes:
        tokens: Its greedy tokens, an end-of-sequence token included.
        leads: Of each, the lead of the best logit over the second, nats.
    """

    tokens: list[int]
    leads: list[float]


class Log:
    """One JSON object a line; what is there already need not be run again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lines: list[dict[str, Any]] = []
        if path.exists():
            whole = path.read_text(encoding="utf-8").splitlines()
            self.lines = [json.loads(line) for line in whole if line.endswith("}")]

    def find(self, **key: Any) -> dict[str, Any] | None:
        wanted = key.items()
        return next((line for line in self.lines if wanted <= line.items()), None)

    def once(self, make: Callable[[], dict[str, Any]], **key: Any) -> dict[str, Any]:
        """The line of a key, made and written down if it is not there."""
        if (line := self.find(**key)) is None:
            line = {**key, **make()}
            self.lines.append(line)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        return line


def pair_of(engine: Engine, **options: Any) -> Pair:
    """Draft and target as the engine holds them."""
    config = DecodeConfig(refine="verify", **options)
    return ENGINE_THREAD.call(lambda: engine._held.pair(config))


def encode(engine: Engine, prompt: str) -> list[int]:
    return [int(t) for t in engine.tokenizer.encode(prompt)]


def own_greedy(pair: Pair, prompt: Sequence[int], max_tokens: int) -> Own:
    """What mlx-lm makes of the target alone: none of the engine's decoding is in it."""
    return ENGINE_THREAD.call(lambda: _own_greedy(pair, prompt, max_tokens))


def _own_greedy(pair: Pair, prompt: Sequence[int], max_tokens: int) -> Own:
    import mlx.core as mx
    from mlx_lm.generate import generate_step

    own = Own([], [])
    steps: Iterator[Any] = generate_step(
        mx.array(list(prompt)), pair.target.model.model, max_tokens=max_tokens
    )
    for token, logprobs in steps:
        second, first = np.partition(np.array(logprobs), -2)[-2:]
        own.tokens.append(int(token))
        own.leads.append(float(first - second))
        if token in pair.eos_token_ids:
            break
    return own


def meeting(tokens: Sequence[int], own: Own) -> tuple[str, int]:
    """How two token sequences compare, and up to where they are the same.

    Returns:
        ``equal``; ``tie`` if they part where the target's two best are `NEAR`; else ``differs``.
    """
    pairs = zip(tokens, own.tokens, strict=False)
    place = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if place is None:
        same = min(len(tokens), len(own.tokens))
        return ("equal" if len(tokens) == len(own.tokens) else "differs"), same
    return ("tie" if own.leads[place] < NEAR else "differs"), place
