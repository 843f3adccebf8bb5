"""Each fault is found, named and given a way out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from msi_engine.model import Check, doctor, pull
from msi_engine.model.store import staging_folder

MakeModel = Callable[..., Path]


def found() -> dict[str, Check]:
    return {check.name: check for check in doctor()}


def test_a_sound_installation(tiny_model: MakeModel, msi_home: Path):
    pull(str(tiny_model()), alias="mine")
    checks = found()
    assert {"versions", "device", "weights", "memory", "home folder", "model mine"} <= set(checks)
    assert checks["model mine"].status == "ok"
    assert checks["default model"].status == "warn"
    assert "llm msi pull embedded" in checks["default model"].advice
    assert all(c.advice for c in checks.values() if c.status != "ok")


def test_a_truncated_model_is_found(tiny_model: MakeModel, msi_home: Path):
    record = pull(str(tiny_model()), alias="mine", quantize=True)
    (record.target / "model.safetensors").write_bytes(b"1")
    check = found()["model mine"]
    assert check.status == "fail"
    assert "llm msi remove mine" in check.advice


def test_a_folder_that_vanished_is_found(tiny_model: MakeModel, msi_home: Path, tmp_path: Path):
    folder = tiny_model().rename(tmp_path / "moved")
    pull(str(folder), alias="mine")
    folder.rename(tmp_path / "gone")
    assert found()["model mine"].status == "fail"


def test_a_damaged_manifest_is_found(tiny_model: MakeModel, msi_home: Path):
    pull(str(tiny_model()), alias="one")
    (msi_home / "models" / "one" / "msi.json").write_text("{")
    check = found()["model one"]
    assert check.status == "fail"
    assert "cannot be read" in check.detail
    assert "llm msi remove one" in check.advice


def test_an_unfinished_pull_is_found(msi_home: Path):
    staging_folder("half").mkdir(parents=True)
    check = found()["model half"]
    assert (check.status, check.detail) == ("warn", "an unfinished pull")


def test_a_home_that_cannot_be_written_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MSI_HOME", str(tmp_path / "file" / "home"))
    assert found()["home folder"].status == "fail"


def test_damaged_settings_and_bad_variables_do_not_hide_the_rest(
    msi_home: Path, monkeypatch: pytest.MonkeyPatch
):
    msi_home.mkdir()
    (msi_home / "config.json").write_text("{")
    monkeypatch.setenv("MSI_FLOAT32", "maybe")
    checks = found()
    assert checks["models"].status == "fail"
    assert checks["device"].status == "fail"
    assert checks["home folder"].status == "ok"
