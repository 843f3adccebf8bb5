"""A residual target: as good as eight bits, on the draft's own weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from folders import tiny_folder
from mlx.utils import tree_flatten

from msi_engine.cache import SharedPrefixCache
from msi_engine.errors import ConfigError, ModelError
from msi_engine.model import load_model, load_target, logical_nbytes, pull
from msi_engine.model.residual import Sum
from msi_engine.model.store import ModelRecord

from .conftest import TEMPLATE, WORDS, write_tokenizer

MakeModel = Callable[..., Path]
TOKENS = mx.array([[3, 5, 8, 13, 21, 34, 55, 89]])


def logits_of(model: Any) -> np.ndarray:
    return np.array(model(TOKENS)[0].astype(mx.float32))


def dequantised(arrays: dict[str, mx.array], name: str, bits: int, group: int) -> np.ndarray:
    """Affine quantisation by the book, in NumPy: bits packed little end first in 32-bit words."""
    packed = np.array(arrays[f"{name}.weight"])
    scales, biases = (
        np.array(arrays[f"{name}.{key}"].astype(mx.float32)).astype(np.float64)
        for key in ("scales", "biases")
    )
    ones = (packed[..., None] >> np.arange(32, dtype=np.uint32)) & 1
    ones = ones.reshape(len(packed), -1, bits)
    values = (ones << np.arange(bits)).sum(-1)
    return values * scales.repeat(group, -1) + biases.repeat(group, -1)


@pytest.mark.usefixtures("msi_home")
@pytest.mark.parametrize("draft_bits", [2, 3, 4])
def test_the_files_add_up_to_the_source(draft_bits: int, tiny_model: MakeModel):
    folder = tiny_model()
    record = pull(str(folder), target="residual", draft_bits=draft_bits, alias="it")
    assert (record.residual, record.draft_bits) == (True, draft_bits)
    source, draft, lost = (
        mx.load(str(path / "model.safetensors")) for path in (folder, record.draft, record.target)
    )
    names = [n.removesuffix(".scales") for n in lost if n.endswith(".scales")]
    assert {"model.embed_tokens", "lm_head", "model.layers.1.mlp.down_proj"} <= set(names)
    assert len(names) == 2 * 7 + 2
    for name in names:
        full = np.array(source[f"{name}.weight"]).astype(np.float64)
        first = dequantised(draft, name, draft_bits, 64)
        both = first + dequantised(lost, name, 4, 64)
        # Half a step of the first term spans the second's 16 values; the ends cost some more.
        step = (full.max() - full.min()) / (2**draft_bits - 1)
        assert np.abs(full - first).max() > step / 8
        assert np.abs(full - both).max() < 1.2 * step / 15 / 2 * 1.5


ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"tie_word_embeddings": True},
    "gemma": {},
    "qwen3_moe": {},
    "deepseek_v3": {"n_group": 1, "topk_group": 1},
}


def made(name: str, tmp_path: Path) -> tuple[Path, ModelRecord]:
    folder = tiny_folder(tmp_path / name, name, None, dtype=mx.float32, **ARCHITECTURES[name])
    write_tokenizer(folder, WORDS, TEMPLATE)
    return folder, pull(str(folder), target="residual", alias="it")


@pytest.mark.usefixtures("msi_home")
@pytest.mark.parametrize("float32", ["on", "off"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_logits_are_nearer_to_the_source_than_the_drafts(
    name: str, float32: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, record = made(name, tmp_path)
    monkeypatch.setenv("MSI_FLOAT32", "on")
    truth = logits_of(load_model(str(folder)).model)
    monkeypatch.setenv("MSI_FLOAT32", float32)
    draft = load_model("it")
    target = load_target(draft)
    assert target.kind == "residual"
    assert target.bytes_per_sweep == logical_nbytes(record.draft) + logical_nbytes(record.target)
    errors = [np.abs(logits_of(m.model) - truth).mean() for m in (draft, target)]
    assert errors[1] < errors[0] / 5
    cache = SharedPrefixCache.for_model(target.model)
    cache.prefill(TOKENS[0].tolist()[:-1], 4)
    again = np.array(cache.forward(TOKENS[:, -1:])[0].astype(mx.float32))
    assert np.abs(again - logits_of(target.model)[-1:]).max() < errors[0]


@pytest.mark.usefixtures("msi_home")
def test_quantised_weights_of_the_draft_are_shared_and_not_copied(
    tiny_model: MakeModel, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MSI_FLOAT32", "off")
    record = pull(str(tiny_model()), target="residual", alias="it")
    draft = load_model("it")
    target = load_target(draft)
    theirs = {id(a) for _, a in tree_flatten(draft.model.parameters())}
    ours = {id(a): a for _, a in tree_flatten(target.model.parameters())}
    assert theirs < ours.keys()
    lost = mx.load(str(record.target / "model.safetensors"))
    added = sum(a.nbytes for i, a in ours.items() if i not in theirs)
    assert target.nbytes == added == sum(a.nbytes for a in lost.values())
    layer = target.model.model.layers[0].self_attn.q_proj
    assert isinstance(layer, Sum)
    assert layer.draft is draft.model.model.layers[0].self_attn.q_proj
    assert layer.bits == 4  # what a layer tells of itself is what the draft's tells


@pytest.mark.usefixtures("msi_home")
def test_a_bias_is_added_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    _, record = made("qwen2", tmp_path)
    biases = [n for n in mx.load(str(record.draft / "model.safetensors")) if n.endswith("j.bias")]
    assert biases
    for float32 in ("on", "off"):
        monkeypatch.setenv("MSI_FLOAT32", float32)
        draft = load_model("it")
        layers = [m.model.layers[0].self_attn.q_proj for m in (draft, load_target(draft))]
        nothing = mx.zeros((1, 64))
        np.testing.assert_array_equal(np.array(layers[1](nothing)), np.array(layers[0](nothing)))
        assert np.abs(np.array(layers[0](nothing).astype(mx.float32))).max() > 0


@pytest.mark.usefixtures("msi_home")
def test_eight_bits_are_a_source_and_four_are_not(tiny_model: MakeModel):
    both = pull(str(tiny_model()), alias="both", quantize=True)
    record = pull(str(both.target), target="residual", alias="it")
    truth = logits_of(load_model("both", part="target").model)
    draft = load_model("it")
    errors = [np.abs(logits_of(m.model) - truth).mean() for m in (draft, load_target(draft))]
    assert errors[1] < errors[0] / 5
    block = json.loads((record.draft / "config.json").read_text())["quantization"]
    assert (block["bits"], block["group_size"]) == (4, 64)
    with pytest.raises(ConfigError, match="fewer than 8 bits"):
        pull(str(both.draft), target="residual", alias="other")


@pytest.mark.usefixtures("msi_home")
def test_it_is_the_target_of_its_own_draft_and_nothing_else(tiny_model: MakeModel):
    pull(str(tiny_model()), target="residual", alias="it")
    other = load_model(str(tiny_model(seed=1)))
    with pytest.raises(ModelError, match=r"what another draft than .* has lost"):
        load_target(other, name="it")
    with pytest.raises(ModelError, match="works as that draft's target only"):
        load_model("it", part="target")
    with pytest.raises(ConfigError, match="target_residency stream cannot be used"):
        load_target(load_model("it"), residency="stream")


@pytest.mark.usefixtures("msi_home")
def test_a_pair_is_made_once_and_means_one_thing(tiny_model: MakeModel):
    folder = tiny_model()
    first = pull(str(folder), target="residual", alias="it")
    told: list[Any] = []
    assert pull(str(folder), target="residual", alias="it", on_progress=told.append) == first
    assert told == []
    for other in ({"target": "residual", "draft_bits": 3}, {"quantize": True}, {}):
        with pytest.raises(ConfigError, match="alias 'it' is taken"):
            pull(str(folder), alias="it", **other)


@pytest.mark.usefixtures("msi_home")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"draft_bits": 3}, "is for a draft that is made here"),
        ({"draft_bits": 5, "quantize": True}, "must be 2, 3 or 4, got 5"),
        ({"target": "residual", "quantize": True}, "leave out one"),
    ],
)
def test_arguments_that_do_not_go_together(arguments: dict, said: str):
    with pytest.raises(ConfigError, match=said):
        pull("owner/name", **arguments)


@pytest.mark.real_model
def test_the_embedded_pair_is_as_good_as_eight_bits_at_nine(
    store: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MSI_HOME", str(store))
    record = pull("embedded", target="residual")
    assert record.name == "embedded-residual"
    eight, draft = load_model("embedded", part="target"), load_model(record.name)
    tokens = draft.tokenizer.encode(TEXT)

    def loss(model: nn.Module) -> float:
        logits = model(mx.array([tokens]))[0, :-1]
        return nn.losses.cross_entropy(logits, mx.array(tokens[1:]), reduction="mean").item()

    best, drafts, ours = loss(eight.model), loss(draft.model), loss(load_target(draft).model)
    assert abs(ours - best) < 0.02  # nats a token
    assert drafts > best + 0.1
    bits = 8 * (logical_nbytes(record.draft) + logical_nbytes(record.target)) / 134_515_008
    assert 8.9 < bits < 9.1


TEXT = (
    "Photosynthesis is the process by which green plants use sunlight to make food from carbon "
    "dioxide and water. It takes place in the leaves, in tiny structures called chloroplasts, "
    "which contain a green pigment called chlorophyll. Oxygen is released as a by-product. "
    "Almost all life on Earth depends on it, directly or indirectly, as a source of energy."
)
