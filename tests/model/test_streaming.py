"""A streamed target: the same logits to the bit, one part in memory, and files that change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from folders import tiny_folder, wide_folder
from mlx.utils import tree_flatten

from msi_engine.cache import SharedPrefixCache
from msi_engine.errors import ModelFileError, UnsupportedModelError
from msi_engine.model import load_model, load_target
from msi_engine.model.load import open_weights, take_into_memory
from msi_engine.model.reader import TensorReader
from msi_engine.model.streaming import stream

from .conftest import TEMPLATE, WORDS, write_tokenizer


def resident(folder: Path) -> Any:
    model = open_weights(folder)
    take_into_memory(model)
    return model


def streamed(folder: Path) -> Any:
    model = open_weights(folder)
    stream(model, folder)
    return model


def logits(model: Any) -> list[np.ndarray]:
    """Of a prefill, of three paths, of a chunk on each, and after a collapse."""
    cache = SharedPrefixCache.for_model(model)
    cache.prefill([5, 6, 7, 8, 9], step_size=3)
    found = [cache.forward(mx.array([[1, 2, 3, 4, 5, 6, 7]]))]
    cache.fork(3)
    found.append(cache.forward(mx.array([[1], [2], [3]])))
    found.append(cache.forward(mx.array([[4, 4], [5, 5], [6, 6]])))
    cache.collapse(1)
    found.append(cache.forward(mx.array([[9]])))
    return [np.array(array.astype(mx.float32)) for array in found]


def held(model: Any) -> int:
    """Bytes of weights in memory."""
    arrays = {id(a): a.nbytes for _, a in tree_flatten(model.parameters())}
    return sum(arrays.values())


ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"tie_word_embeddings": False},
    "qwen3_moe": {},
    "gemma": {},
    "gemma3_text": {},  # windows
    "gemma3n": {},  # an embedding for each layer, keys shared between layers
    "jamba": {},  # recurrent layers among the others
    "apertus": {},  # small weights that are rearranged when they are loaded
}


@pytest.mark.parametrize("bits", [8, 4, None])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_logits_are_those_of_the_resident_model_to_the_bit(name: str, bits: int, tmp_path: Path):
    folder = tiny_folder(tmp_path / name, name, bits, **ARCHITECTURES[name])
    truth = logits(resident(folder))
    model = streamed(folder)
    for _ in range(2):  # nothing of a pass may be left for the next one
        for got, want in zip(logits(model), truth, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["gemma3_text", "recurrent_gemma"])
def test_a_head_that_the_loader_takes_away_does_not_matter(name: str, tmp_path: Path):
    """A file without one, as their makers' are: the embedding is the head, too."""
    folder = tiny_folder(tmp_path / name, name, None)
    lost = 0
    for path in folder.glob("model*.safetensors"):
        weights = mx.load(str(path))
        left = {key: array for key, array in weights.items() if not key.startswith("lm_head")}
        lost += len(weights) - len(left)
        mx.eval(left)
        mx.save_safetensors(str(path), left, metadata={"format": "mlx"})
    assert lost == 1
    for got, want in zip(logits(streamed(folder)), logits(resident(folder)), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.real_model
def test_logits_of_the_embedded_target_are_the_same_to_the_bit(
    store: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MSI_HOME", str(store))
    draft = load_model("embedded", part="draft")
    targets = [load_target(draft, residency=residency) for residency in ("resident", "stream")]
    assert targets[1].nbytes < targets[0].nbytes / 4
    tokens = mx.array([list(range(100, 116))])
    got, want = (np.array(target.model(tokens)) for target in targets)
    np.testing.assert_array_equal(got, want)


def test_quantised_weights_stream_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MSI_FLOAT32", "off")
    folder = tiny_folder(tmp_path / "m", "llama", 8, tie_word_embeddings=True)
    model = streamed(folder)
    assert not any(type(m).__name__ == "Linear" for m in model.modules())
    for got, want in zip(logits(model), logits(resident(folder)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_no_part_keeps_weights_between_passes(tmp_path: Path):
    folder = tiny_folder(tmp_path / "m", "llama", 8)
    model = open_weights(folder)
    kept = stream(model, folder).kept
    assert held(model) == kept
    assert kept == model.args.hidden_size * 4  # the last norm, in float32
    logits(model)
    assert held(model) == kept


def test_layers_are_read_ahead_by_a_helper_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    readers: list[tuple[str, str]] = []
    read = TensorReader._read

    def noting(self: TensorReader, names: Any) -> Any:
        readers.append((threading.current_thread().name, names[0]))
        return read(self, names)

    monkeypatch.setattr(TensorReader, "_read", noting)
    model = streamed(tiny_folder(tmp_path / "m", "llama", 8))
    mx.eval(model(mx.array([[1, 2]])))
    mx.eval(model(mx.array([[3]])))
    expected = [*(f"model.layers.{i}." for i in range(4)), "lm_head."] * 2
    assert len(readers) == len(expected)
    for (_, name), start in zip(readers, expected, strict=True):
        assert name.startswith(start)
    mine = threading.current_thread().name
    assert [i for i, (thread, _) in enumerate(readers) if thread == mine] == [0, 5]
    assert all(thread.startswith("msi-read-ahead") for thread, _ in readers if thread != mine)


def test_an_embedding_is_read_by_the_rows_of_its_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked: list[list[int]] = []
    read = TensorReader.read_rows

    def noting(self: TensorReader, name: str, rows: Any) -> Any:
        asked.append(list(rows))
        return read(self, name, rows)

    monkeypatch.setattr(TensorReader, "read_rows", noting)
    model = streamed(tiny_folder(tmp_path / "m", "llama", None))
    mx.eval(model(mx.array([[7, 3, 7, 95]])))
    assert asked == [[3, 7, 95]]


@pytest.mark.parametrize("at", range(4))
def test_a_pass_that_breaks_off_leaves_nothing_behind(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tiny_folder(tmp_path / "m", "llama", 8)
    model = open_weights(folder)
    kept = stream(model, folder).kept
    tokens = mx.array([[1, 2, 3]])
    truth = np.array(model(tokens))
    kind, passed = type(model.layers[0].mlp), []
    compute = kind.__call__
    with monkeypatch.context() as patch:

        def give_up(self: Any, x: mx.array) -> mx.array:
            if len(passed) == at:
                raise KeyboardInterrupt
            passed.append(self)
            return compute(self, x)

        patch.setattr(kind, "__call__", give_up)
        with pytest.raises(KeyboardInterrupt):
            model(tokens)
    assert held(model) == kept
    np.testing.assert_array_equal(np.array(model(tokens)), truth)


# Files that do not stay what they were


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def overwritten(path: Path) -> None:
    later = path.stat().st_mtime_ns + 1_000_000
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(later, later))


@pytest.mark.parametrize("damage", [cut, overwritten])
@pytest.mark.parametrize("file", ["model-00001-of-00002", "model-00002-of-00002"])
def test_a_file_that_changes_under_way_is_one_clear_error(
    damage: Callable[[Path], None], file: str, tmp_path: Path
):
    folder = tiny_folder(tmp_path / "m", "llama", 8)
    model = open_weights(folder)
    kept = stream(model, folder).kept
    mx.eval(model(mx.array([[1, 2]])))
    damage(folder / f"{file}.safetensors")
    for _ in range(2):
        with pytest.raises(ModelFileError, match="was changed while it was in use") as caught:
            mx.eval(model(mx.array([[1, 2]])))
        assert file in str(caught.value)
        assert "\n" not in str(caught.value)
        assert held(model) == kept


def test_a_file_cut_short_in_the_midst_of_a_pass_is_the_same_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tiny_folder(tmp_path / "m", "llama", 8)
    model = streamed(folder)
    inner = model.layers[0]._part
    run = inner.run

    def cutting(*args: Any, **kwargs: Any) -> Any:
        out = run(*args, **kwargs)
        for path in folder.glob("*.safetensors"):
            os.truncate(path, 100)
        return out

    monkeypatch.setattr(inner, "run", cutting)
    with pytest.raises(ModelFileError, match="was changed while it was in use"):
        mx.eval(model(mx.array([[1, 2]])))


def test_a_file_that_is_replaced_goes_on_as_it_was(tmp_path: Path):
    folder = tiny_folder(tmp_path / "m", "llama", 8)
    model = streamed(folder)
    before = np.array(model(mx.array([[1, 2]])))
    other = tiny_folder(tmp_path / "other", "llama", 8, seed=1)
    for path in other.glob("*.safetensors"):
        os.replace(path, folder / path.name)
    np.testing.assert_array_equal(np.array(model(mx.array([[1, 2]]))), before)


# What cannot be streamed


def test_a_model_that_computes_with_weights_past_its_layers_is_refused(tmp_path: Path):
    folder = tiny_folder(tmp_path / "m", "iquestloopcoder", 8)
    with pytest.raises(UnsupportedModelError, match="uses its weights past its layers"):
        streamed(folder)


def test_experts_that_are_stacked_when_they_are_loaded_are_refused(tmp_path: Path):
    """As in a repository that is not in MLX format yet: one tensor an expert."""
    folder = tiny_folder(tmp_path / "m", "qwen3_moe", None)
    for path in folder.glob("model-*"):
        apart = {}
        for name, array in mx.load(str(path)).items():
            if ".switch_mlp." in name:
                for number, expert in enumerate(array):
                    apart[name.replace(".switch_mlp.", f".experts.{number}.")] = expert
            else:
                apart[name] = array
        mx.eval(apart)
        mx.save_safetensors(str(path), apart)
    with pytest.raises(UnsupportedModelError, match=r"switch_mlp\..*is not stored as the model"):
        streamed(folder)
    assert len(logits(resident(folder))) == 4


# Memory, of a whole process


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Draft of 4 layers and target of 8, each layer 35 MB in float32."""
    folders = []
    for name, num_layers, bits in (("draft", 4, 4), ("target", 8, 8)):
        folder = tmp_path_factory.mktemp(name)
        vocab_size = write_tokenizer(folder, WORDS, TEMPLATE)
        folders.append(wide_folder(folder, num_layers, bits, vocab_size))
    return folders[0], folders[1]


def child(wide: tuple[Path, Path], residency: str, limit: int = 0) -> subprocess.CompletedProcess:
    script = Path(__file__).with_name("streaming_child.py")
    return subprocess.run(
        [sys.executable, script, *wide, residency, str(limit)],
        capture_output=True,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "MSI_FLOAT32": "on"},
    )


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux
def test_peak_memory_is_draft_and_largest_part_and_caches_and_a_fifth(wide: tuple[Path, Path]):
    results = {}
    for residency in ("stream", "resident"):
        done = child(wide, residency)
        assert done.returncode == 0, done.stderr
        results[residency] = json.loads(done.stdout)
    found = results["stream"]
    layer = (768 * 768 * 2 + 2 * 768 * 256 + 3 * 768 * 3072 + 2 * 768) * 4
    assert found["target"] == layer + 768 * 4
    bound = found["before"] + 1.2 * (found["draft"] + layer + found["caches"])
    assert found["peak"] <= bound
    assert results["resident"]["peak"] > bound + 5 * layer
    assert found["sum"] == results["resident"]["sum"]


@linux
def test_a_target_larger_than_the_memory_limit_runs(wide: tuple[Path, Path]):
    """The limit leaves, beyond the draft, less than half of what the target takes in float32."""
    limit = 120_000_000
    assert child(wide, "resident", limit).returncode != 0
    done = child(wide, "auto", limit)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kind"] == "stream"
