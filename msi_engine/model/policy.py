"""Which numbers a model computes with on this machine.

On Metal and CUDA the weights are used as they are. On a plain CPU everything is float32: MLX has
no fast kernels there for half precision or quantised weights (a quantised product costs the same
for each row, so that K paths cost K times one). Dequantising changes the storage of the weights
and not their values.

``MSI_FLOAT32`` overrides: ``auto`` (default), ``on`` or ``off``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from msi_engine.errors import ConfigError

_FLOAT32 = 4  # bytes
_BYTE = 8  # bits


def wants_float32() -> bool:
    """True if models are to be turned into float32 when they are loaded.

    Raises:
        ConfigError: If ``MSI_FLOAT32`` is set to something else than auto, on or off.
    """
    setting = os.environ.get("MSI_FLOAT32", "auto")
    if setting not in ("auto", "on", "off"):
        raise ConfigError(f"MSI_FLOAT32 must be auto, on or off, got {setting!r}")
    if setting != "auto":
        return setting == "on"
    import mlx.core as mx

    return bool(mx.default_device() == mx.cpu)


def to_float32(model: Any) -> int:
    """Turn a model's weights into float32, in place, layer by layer.

    Layers of a quantised kind that is not known here keep their packed weights, with float32
    scales: slower, and still never half precision.

    Args:
        model: An ``mlx.nn.Module`` that is itself no quantised layer.

    Returns:
        How many quantised layers were replaced.
    """
    import mlx.core as mx
    from mlx.utils import tree_map, tree_unflatten

    plain: dict[int, Any] = {}  # a layer held in two places stays one
    for name, layer in model.named_modules():
        if not is_quantized(type(layer)):
            continue
        if id(layer) not in plain:
            plain[id(layer)] = plain_layer(layer)
        model.update_modules(tree_unflatten([(name, plain[id(layer)])]))
    model.update(tree_map(widened, model.parameters()))
    mx.eval(model.parameters())
    return len(plain)


def widened(array: Any) -> Any:
    """An array in float32 if it holds floating-point numbers, else as it is."""
    import mlx.core as mx

    return array.astype(mx.float32) if mx.issubdtype(array.dtype, mx.floating) else array


def is_quantized(kind: type) -> bool:
    """True for a class of quantised layers that has a plain counterpart."""
    return kind in _makers()


def plain_layer(layer: Any, kind: type | None = None) -> Any:
    """The plain float32 layer that computes what a quantised one stands for, in memory.

    Args:
        layer: A quantised layer.
        kind: Its class, if it has been given another one.
    """
    return _dequantized(layer, _makers()[kind or type(layer)]())


def working_nbytes(module: Any) -> int:
    """Bytes that a module's weights take once they are as this machine computes with them.

    Args:
        module: An ``mlx.nn.Module`` as it is stored; nothing of it need be in memory.
    """
    from mlx.utils import tree_flatten

    arrays = dict(tree_flatten(module.parameters()))
    if not wants_float32():
        return sum(int(array.nbytes) for array in arrays.values())
    total = 0
    for name, layer in module.named_modules():
        if is_quantized(type(layer)):
            stem = f"{name}." if name else ""
            total += int(arrays.pop(stem + "weight").size) * 32 // layer.bits * _FLOAT32
            for left_out in ("scales", "biases", "global_scale"):
                arrays.pop(stem + left_out, None)
    return total + sum(int(array.size) * _FLOAT32 for array in arrays.values())


@functools.cache
def _makers() -> dict[type, Callable[[], Any]]:
    """For each quantised layer, how to make its plain counterpart (weights to be put in)."""
    from mlx.nn.layers.embedding import Embedding
    from mlx.nn.layers.linear import Linear
    from mlx.nn.layers.quantized import QuantizedEmbedding, QuantizedLinear
    from mlx_lm.models.mla import MultiLinear, QuantizedMultiLinear
    from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear

    # Built at the smallest size, since the weight is replaced at once.
    return {
        QuantizedLinear: lambda: Linear(1, 1, bias=False),
        QuantizedEmbedding: lambda: Embedding(1, 1),
        QuantizedSwitchLinear: lambda: SwitchLinear(1, 1, 1, bias=False),
        QuantizedMultiLinear: lambda: MultiLinear(1, 1, 1),
    }


def _of_bytes(packed: Any, scales: Any, biases: Any) -> Any:
    """`mx.dequantize` of 8 bits, to the bit: several times faster on a CPU, in half the memory.

    A streamed target is dequantised in every pass.
    """
    import mlx.core as mx

    entries = mx.view(packed, mx.uint8).reshape(*scales.shape, -1).astype(mx.float32)
    return (entries * scales[..., None] + biases[..., None]).reshape(*scales.shape[:-1], -1)


def _dequantized(layer: Any, plain: Any) -> Any:
    import mlx.core as mx

    scales, biases = layer.scales, layer.get("biases")
    if layer.mode == "affine":
        scales = scales.astype(mx.float32)
        biases = None if biases is None else biases.astype(mx.float32)
    keywords = {"group_size": layer.group_size, "bits": layer.bits, "mode": layer.mode}
    if layer.mode == "affine" and layer.bits == _BYTE:
        weight = _of_bytes(layer.weight, scales, biases)
    else:
        weight = mx.dequantize(layer.weight, scales, biases, dtype=mx.float32, **keywords)
    per_expert = layer.get("global_scale")
    if per_expert is not None:
        # Each expert's own scale multiplies the values its blocks stand for.
        parts = zip(layer.weight, scales, per_expert, strict=True)
        experts = [
            mx.dequantize(w, s, global_scale=g, dtype=mx.float32, **keywords) for w, s, g in parts
        ]
        weight = mx.stack(experts)
    plain.weight = weight
    if "bias" in layer:
        plain.bias = layer.bias.astype(mx.float32)
    mx.eval(plain.parameters())
    plain.freeze()
    plain.train(layer.training)
    return plain
