"""Loading: what cannot be loaded is one line that names it, never a traceback from below."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msi_engine.errors import ModelError, ModelFileError, ModelNotFoundError, UnsupportedModelError
from msi_engine.model import load_model, resolve
from msi_engine.model.files import check_folder, check_safetensors
from msi_engine.model.load import context_length

MakeModel = Callable[..., Path]


@pytest.fixture(autouse=True)
def _own_home(msi_home: Path) -> None:
    pass


def edit(path: Path, **changes: object) -> None:
    content = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


def test_a_local_folder_loads(tiny_model: MakeModel):
    folder = tiny_model()
    told = []
    found = load_model(str(folder), told.append)
    assert found.path == folder
    assert found.context_length == 256
    assert found.eos_token_ids == {2}
    assert found.has_chat_template
    assert found.nbytes == (folder / "model.safetensors").stat().st_size - header_of(folder)
    assert [p.stage for p in told] == [f"loading {folder}"]
    assert resolve(str(folder)).kind == "folder"


def header_of(folder: Path) -> int:
    with (folder / "model.safetensors").open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


def test_without_a_chat_template_it_says_so(tiny_model: MakeModel):
    folder = tiny_model()
    edit(folder / "tokenizer_config.json", chat_template=None)
    assert not load_model(str(folder)).has_chat_template


def test_a_folder_without_target_has_no_target(tiny_model: MakeModel):
    with pytest.raises(ModelError, match="has no target; pull it as a pair"):
        load_model(str(tiny_model()), part="target")


def damage(folder: Path, name: str) -> None:
    weights, config = folder / "model.safetensors", folder / "config.json"
    whole = weights.read_bytes()
    index = {"weight_map": {"a": "model-00002-of-00002.safetensors"}}
    ways: dict[str, Callable[[], object]] = {
        "half": lambda: weights.write_bytes(whole[: len(whole) // 2]),
        "longer": lambda: weights.write_bytes(whole + b"x"),
        "no header": lambda: weights.write_bytes(b"\xff" * 64),
        "empty": lambda: weights.write_bytes(b""),
        "shard": lambda: (folder / "model.safetensors.index.json").write_text(json.dumps(index)),
        "wrong shape": lambda: edit(config, intermediate_size=256),
        "missing field": lambda: edit(config, hidden_size=None),
        "tokenizer": lambda: (folder / "tokenizer.json").write_text('{"version": "1.0"}'),
        "config": lambda: config.write_text("{"),
        "no type": lambda: edit(config, model_type=None),
    }
    ways.get(name, lambda: (folder / name).unlink())()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("half", r"model\.safetensors has \d+ bytes and should have \d+"),
        ("longer", r"model\.safetensors has \d+ bytes and should have \d+"),
        ("no header", r"model\.safetensors is truncated or no safetensors file"),
        ("empty", r"model\.safetensors is truncated or no safetensors file"),
        ("shard", r"model-00002-of-00002\.safetensors is missing"),
        ("wrong shape", "cannot be loaded: ValueError: Expected shape"),
        ("missing field", "cannot be loaded: "),
        ("tokenizer", "cannot be loaded: "),
        ("config", r"config\.json cannot be read"),
        ("no type", "names no model_type"),
        ("config.json", r"config\.json does not exist"),
        ("tokenizer.json", "has no tokenizer"),
        ("model.safetensors", "has no weights"),
    ],
)
def test_damage_is_one_line_that_names_the_file(name: str, said: str, tiny_model: MakeModel):
    folder = tiny_model()
    damage(folder, name)
    with pytest.raises(ModelFileError, match=said) as caught:
        load_model(str(folder))
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_kind_is_refused(tiny_model: MakeModel):
    folder = tiny_model()
    edit(folder / "config.json", model_type="nonesuch")
    with pytest.raises(UnsupportedModelError, match="nonesuch not supported"):
        load_model(str(folder))


def test_code_of_the_model_runs_only_when_asked(tiny_model: MakeModel):
    folder = tiny_model()
    edit(folder / "config.json", model_file="own.py")
    (folder / "own.py").write_text(
        "from pathlib import Path\nfrom mlx_lm.models.llama import Model, ModelArgs\n"
        "Path(__file__).with_name('ran').touch()\n"
    )
    with pytest.raises(UnsupportedModelError, match="unless trust_remote_code is set"):
        load_model(str(folder))
    assert not (folder / "ran").exists()
    load_model(str(folder), trust_remote_code=True)
    assert (folder / "ran").exists()


def test_a_pickle_is_refused_even_beside_a_config(tiny_model: MakeModel):
    folder = tiny_model()
    (folder / "model.safetensors").rename(folder / "model.pt")
    with pytest.raises(UnsupportedModelError, match=r"model\.pt is a pickle"):
        load_model(str(folder))


@pytest.mark.parametrize("name", ["nothing", "", "/no/such/folder", "a b/c", "a/b/c"])
def test_a_name_that_means_nothing_is_one_line(name: str):
    with pytest.raises(ModelNotFoundError, match="neither pulled, nor a folder") as caught:
        load_model(name)
    assert "\n" not in str(caught.value)


def test_a_repository_is_recognised_by_its_name():
    resolved = resolve("mlx-community/Some-Model_4.bit")
    assert (resolved.kind, resolved.is_fetched) == ("repository", False)


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({"max_position_embeddings": 8192}, 8192),
        ({"text_config": {"max_position_embeddings": 4096}}, 4096),
        ({"n_positions": 1024}, 1024),
        ({"max_position_embeddings": None}, None),
        ({}, None),
    ],
)
def test_context_length(config: dict, length: int | None):
    assert context_length(config) == length


@cache
def whole_weights(tiny_model: MakeModel) -> bytes:
    folder = tiny_model()
    check_folder(folder)
    return (folder / "model.safetensors").read_bytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(data=st.data())
def test_no_prefix_of_a_weight_file_passes_for_whole(
    data: st.DataObject, tiny_model: MakeModel, tmp_path: Path
):
    whole = whole_weights(tiny_model)
    cut = data.draw(st.integers(0, len(whole) - 1))
    path = tmp_path / "model.safetensors"
    path.write_bytes(whole[:cut])
    with pytest.raises(ModelFileError):
        check_safetensors(path)
