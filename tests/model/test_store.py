"""The store: what is listed, what is the default, what a crash can leave."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from llm_msi.registered import aliases
from msi_engine.errors import ConfigError, DownloadError, ModelFileError, ModelNotFoundError
from msi_engine.model import (
    default_name,
    list_models,
    load_model,
    pull,
    remove,
    resolve,
    set_default,
)
from msi_engine.model.home import home
from msi_engine.model.store import Manifest, commit, find_record, locked, staging_folder

MakeModel = Callable[..., Path]


@pytest.fixture(autouse=True)
def _own_home(msi_home: Path) -> None:
    pass


def test_the_home_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("sys.platform", "linux")
    assert home() == tmp_path / "home"
    monkeypatch.delenv("MSI_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert home() == tmp_path / "cache" / "msi"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home() == tmp_path / ".cache" / "msi"
    monkeypatch.setattr("sys.platform", "darwin")
    assert home() == tmp_path / "Library" / "Caches" / "msi"
    monkeypatch.setenv("MSI_HOME", "~no_such_user/x")  # as a shell has it: left as it is
    assert home() == Path.cwd() / "~no_such_user" / "x"


def test_an_empty_store_has_the_embedded_model_as_its_default():
    assert list_models() == []
    assert default_name() == "embedded"
    resolved = resolve()
    assert (resolved.kind, resolved.is_fetched) == ("embedded", False)


def test_the_default_is_kept_and_goes_with_its_model(tiny_model: MakeModel):
    pull(str(tiny_model()), alias="one")
    pull(str(tiny_model()), alias="two")
    set_default("two")
    assert [(r.name, r.is_default) for r in list_models()] == [("one", False), ("two", True)]
    assert resolve(None).name == "two"
    assert load_model().name == "two"
    remove("one")
    assert default_name() == "two"
    remove("two")
    assert default_name() == "embedded"


def test_what_is_not_there_cannot_be_default_or_removed():
    with pytest.raises(ModelNotFoundError, match="llm msi pull nothing"):
        set_default("nothing")
    with pytest.raises(ModelNotFoundError, match="no model 'nothing' to remove"):
        remove("nothing")
    set_default("embedded")


@pytest.mark.parametrize("name", ["../models", "a/b", "", ".", "-x", "a" * 200, "ü"])
def test_names_cannot_leave_the_store(name: str):
    with pytest.raises(ConfigError, match="may hold letters"):
        remove(name)


def test_a_staged_model_does_not_exist_until_it_is_committed():
    staged = staging_folder("half") / "draft"
    staged.mkdir(parents=True)
    (staged / "model.safetensors").write_bytes(b"1234")
    assert find_record("half") is None
    assert list_models() == []
    record = commit("half", Manifest("somewhere"))
    assert record.nbytes == 4
    assert [r.name for r in list_models()] == ["half"]


def test_a_folder_without_manifest_is_no_model(tiny_model: MakeModel):
    pull(str(tiny_model()), alias="one")
    (home() / "models" / "one" / "msi.json").unlink()
    assert find_record("one") is None
    assert list_models() == []
    assert pull(str(tiny_model()), alias="one").name == "one"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "cannot be read"),
        ('{"version": 99, "source": "x"}', "has version 99, known: 1"),
        ('{"version": 1, "source": "x", "more": 1}', "is malformed"),
        ("[]", "holds no JSON object"),
        ('{"version": 1, "source": 1}', "is malformed"),
        ('{"version": 1, "source": "x", "draft": 1}', "is malformed"),
        ('{"version": 1, "source": "x", "target": []}', "is malformed"),
        ('{"version": 1, "source": "x", "decode": "target"}', "is malformed"),
        ('{"version": 1, "source": "x", "decode": "other"}', "is malformed"),
        ('{"version": 1, "source": "x", "files": ["a"]}', "is malformed"),
        ('{"version": 1, "source": "x", "files": {"a": "b"}}', "is malformed"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_one_line(content: str, said: str, tiny_model: MakeModel):
    pull(str(tiny_model()), alias="one")
    (home() / "models" / "one" / "msi.json").write_text(content)
    with pytest.raises(ModelFileError, match=said) as caught:
        resolve("one")
    assert "\n" not in str(caught.value)
    assert list_models() == []
    remove("one")


def test_a_missing_file_is_named(tiny_model: MakeModel):
    record = pull(str(tiny_model()), alias="one", quantize=True)
    (record.draft / "tokenizer.json").unlink()
    with pytest.raises(ModelFileError, match=r"draft/tokenizer\.json is missing"):
        resolve("one")


def test_removing_takes_an_unfinished_pull_too():
    (staging_folder("half") / "draft").mkdir(parents=True)
    remove("half")
    assert not staging_folder("half").exists()


def test_a_second_holder_of_a_lock_waits_and_says_so():
    waited, order = threading.Event(), []

    def second() -> None:
        with locked("x", on_wait=waited.set):
            order.append("second")

    with locked("x"):
        thread = threading.Thread(target=second)
        thread.start()
        assert waited.wait(10)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_settings_that_are_damaged_are_named():
    home().mkdir(parents=True)
    (home() / "config.json").write_text("nonsense")
    with pytest.raises(ModelFileError, match=r"config\.json cannot be read"):
        default_name()


def test_records_are_plain_data(tiny_model: MakeModel):
    record = pull(str(tiny_model()), alias="one", quantize=True)
    manifest = json.loads((home() / "models" / "one" / "msi.json").read_text())
    assert manifest["draft"] == "draft"
    assert manifest["files"]["draft/config.json"] == (record.draft / "config.json").stat().st_size


def test_a_model_behind_a_link_keeps_its_files(tiny_model: MakeModel, tmp_path: Path):
    pull(str(tiny_model()), alias="one", quantize=True)
    folder = home() / "models" / "one"
    elsewhere = folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(elsewhere)
    load_model("one")
    remove("one")
    assert list_models() == []
    assert (elsewhere / "msi.json").is_file()


def test_a_store_that_cannot_be_read_is_one_line(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("MSI_HOME", str(tmp_path / ("x" * 300)))  # longer than a name may be
    for look in (list_models, resolve, lambda: resolve("one"), lambda: set_default("one")):
        with pytest.raises(ModelFileError, match=r"cannot be read: .*set MSI_HOME") as caught:
            look()
        assert "\n" not in str(caught.value)
    assert aliases() == []


def test_a_store_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MSI_HOME", str(tmp_path / "file"))
    with pytest.raises(DownloadError, match="pulling mine failed"):
        pull("/", alias="mine", quantize=True)
