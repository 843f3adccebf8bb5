"""Pulling from a hub, against one on the loopback device."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from msi_engine.model import list_models, load_model

from .fake_hub import REPOSITORY, FakeHub

PATIENCE = 600  # seconds after which something hangs; never reached by a test that passes

PULL = """
import json, sys
from msi_engine.errors import MSIError
from msi_engine.model import pull
told = []
try:
    record = pull(sys.argv[1], on_progress=told.append, **json.loads(sys.argv[2]))
except MSIError as error:
    print(type(error).__name__, error, sep=": ")
else:
    bytes_told = [[p.done, p.total] for p in told if p.unit == "bytes"]
    print(json.dumps({"name": record.name, "bytes": bytes_told}))
"""


@pytest.fixture
def hub(tiny_model: Callable[..., Path], tmp_path: Path) -> Iterator[FakeHub]:
    folder = tmp_path / "repository"
    shutil.copytree(tiny_model(), folder)
    (folder / "README.md").write_text("not fetched")
    (folder / "modeling_tiny.py").write_text("raise SystemExit('never run')")
    (folder / "pytorch_model.bin").write_bytes(b"never fetched")
    served = FakeHub(folder)
    yield served
    served.close()


def start(hub: FakeHub, home: Path, name: str = REPOSITORY, **options: object):
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(home / "hf"),
        "MSI_HOME": str(home),
        "HF_HUB_ETAG_TIMEOUT": "5",
    }
    environment.pop("HF_HUB_OFFLINE", None)
    return subprocess.Popen(
        [sys.executable, "-c", PULL, name, json.dumps(options)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    return out.strip()


def test_weights_config_and_tokenizer_are_fetched_and_nothing_else(hub: FakeHub, msi_home: Path):
    told = json.loads(finish(start(hub, msi_home)))
    assert told["name"] == "tiny"
    assert told["bytes"][-1][0] == told["bytes"][-1][1]
    wanted = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert dict(hub.fetched) == dict.fromkeys(wanted, 1)
    (record,) = list_models()
    assert record.source == REPOSITORY
    assert {p.name for p in record.draft.iterdir()} == wanted
    for name in wanted:
        assert (record.draft / name).read_bytes() == (hub.folder / name).read_bytes()
    assert load_model("tiny").context_length == 256
    assert load_model(REPOSITORY).path == record.draft
    assert list((msi_home / "staging").iterdir()) == []


def test_a_killed_pull_leaves_no_model_and_the_next_keeps_what_had_arrived(
    hub: FakeHub, msi_home: Path
):
    hub.stall = "model.safetensors"
    process = start(hub, msi_home)
    assert hub.stalled.wait(PATIENCE)
    process.kill()
    process.communicate()
    assert list_models() == []
    hub.stall = None
    finish(start(hub, msi_home))
    (record,) = list_models()
    for path in record.draft.iterdir():
        assert path.read_bytes() == (hub.folder / path.name).read_bytes()
    assert hub.fetched["tokenizer.json"] == 1
    assert hub.fetched["model.safetensors"] == 2


LOAD = """
import sys
from msi_engine import Engine, service
from msi_engine.model import embedded
service._PATIENCE_S = 3600
embedded.installed_gguf = lambda: None
Engine.load(sys.argv[1])
"""
WAYS = {  # of the main thread, and of the engine's
    "pull": ["-m", "llm", "msi", "pull"],
    "load": ["-c", LOAD],
}


def interrupted(way: str, name: str, home: Path, stalled: threading.Event, **variables: str) -> str:
    """What a fetch says that gets nothing any more, once it is interrupted, and it alone.

    The time limits of all others are an hour: it ends only if it waits for none of them.
    """
    environment = {**os.environ, **variables, "MSI_HOME": str(home), "HF_HOME": str(home / "hf")}
    environment.pop("HF_HUB_OFFLINE", None)
    process = subprocess.Popen(
        [sys.executable, *WAYS[way], name],
        env={**environment, "LLM_USER_PATH": str(home / "llm")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert stalled.wait(PATIENCE)
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode != 0
    assert list_models() == []
    return err


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupted_pull_waits_for_nothing_and_leaves_no_model(
    way: str, hub: FakeHub, msi_home: Path
):
    hub.stall = "model.safetensors"
    limits = {"HF_HUB_DOWNLOAD_TIMEOUT": "3600", "HF_HUB_ETAG_TIMEOUT": "3600"}
    err = interrupted(way, REPOSITORY, msi_home, hub.stalled, HF_ENDPOINT=hub.url, **limits)
    if way == "pull":
        assert "Traceback" not in err
        assert err.splitlines()[-1] == "Aborted!"
    hub.stall = None
    finish(start(hub, msi_home))
    assert hub.fetched["tokenizer.json"] == 1  # what had arrived is kept


def test_an_interrupted_fetch_of_the_embedded_model_leaves_nothing(msi_home: Path):
    reached = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            kept.append(server.accept())
            reached.set()

        kept: list[object] = []
        threading.Thread(target=accept, daemon=True).start()
        index = f"http://127.0.0.1:{server.getsockname()[1]}/"
        settings = {"PIP_INDEX_URL": index, "PIP_TIMEOUT": "3600", "PIP_CONFIG_FILE": os.devnull}
        interrupted("load", "embedded", msi_home, reached, **settings)
    assert list((msi_home / "staging").iterdir()) == []


def test_a_repository_that_changed_meanwhile_is_not_mixed(hub: FakeHub, msi_home: Path):
    hub.stall = "model.safetensors"
    process = start(hub, msi_home)
    assert hub.stalled.wait(PATIENCE)
    process.kill()
    process.communicate()
    hub.stall = None
    (hub.folder / "tokenizer_config.json").rename(hub.folder / "special_tokens_map.json")
    finish(start(hub, msi_home))
    (record,) = list_models()
    assert not (record.draft / "tokenizer_config.json").exists()


def test_two_pulls_at_once_fetch_once(hub: FakeHub, msi_home: Path):
    processes = [start(hub, msi_home) for _ in range(2)]
    assert {json.loads(finish(p))["name"] for p in processes} == {"tiny"}
    assert hub.fetched["model.safetensors"] == 1
    load_model("tiny")


def test_a_repository_of_pickles_is_refused_before_it_is_fetched(hub: FakeHub, msi_home: Path):
    (hub.folder / "model.safetensors").unlink()
    said = finish(start(hub, msi_home))
    assert said.startswith("UnsupportedModelError: ")
    assert "pytorch_model.bin" in said
    assert not hub.fetched
    assert "\n" not in said


def test_a_kind_that_cannot_run_is_refused_before_its_weights(hub: FakeHub, msi_home: Path):
    config = json.loads((hub.folder / "config.json").read_text())
    (hub.folder / "config.json").write_text(json.dumps({**config, "model_type": "nonesuch"}))
    said = finish(start(hub, msi_home))
    assert said.startswith("UnsupportedModelError: ")
    assert "nonesuch" in said
    assert hub.fetched["model.safetensors"] == 0
    assert list((msi_home / "staging").iterdir()) == []


def test_no_such_repository(hub: FakeHub, msi_home: Path):
    said = finish(start(hub, msi_home, "someone/else"))
    assert said.startswith("ModelNotFoundError: no repository 'someone/else'")


def test_no_hub_is_one_line(hub: FakeHub, msi_home: Path):
    hub.close()
    said = finish(start(hub, msi_home))
    assert said.startswith("DownloadError: someone/tiny could not be fetched: ")
    assert "\n" not in said
