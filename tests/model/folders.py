"""Model folders of tiny or wide random models, stored and quantised as one likes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models import llama

sys.path.insert(0, str(Path(__file__).parents[1] / "cache"))

import tiny_models

GROUP = 32


def tiny_folder(
    folder: Path, name: str, bits: int | None, dtype: mx.Dtype = mx.bfloat16, **values: Any
) -> Path:
    """A tiny model of an architecture, without tokenizer; bits None does not quantise it."""
    model = tiny_models.make(name, **values)
    config = {**tiny_models.config(name), **values}
    folder.mkdir(parents=True)
    model.set_dtype(dtype)
    if bits is not None:
        quantize(model, config, bits)
    save(model, config, folder)
    return folder


def wide_folder(folder: Path, num_layers: int, bits: int, vocab_size: int) -> Path:
    """A llama whose layers weigh far more than all else; the tokenizer lies there already."""
    config = {
        "model_type": "llama",
        "hidden_size": 768,
        "num_hidden_layers": num_layers,
        "intermediate_size": 3072,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "rms_norm_eps": 1e-5,
        "vocab_size": vocab_size,
        "tie_word_embeddings": False,
        "eos_token_id": 2,
    }
    model = llama.Model(llama.ModelArgs.from_dict(config))
    quantize(model, config, bits)
    save(model, config, folder)
    return folder


def quantize(model: nn.Module, config: dict[str, Any], bits: int) -> None:
    def takes(_: str, module: nn.Module) -> bool:
        return hasattr(module, "to_quantized") and module.weight.shape[-1] % GROUP == 0

    nn.quantize(model, GROUP, bits, class_predicate=takes)
    config["quantization"] = {"group_size": GROUP, "bits": bits}


def save(model: nn.Module, config: dict[str, Any], folder: Path) -> None:
    weights = dict(tree_flatten(model.parameters()))
    half = len(weights) // 2  # two files, as large models have more than one
    for number, names in enumerate((list(weights)[:half], list(weights)[half:]), 1):
        path = str(folder / f"model-{number:05}-of-00002.safetensors")
        mx.save_safetensors(path, {n: weights[n] for n in names}, metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config))
