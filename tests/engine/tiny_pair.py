"""Engines on pairs of tiny random models: a target, and a draft whose weights are a little off."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map

from msi_engine import Engine
from msi_engine.model import LoadedModel, TargetModel
from msi_engine.pair import Pair, Target
from msi_engine.prefix import PrefixKeeper
from msi_engine.testing import ToyTokenizer

sys.path.insert(0, str(Path(__file__).parents[1] / "cache"))

from tiny_models import VOCAB, make

EOS = VOCAB - 1
PROMPT = [5, 9, 2, 41, 7, 7, 30, 12, 66, 3, 18, 25, 54, 8, 91, 33, 4, 72, 11, 60, 2, 15]


def models(name: str, off: float = 0.08, seed: int = 0, **values: Any) -> tuple[Any, Any]:
    """Draft and target of an architecture.

    Args:
        name: Of mlx-lm.
        off: Noise on the draft's weights, in standard deviations of each.
        seed: Of the target's weights.
        **values: Over the tiny configuration.
    """
    draft, target = make(name, seed, **values), make(name, seed, **values)
    keys = iter(mx.random.split(mx.random.key(seed + 1), 2000))

    def nudge(weight: mx.array) -> mx.array:
        if weight.size < 2 or not mx.issubdtype(weight.dtype, mx.floating):
            return weight
        return weight + off * mx.std(weight) * mx.random.normal(weight.shape, key=next(keys))

    draft.update(tree_map(nudge, draft.parameters()))
    mx.eval(draft.parameters())
    return draft, target


def engine_of(draft: Any, target: Any, name: str = "tiny") -> Engine:
    """An engine whose pair these are."""
    tokenizer = ToyTokenizer([f" t{i}" for i in range(VOCAB - 1)] + ["</s>"])
    loaded = LoadedModel(
        model=draft,
        tokenizer=tokenizer,
        name=name,
        path=Path(name),
        context_length=512,
        vocab_size=VOCAB,
        eos_token_ids=frozenset([EOS]),
        nbytes=0,
        has_chat_template=False,
    )
    engine = Engine(loaded)
    swept = TargetModel(target, "resident", name, Path(name), bytes_per_sweep=0, nbytes=0)
    keeper = PrefixKeeper(draft)
    pair = Pair(loaded, keeper, Target(swept, PrefixKeeper(target), draft_bytes=0))
    engine._held._pair = ((None, "auto"), pair)
    return engine
