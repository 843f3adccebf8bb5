"""The BLAS that is loaded is the one that MLX computes with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msi_engine.errors import ConfigError
from msi_engine.model import set_blas_threads
from msi_engine.model.elf import soname_of, with_soname

linux = pytest.mark.skipif(sys.platform != "linux", reason="MLX uses Accelerate or a GPU there")

# Multiplies with MLX and with the BLAS that was reported. No two libraries round alike, so equal
# bits say whose product MLX's is.
MULTIPLY = """
import ctypes, hashlib, json
from msi_engine.model import prepare_backend
report = prepare_backend()
import mlx.core as mx
import numpy as np

def product(path, a, b):
    n = len(a)
    c = np.zeros((n, n), np.float32)
    args = [ctypes.c_void_p(x.ctypes.data) for x in (a, b, c)]
    one, zero, size = ctypes.c_float(1), ctypes.c_float(0), ctypes.c_int(n)
    ctypes.CDLL(path).cblas_sgemm(
        101, 111, 111, size, size, size, one, args[0], size, args[1], size, zero, args[2], size)
    return c

rng = np.random.default_rng(0)
a, b = (rng.standard_normal((300, 300)).astype(np.float32) for _ in range(2))
c = np.array(mx.array(a) @ mx.array(b))
exact = a.astype(np.float64) @ b.astype(np.float64)
print(json.dumps({
    "source": report.blas_source, "advice": report.advice, "late": report.late,
    "threads": report.threads,
    "is_reported": report.blas_path and bool((c == product(report.blas_path, a, b)).all()),
    "digest": hashlib.sha256(c.tobytes()).hexdigest(),
    "error": float(abs(c - exact).max()),
}))
"""


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MSI_", "OPENBLAS"))}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def result(code: str, **environment: str) -> dict:
    done = run(code, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@linux
def test_matrix_products_are_computed_by_the_loaded_blas(tmp_path: Path):
    found = result(MULTIPLY, MSI_HOME=str(tmp_path))
    assert found["source"] in ("system", "cmeel-openblas", "mkl")
    assert found["is_reported"]
    assert found["error"] < 1e-3
    assert found["advice"] is None
    assert not found["late"]
    wheels_own = result(MULTIPLY, MSI_HOME=str(tmp_path), MSI_BLAS="none")
    assert wheels_own["source"] is None
    assert wheels_own["error"] < 1e-3
    assert wheels_own["digest"] != found["digest"]


@linux
def test_it_works_where_the_home_folder_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("")
    found = result(MULTIPLY, MSI_HOME=str(tmp_path / "file"))
    assert found["is_reported"]


@linux
def test_a_blas_can_be_named_and_its_threads_set(tmp_path: Path):
    path = result(
        "import json; from msi_engine.model import prepare_backend as p; print(json.dumps("
        "{'path': p().blas_path}))",
        MSI_HOME=str(tmp_path),
    )["path"]
    if not Path(path).is_absolute():
        pytest.skip("the system's own OpenBLAS is found by name")
    # The Fortran runtime must be there already, since only the search brings it along.
    code = "from msi_engine.model import blas; blas.load_bundled_gfortran()\n" + MULTIPLY
    found = result(code, MSI_HOME=str(tmp_path), MSI_BLAS=path, MSI_BLAS_THREADS="2")
    assert found["source"] == "MSI_BLAS"
    assert found["is_reported"]
    assert found["threads"] == 2


@linux
def test_threads_can_be_set_while_running(tmp_path: Path):
    code = """
import json
from msi_engine.model import prepare_backend, set_blas_threads
prepare_backend()
counts = []
for n in (2, 1):
    set_blas_threads(n)
    counts.append(prepare_backend().threads)
print(json.dumps({"counts": counts}))
"""
    assert result(code, MSI_HOME=str(tmp_path))["counts"] == [2, 1]


@linux
def test_a_late_call_says_so(tmp_path: Path):
    found = result("import mlx.core\n" + MULTIPLY, MSI_HOME=str(tmp_path))
    assert found["late"]
    assert "before importing mlx" in found["advice"]


@linux
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("MSI_BLAS", "/no/such.so", "/no/such.so"),
        ("MSI_BLAS_THREADS", "0", "from 1, got '0'"),
        ("MSI_BLAS_THREADS", "many", "got 'many'"),
    ],
)
def test_bad_settings_are_refused_in_one_line(name: str, value: str, said: str, tmp_path: Path):
    code = """
from msi_engine.errors import ConfigError
from msi_engine.model import prepare_backend
try:
    prepare_backend()
except ConfigError as error:
    print(error)
"""
    done = run(code, MSI_HOME=str(tmp_path), **{name: value})
    assert said in done.stdout
    assert done.stdout.count("\n") == 1


def test_less_than_one_thread_is_refused():
    with pytest.raises(ConfigError, match="at least 1, got 0"):
        set_blas_threads(0)


@linux
def test_nothing_heavy_is_imported_with_the_package():
    code = """
import json, sys
import msi_engine.model
heavy = {"mlx", "mlx_lm", "transformers", "huggingface_hub", "torch", "filelock"}
print(json.dumps({"found": sorted(heavy & set(sys.modules))}))
"""
    assert result(code)["found"] == []


def bundled_gfortran() -> Path:
    import importlib.util

    spec = importlib.util.find_spec("mlx")
    folder = Path(next(iter(spec.submodule_search_locations))).parent / "mlx_cpu.libs"
    found = next(folder.glob("libgfortran-*"), None)
    if found is None:
        pytest.skip("MLX's wheel bundles no Fortran runtime on this platform")
    return found


def test_the_loader_knows_the_copy_by_its_new_name(tmp_path: Path):
    original = bundled_gfortran()
    copy = tmp_path / "copy.so"
    copy.write_bytes(with_soname(original.read_bytes(), "libmsitest.so.5"))
    assert soname_of(copy.read_bytes()) == "libmsitest.so.5"
    assert copy.stat().st_size == original.stat().st_size
    # The dynamic loader itself: a library in memory answers to its soname and to no other.
    code = """
import ctypes, glob, sys
for quadmath in glob.glob(sys.argv[2] + "/libquadmath-*"):
    ctypes.CDLL(quadmath, mode=ctypes.RTLD_GLOBAL)
ctypes.CDLL(sys.argv[1])
ctypes.CDLL("libmsitest.so.5")
try:
    ctypes.CDLL("libmsiother.so.5")
except OSError:
    print("ok")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(copy), str(original.parent)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "ok\n", done.stderr


def test_a_longer_soname_is_refused():
    with pytest.raises(ValueError, match="longer"):
        with_soname(bundled_gfortran().read_bytes(), "x" * 200)


@given(st.integers(0, 4096), st.binary(max_size=64))
def test_what_is_no_library_is_refused(length: int, junk: bytes):
    image = bundled_gfortran().read_bytes()[:length] + junk
    with pytest.raises(ValueError, match=r"not a|no segment|ELF"):
        with_soname(image, "x")
