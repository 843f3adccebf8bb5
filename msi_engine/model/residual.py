"""A residual target: the draft's weights, and a quantisation of what they lost.

A weight W becomes ``Q(W) + Q4(W - dequantised(Q(W)))``. The first term is the draft's weight, which
is in memory anyway, so that a pair takes the bits of its draft and 4.5 more a weight.

Where quantised weights are used as they are, a layer computes both terms and adds the results; the
draft's layers are shared, not copied. Where weights become float32 when they are loaded there is
nothing to share: a draft's weight in float32 is another array than the sum, and keeping the terms
apart would take as much memory as the sum and twice the time. There they are added at load.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm import utils

from msi_engine.errors import ConfigError, ModelError
from msi_engine.model.files import RESIDUAL_KEY, read_config
from msi_engine.model.load import LoadedModel, load_tokenizer, open_weights
from msi_engine.model.pairs import DRAFT_GROUP_SIZE
from msi_engine.model.policy import is_quantized, plain_layer, widened
from msi_engine.model.tensors import find_tensors

BITS = 4
GROUP_SIZE = 64
_SAMPLE = 64  # bytes of each tensor


class Sum(Module):
    """A linear layer or an embedding whose weight is the sum of two layers' weights."""

    def __init__(self, draft: Module, residual: Module) -> None:
        """Add ``residual``, which has no bias, to ``draft``."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.draft = draft
        self.residual = residual

    def __call__(self, *args: Any, **kwargs: Any) -> mx.array:
        """What the layer computes."""
        out: mx.array = self.draft(*args, **kwargs) + self.residual(*args, **kwargs)
        return out

    def as_linear(self, x: mx.array) -> mx.array:
        """What an embedding computes as a head."""
        out: mx.array = self.draft.as_linear(x) + self.residual.as_linear(x)
        return out

    def __getattr__(self, name: str) -> Any:
        """Sizes and the like are the draft's."""
        if name in self:
            return self[name]
        if "draft" not in self:
            raise AttributeError(name)
        return getattr(self["draft"], name)


def load_residual(draft: LoadedModel, folder: Path, *, trust_remote_code: bool = False) -> Any:
    """The target that a draft and its residual make.

    Args:
        draft: The draft, in memory.
        folder: The residual.
        trust_remote_code: Let the model's own Python code run.

    Raises:
        ModelError: If it is the residual of another draft, or a file cannot be used.
    """
    wanted = read_config(folder)[RESIDUAL_KEY]
    if wanted.get("draft") != fingerprint(draft.path):
        raise ModelError(
            f"{folder} holds what another draft than {draft.path} has lost; "
            "use it with the draft that it was made with"
        )
    # The structure of the model; of its weights nothing is read.
    model = open_weights(draft.path, trust_remote_code=trust_remote_code)
    lost: dict[str, mx.array] = {}
    for path in sorted(folder.glob("model*.safetensors")):
        lost.update(mx.load(str(path)))  # type: ignore[arg-type]
    theirs = dict(draft.model.named_modules())
    replaced = []
    for name, layer in model.named_modules():
        if is_quantized(type(layer)):
            both = theirs[name]
            if f"{name}.weight" in lost:
                both = _both(theirs[name], _as_residual(layer, name, lost, wanted))
            model.update_modules(tree_unflatten([(name, both)]))
            replaced.append(f"{name}.")
    weights = dict(tree_flatten(draft.model.parameters()))
    others = [(n, array) for n, array in weights.items() if not n.startswith(tuple(replaced))]
    model.update(tree_unflatten(others))
    return model


def split(source: Path, draft: Path, residual: Path, *, bits: int, trust_remote_code: bool) -> None:
    """Write a draft, and the residual that makes a target of it.

    Args:
        source: A model in full precision or of 8 bits.
        draft: Folder to make for the draft.
        residual: Folder to make for the residual.
        bits: Of the draft.
        trust_remote_code: Let the model's own Python code run.

    Raises:
        ConfigError: If the source has fewer than 8 bits.
        ModelError: If it cannot be read or used.
    """
    config = dict(utils.load_config(source))
    _check_precision(source, config)
    model = open_weights(source, trust_remote_code=trust_remote_code)
    tokenizer = load_tokenizer(source, trust_remote_code=trust_remote_code)
    types = _types(model, config)
    full = _unpacked(model)
    for key in ("quantization", "quantization_config"):
        config.pop(key, None)
    # The converter reports on standard output, which is the answer's.
    with contextlib.redirect_stdout(io.StringIO()):
        model, config = utils.quantize_model(model, config, DRAFT_GROUP_SIZE, bits)
        lost = {}
        for name, layer in model.named_modules():
            if is_quantized(type(layer)) and layer.mode == "affine":
                lost.update(_lost(name, layer, full.pop(name), types[name]))
            elif name in full:  # of a width that is no multiple of the group size
                layer.weight = full.pop(name).astype(types[name])
        utils.save(draft, source, model, tokenizer, config)
    shutil.copytree(draft, residual, ignore=shutil.ignore_patterns("model*", "README.md"))
    written = read_config(draft)
    written[RESIDUAL_KEY] = {"bits": BITS, "group_size": GROUP_SIZE, "draft": fingerprint(draft)}
    (residual / "config.json").write_text(json.dumps(written, indent=1), encoding="utf-8")
    path = str(residual / "model.safetensors")
    mx.save_safetensors(path, lost, metadata={"format": "mlx"})


def fingerprint(folder: Path) -> str:
    """What tells the weights of one model folder from others': names, shapes and samples."""
    digest = hashlib.blake2b(digest_size=16)
    for name, place in sorted(find_tensors(folder).items()):
        digest.update(f"{name} {place.dtype} {place.shape} ".encode())
        with place.path.open("rb") as file:
            file.seek(place.offset)
            digest.update(file.read(min(_SAMPLE, place.nbytes)))
    return digest.hexdigest()


def _check_precision(source: Path, config: dict[str, Any]) -> None:
    if "quantization" in config:
        bits = config["quantization"].get("bits", 0)
    else:
        bits = 0 if "quantization_config" in config else 16
    if bits < 8:
        raise ConfigError(
            f"{source.name} is quantised to fewer than 8 bits or in another format than MLX's; "
            "a residual needs a source in full precision or of 8 bits"
        )


def _types(model: Module, config: dict[str, Any]) -> dict[str, mx.Dtype]:
    """The type in which the scales of each layer are to be stored, by the layer's name."""
    named = getattr(mx, str(config.get("torch_dtype") or config.get("dtype")), mx.float32)
    found = {}
    for name, layer in model.named_modules():
        if is_quantized(type(layer)) or hasattr(layer, "to_quantized"):
            dtype = layer.get("scales", layer.weight).dtype
            found[name] = named if dtype == mx.float32 else dtype
    return found


def _unpacked(model: Module) -> dict[str, mx.array]:
    """The weight of every layer that can be quantised, lazily, in float32; put in, too."""
    for layer in model.modules():
        if is_quantized(type(layer)):
            layer.scales, layer.biases = widened(layer.scales), widened(layer.biases)
    utils.dequantize_model(model)
    found = {}
    for name, layer in model.named_modules():
        if hasattr(layer, "to_quantized"):
            layer.weight = found[name] = widened(layer.weight)
    return found


def _lost(name: str, layer: Any, full: mx.array, dtype: mx.Dtype) -> dict[str, mx.array]:
    """What quantising lost of a layer, packed; the layer's scales are put into their type."""
    layer.scales, layer.biases = layer.scales.astype(dtype), layer.biases.astype(dtype)
    scales, biases = widened(layer.scales), widened(layer.biases)
    kept = mx.dequantize(layer.weight, scales, biases, layer.group_size, layer.bits)
    packed, scales, biases = mx.quantize(full - kept, GROUP_SIZE, BITS)
    arrays = {"weight": packed, "scales": scales.astype(dtype), "biases": biases.astype(dtype)}
    mx.eval(arrays, layer.parameters())
    return {f"{name}.{key}": array for key, array in arrays.items()}


def _as_residual(layer: Any, name: str, lost: dict[str, mx.array], form: dict[str, Any]) -> Any:
    """A quantised layer of the draft's structure, with the residual's weights."""
    for key in ("weight", "scales", "biases"):
        layer[key] = lost[f"{name}.{key}"]
    layer.bits, layer.group_size = form["bits"], form["group_size"]
    layer.pop("bias", None)  # the draft's layer adds it
    return layer


def _both(draft: Any, residual: Any) -> Any:
    """The layer whose weight is the sum."""
    if is_quantized(type(draft)):
        mx.eval(residual.parameters())
        return Sum(draft, residual)
    total = plain_layer(residual)
    total.weight = draft.weight + total.weight
    if "bias" in draft:
        total.bias = draft.bias
    mx.eval(total.parameters())
    return total
