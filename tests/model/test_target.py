"""Finding the target of a draft, refusing what is none, and holding it as memory allows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from msi_engine import DecodeConfig, Engine
from msi_engine.errors import ConfigError, ModelError
from msi_engine.model import load_model, load_target, logical_nbytes, memory, pull

MakeModel = Callable[..., Path]
TOKENS = [[3, 5, 8, 13, 21]]


@pytest.fixture(autouse=True)
def _own_home(msi_home: Path) -> None:
    pass


@pytest.fixture
def pair(tiny_model: MakeModel):
    """A pair in the store: 4 and 8 bits of one model."""
    return pull(str(tiny_model()), alias="both", quantize=True)


def logits_of(model) -> np.ndarray:
    return np.array(model(mx.array(TOKENS))[0])


def test_the_target_of_a_pair_is_its_own(pair):
    target = load_target(load_model("both", part="draft"))
    assert (target.kind, target.name, target.path) == ("resident", "both", pair.target)
    truth = logits_of(load_model("both", part="target").model)
    np.testing.assert_array_equal(logits_of(target.model), truth)


def test_another_model_may_be_the_target(tiny_model: MakeModel, pair):
    other = tiny_model(seed=7)
    target = load_target(load_model("both"), name=str(other))
    assert target.path == other
    np.testing.assert_array_equal(logits_of(target.model), logits_of(load_model(str(other)).model))


def test_ends_and_context_are_read_with_the_target(tiny_model: MakeModel):
    other = tiny_model("other")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 99}))
    (other / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}))
    target = load_target(load_model(str(tiny_model())), name=str(other))
    assert (target.eos_token_ids, target.context_length) == ({0, 2}, 99)
    assert load_model(str(other)).eos_token_ids == {0, 2}


def test_of_a_pair_that_is_named_the_target_is_taken(tiny_model: MakeModel, pair):
    assert load_target(load_model(str(tiny_model())), name="both").path == pair.target


def test_a_pair_is_found_although_a_part_was_loaded_by_itself_first(pair):
    """One copy of the weights serves both names, and each name has its own target or none."""
    options = DecodeConfig(k=1, refine="verify")
    alone, both = Engine.load(str(pair.draft)), Engine.load("both")
    assert (alone.model_name, both.model_name) == (str(pair.draft), "both")
    assert alone._held.loaded.model is both._held.loaded.model
    both.prepare(options)
    with pytest.raises(ModelError, match="has no target to check it"):
        alone.prepare(options)
    assert Engine.load("both") is both
    assert Engine.load(str(pair.draft)) is alone


def test_a_single_model_has_no_target(tiny_model: MakeModel):
    with pytest.raises(ModelError, match="has no target to check it; name one"):
        load_target(load_model(str(tiny_model())))


def test_a_target_with_another_vocabulary_is_refused(tiny_model: MakeModel):
    other = tiny_model("other", words="entirely other words make entirely other merges")
    with pytest.raises(ModelError, match="cannot be a pair: they differ in vocabulary"):
        load_target(load_model(str(tiny_model())), name=str(other))


@pytest.mark.parametrize("residency", ["resident", "stream"])
def test_the_bytes_of_a_sweep_are_those_of_the_file_without_the_embedding(pair, residency: str):
    target = load_target(load_model("both"), residency=residency)
    content = mx.load(str(pair.target / "model.safetensors"))
    counted = sum(a.nbytes for n, a in content.items() if not n.startswith("model.embed_tokens"))
    assert target.bytes_per_sweep == counted == logical_nbytes(pair.target)
    assert counted < sum(a.nbytes for a in content.values())
    assert logical_nbytes(pair.draft) < 0.6 * counted


def test_residency_is_settled_by_free_memory(pair, monkeypatch: pytest.MonkeyPatch):
    draft = load_model("both")
    size = load_target(draft, residency="resident").nbytes
    for free, kind in ((2 * size, "resident"), (size, "stream")):
        monkeypatch.setenv("MSI_FREE_MEMORY", str(free))
        assert load_target(draft).kind == kind
        assert load_target(draft, residency="resident").kind == "resident"
        assert load_target(draft, residency="stream").kind == "stream"
    assert load_target(draft, residency="stream").nbytes < size


@pytest.mark.parametrize("setting", ["", "1.5", "-3", "2GB"])
def test_free_memory_that_is_no_number_of_bytes_is_refused(
    setting: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MSI_FREE_MEMORY", setting)
    with pytest.raises(ConfigError, match="MSI_FREE_MEMORY must be a number of bytes"):
        memory.free_memory()


def test_a_container_and_a_limit_leave_less_than_the_machine_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    monkeypatch.setattr(memory, "_device_memory", lambda: None)
    free = memory.free_memory()
    assert free is not None
    assert free > 10_000_000
    (tmp_path / "memory.current").write_text("9000000\n")
    (tmp_path / "memory.stat").write_text("anon 7000000\ninactive_file 500000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_memory() > 10_000_000
    (tmp_path / "memory.max").write_text("10000000\n")
    assert memory.free_memory() == 1_500_000
