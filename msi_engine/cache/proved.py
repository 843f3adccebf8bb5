"""Which of mlx-lm's model files are proved, and the trial that any other model must pass.

The list is the outcome of ``benchmarks/sweep_architectures.py``. A model that is not on it (a file
that the sweep could not run, a newer file, a model of one's own) is tried once on the spot.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from msi_engine.cache.upstream import make_prompt_cache

PACKAGE = "mlx_lm.models."
_NAMES = """
Klear afm7 afmoe apertus baichuan_m1 bailing_hybrid bailing_moe bailing_moe_linear
bailing_moe_v3 cohere cohere2 dbrx deepseek deepseek_v2 deepseek_v3 deepseek_v32 dots1
ernie4_5 ernie4_5_moe exaone exaone4 exaone_moe falcon_h1 gear gemma gemma2 gemma3
gemma3_text gemma3n gemma4 gemma4_text glm glm4 glm4_moe glm4_moe_lite glm_moe_dsa gpt2
gpt_bigcode gpt_neox gpt_oss gptj granite granitemoe granitemoehybrid helium hunyuan
hunyuan_v1_dense internlm2 internlm3 iquestloopcoder jamba kimi_k25 kimi_k3 kimi_linear
kimi_vl laguna lfm2 lfm2-vl lfm2_moe lille-130m llama llama4 llama4_text longcat_flash
longcat_flash_ngram mamba mamba2 mellum mimo mimo_v2_flash minicpm minicpm3 minimax
minimax_m3_vl ministral3 mistral3 mistral4 mixtral muse_glimmer nanbeige nanochat nemotron
nemotron-nas nemotron_h olmo2 olmo3 olmo_hybrid olmoe openelm phi phi3 phimoe phixtral
pixtral plamo plamo2 plamo3 qwen qwen2 qwen2_moe qwen2_vl qwen3 qwen3_5 qwen3_5_moe
qwen3_moe qwen3_next qwen3_vl qwen3_vl_moe recurrent_gemma rwkv7 seed_oss smollm3 solar_open
spark2_5 stablelm starcoder2 step3p5 talkie telechat3 youtu_llm
"""
PROVED = frozenset(_NAMES.split())

PATHS = 2
# Greatest relative difference of logits that rounding explains.
TOLERANCE = {mx.float32: 1e-3, mx.float16: 2e-2, mx.bfloat16: 1e-1}

_passed: dict[int, weakref.ref[Module]] = {}


def is_proved(model: Module) -> bool:
    """Whether the sweep has shown this model's file to be right."""
    module = type(model).__module__
    return module.startswith(PACKAGE) and module.removeprefix(PACKAGE) in PROVED


def deviation(model: Module, opened: Callable[[], Any]) -> float:
    """Run a short program on the model; how far it departs from separate caches.

    Prefill, fork, two steps, a chunk, a collapse and a step: a handful of forward passes over a few
    tokens.

    Args:
        model: A model that is not proved.
        opened: Makes an empty `SharedPrefixCache` for it.

    Returns:
        Greatest relative difference of logits, as a multiple of what rounding explains; at most 1
        is right. 0 for a model that has passed before.
    """
    known = _passed.get(id(model))
    if known is not None and known() is model:
        return 0.0
    shared, alone = opened(), make_prompt_cache(model)
    first = [1, 0, 1, 1, 0]
    worst = _difference(shared.forward(mx.array([first])), model(mx.array([first]), cache=alone))
    mx.eval([c.state for c in alone])
    copies = [copy.deepcopy(alone) for _ in range(PATHS)]
    shared.fork(PATHS)
    for rows in ([[0], [1]], [[1], [1]], [[0, 1, 1], [1, 0, 0]]):
        got = shared.forward(mx.array(rows))
        want = [model(mx.array([row]), cache=c) for row, c in zip(rows, copies, strict=True)]
        worst = max(worst, _difference(got, mx.concatenate(want)))
    shared.collapse(1)
    last = mx.array([[1]])
    worst = max(worst, _difference(shared.forward(last), model(last, cache=copies[1])))
    if worst <= 1:
        key = id(model)
        _passed[key] = weakref.ref(model, lambda _: _passed.pop(key, None))
    return worst


def _difference(got: mx.array, want: mx.array) -> float:
    tolerance = TOLERANCE.get(want.dtype, TOLERANCE[mx.float32])
    got, want = got.astype(mx.float32), want.astype(mx.float32)
    scale = mx.maximum(mx.max(mx.abs(want)), 1e-6)
    worst: float = (mx.max(mx.abs(got - want)) / scale / tolerance).item()  # type: ignore[assignment]
    return worst if worst == worst else float("inf")  # NaN is no proof
