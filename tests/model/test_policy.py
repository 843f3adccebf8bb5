"""On a CPU: float32 everywhere, and the numbers of the quantised model stay what they are."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models.mla import MultiLinear
from mlx_lm.models.switch_layers import SwitchGLU, SwitchLinear

from msi_engine.errors import ConfigError
from msi_engine.model.policy import plain_layer, to_float32, wants_float32


class Everything(nn.Module):
    """One layer of each quantisable kind, held directly and in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(96, 64)
        self.layers = [nn.Linear(64, 64, bias=True), nn.Linear(64, 32, bias=False)]
        self.switch = SwitchLinear(64, 32, 4, bias=True)
        self.experts = SwitchGLU(64, 64, 4)
        self.multi = MultiLinear(64, 32, 4)
        self.norm = nn.RMSNorm(64)

    def __call__(self, tokens: mx.array) -> dict[str, mx.array]:
        x = self.norm(self.embed(tokens))  # (B, L, 64)
        chosen = mx.array([[[0, 3]] * tokens.shape[1]])
        return {
            "tied": self.embed.as_linear(x),
            "bias": self.layers[0](x),
            "plain": self.layers[1](x),
            "switch": self.switch(mx.expand_dims(x, (-2, -3)), chosen),
            "experts": self.experts(x, chosen),
            "multi": self.multi(x[:, None]),
            "multi, other way": self.multi(x[:, None, :, :32], transpose=False),
        }


def quantised(bits: int, group_size: int, mode: str = "affine", dtype=mx.float32) -> nn.Module:
    mx.random.seed(0)
    model = Everything()
    model.set_dtype(dtype)
    nn.quantize(model, group_size, bits, mode=mode)
    return model


TOKENS = mx.array([[1, 5, 40, 95]])


@pytest.mark.parametrize(
    ("bits", "group_size", "mode"),
    [(4, 64, "affine"), (8, 32, "affine"), (3, 32, "affine"), (4, 32, "mxfp4"), (8, 32, "mxfp8")],
)
def test_every_kind_of_layer_computes_the_same_from_plain_float32(
    bits: int, group_size: int, mode: str
):
    model = quantised(bits, group_size, mode)
    before = {k: np.array(v) for k, v in model(TOKENS).items()}
    replaced = to_float32(model)
    assert replaced == 8  # embed, two linears, switch, three of the experts, multi
    assert {a.dtype for _, a in tree_flatten(model.parameters())} == {mx.float32}
    assert not any("Quantized" in type(m).__name__ for _, m in model.named_modules())
    for name, value in model(TOKENS).items():
        assert value.dtype == mx.float32, name
        np.testing.assert_allclose(np.array(value), before[name], atol=2e-5, err_msg=name)


def test_half_precision_scales_and_norms_become_float32():
    model = quantised(4, 64, dtype=mx.bfloat16)
    layer = model.layers[0]
    wanted = mx.dequantize(
        layer.weight,
        layer.scales.astype(mx.float32),
        layer.biases.astype(mx.float32),
        group_size=64,
        bits=4,
    )
    to_float32(model)
    assert mx.array_equal(model.layers[0].weight, wanted)
    assert {a.dtype for _, a in tree_flatten(model.parameters())} == {mx.float32}


def test_an_expert_scale_of_its_own_is_applied():
    mx.random.seed(1)
    plain = SwitchLinear(64, 32, 3, bias=False)
    plain.weight = plain.weight * mx.array([1.0, 50.0, 2000.0])[:, None, None]
    holder = nn.Module()
    holder.layer = plain.to_quantized(group_size=16, bits=4, mode="nvfp4", global_scale=True)
    original = np.array(plain.weight)
    to_float32(holder)
    found = np.array(holder.layer.weight)
    for expert in range(3):
        error = np.abs(found[expert] - original[expert]).max()
        assert error < 0.2 * np.abs(original[expert]).max()


def test_a_layer_held_twice_stays_one():
    model = nn.Module()
    model.first = nn.Linear(64, 64).to_quantized(group_size=64, bits=4)
    model.second = model.first
    assert to_float32(model) == 1
    assert model.first is model.second


def test_integers_stay_integers():
    model = nn.Module()
    model.table = mx.array([1, 2, 3])
    to_float32(model)
    assert model.table.dtype == mx.int32


def test_the_policy_follows_the_device_unless_it_is_overridden(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MSI_FLOAT32", raising=False)
    assert wants_float32() == (mx.default_device() == mx.cpu)
    monkeypatch.setenv("MSI_FLOAT32", "off")
    assert not wants_float32()
    monkeypatch.setenv("MSI_FLOAT32", "on")
    assert wants_float32()
    monkeypatch.setenv("MSI_FLOAT32", "maybe")
    with pytest.raises(ConfigError, match="auto, on or off, got 'maybe'"):
        wants_float32()


def test_overridden_it_loads_the_weights_as_they_are(
    tiny_model, msi_home: Path, monkeypatch: pytest.MonkeyPatch
):
    from msi_engine.model import load_model, pull

    pull(str(tiny_model()), alias="both", quantize=True)
    monkeypatch.setenv("MSI_FLOAT32", "off")
    packed = load_model("both")
    assert any(type(m) is nn.QuantizedLinear for _, m in packed.model.named_modules())
    monkeypatch.setenv("MSI_FLOAT32", "on")
    plain = load_model("both")
    assert not any(type(m) is nn.QuantizedLinear for _, m in plain.model.named_modules())
    assert packed.nbytes < plain.nbytes / 3
    tokens = mx.array([[3, 5, 8]])
    np.testing.assert_allclose(
        np.array(packed.model(tokens)), np.array(plain.model(tokens)), atol=1e-4
    )


@pytest.mark.parametrize("group_size", [32, 64, 128])
@pytest.mark.parametrize("shape", [(96, 256), (3, 32, 128)])  # a layer; experts
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16])
def test_eight_bits_are_unpacked_as_mlx_does_to_the_bit(group_size: int, shape, dtype):
    layer = nn.QuantizedEmbedding(4, 128, group_size=group_size, bits=8)
    weight = mx.random.normal(shape, key=mx.random.key(3))
    layer.weight, layer.scales, layer.biases = mx.quantize(weight, group_size, 8)
    layer.scales, layer.biases = layer.scales.astype(dtype), layer.biases.astype(dtype)
    wide = [array.astype(mx.float32) for array in (layer.scales, layer.biases)]
    wanted = mx.dequantize(layer.weight, *wide, group_size, 8)
    got = plain_layer(layer).weight
    assert got.dtype == mx.float32
    np.testing.assert_array_equal(np.array(got), np.array(wanted))
