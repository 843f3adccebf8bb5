"""A store that cannot be written: what is there can be used, and what changes nothing works."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from msi_engine.errors import DownloadError, ModelFileError, ModelNotFoundError
from msi_engine.model import default_name, pull, remove, set_default
from msi_engine.model.home import home
from msi_engine.model.store import model_folder

MakeModel = Callable[..., Path]

# A mount that binds even root, in namespaces of the process's own.
MOUNT = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT]


@pytest.fixture
def mine(tiny_model: MakeModel, msi_home: Path) -> Path:
    """The folder that a model of the name ``mine`` was made of."""
    folder = tiny_model()
    pull(str(folder), alias="mine", quantize=True)
    return folder


@pytest.fixture
def no_locks(mine: Path) -> Path:
    """The same in a store where no lock can be made: a file is in the way of their folder."""
    shutil.rmtree(home() / "locks")
    (home() / "locks").write_text("")
    return mine


def test_what_is_there_needs_no_lock(no_locks: Path):
    assert pull(str(no_locks), alias="mine", quantize=True).name == "mine"


def test_what_is_not_there_cannot_be_removed_and_needs_no_lock(no_locks: Path):
    with pytest.raises(ModelNotFoundError, match="no model 'other' to remove"):
        remove("other")


def test_what_has_to_be_written_is_one_line(no_locks: Path):
    with pytest.raises(ModelFileError, match="cannot be changed") as caught:
        remove("mine")
    assert "\n" not in str(caught.value)
    with pytest.raises(DownloadError, match=r"pulling other failed: .*locks") as failed:
        pull(str(no_locks), alias="other")
    assert "\n" not in str(failed.value)
    assert model_folder("mine").is_dir()


def test_the_default_is_not_written_again(mine: Path):
    """A folder in the way of the temporary file stands for a disk that takes no file."""
    set_default("mine")
    (home() / f"config.{os.getpid()}.tmp").mkdir()
    set_default("mine")
    with pytest.raises(ModelFileError, match="cannot be changed"):
        set_default("embedded")
    assert default_name() == "mine"


def test_damaged_settings_are_replaced(mine: Path):
    (home() / "config.json").write_text("{")
    set_default("embedded")
    assert default_name() == "embedded"


def read_only(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command to which everything below ``folder`` is on a read-only disk."""
    return subprocess.run(
        [*UNSHARE, str(folder), *command],
        env={**os.environ, "LLM_USER_PATH": str(folder.parent / "llm")},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def read_only_home(mine: Path) -> Path:
    set_default("mine")
    tried = read_only(home(), "touch", str(home() / "new"))
    if "Read-only file system" not in tried.stderr:
        pytest.skip("a disk can be made read-only for one process on Linux with user namespaces")
    return home()


def llm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return read_only(home(), sys.executable, "-m", "llm", *arguments)


@pytest.mark.usefixtures("read_only_home")
def test_a_model_on_a_read_only_disk_answers():
    done = llm(
        "-m", "msi", "new", "-o", "max_tokens", "3", "-o", "refine", "verify", "-o", "k", "1"
    )
    assert done.returncode == 0, done.stderr
    assert "max_tokens = 3" in done.stderr  # nothing else is wrong with it
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout.strip()


def test_every_command_on_a_read_only_disk(mine: Path, read_only_home: Path):
    def said(*arguments: str, code: int = 0) -> str:
        done = llm("msi", *arguments)
        assert done.returncode == code, done.stderr
        assert len(done.stderr.splitlines()) == (code and 1)
        return done.stderr if code else done.stdout

    pulling = ("pull", str(mine), "--quantize", "--alias")
    assert "mine is ready" in said(*pulling, "mine")
    assert said("default") == said("default", "mine") == "mine\n"
    assert [m["name"] for m in json.loads(said("models", "--json"))] == ["mine"]
    assert "no model 'other' to remove" in said("remove", "other", code=1)
    assert "Read-only file system" in said("remove", "mine", code=1)
    assert "Read-only file system" in said("default", "embedded", code=1)
    assert "Read-only file system" in said(*pulling, "other", code=1)
    checks = {check["name"]: check for check in json.loads(said("doctor", "--json"))}
    assert checks["model mine"]["status"] == "ok"
    assert checks["home folder"]["status"] == "warn"
    assert "its models can be used" in checks["home folder"]["advice"]
