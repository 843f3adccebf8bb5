"""Prepare the machine for MLX, before MLX is imported.

Decides which kind of device MLX will run on and, on a plain Linux CPU, replaces the reference BLAS
of MLX's wheel. Environment: ``MSI_BLAS`` is the path of the BLAS to use, or ``none``;
``MSI_BLAS_THREADS`` is its number of threads, by default half the CPUs and at most 8, since idle
BLAS threads spin and slow everybody down.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from dataclasses import dataclass, replace
from typing import Literal

from msi_engine.errors import ConfigError
from msi_engine.model.blas import Blas, find_blas, load_blas, site_of_mlx

Device = Literal["metal", "cuda", "cpu"]

INSTALL_ADVICE = (
    "no fast BLAS found, prefill will be about 30 times slower: "
    "pip install cmeel-openblas, or install the system's OpenBLAS (Debian: libopenblas0-pthread)"
)
_LATE_ADVICE = (
    "mlx.core was imported before the BLAS was loaded: call msi_engine.model.prepare_backend() "
    "before importing mlx"
)
_MAX_DEFAULT_THREADS = 8
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BackendReport:
    """What MLX will compute on.

    Attributes:
        device: Kind of device that MLX uses by default.
        blas: Description of the BLAS that was loaded; None if MLX's own is used.
        blas_source: ``system``, ``cmeel-openblas``, ``mkl`` or ``MSI_BLAS``; None as above.
        blas_path: The file that was loaded; None as above.
        threads: BLAS threads in use, where known.
        late: True if mlx.core had been imported before. The BLAS then serves only if no matrix
            product had been computed.
        advice: One line on what to do for speed, or None if all is well.
        tried: Why candidates were passed over, one line each.
    """

    device: Device
    blas: str | None = None
    blas_source: str | None = None
    blas_path: str | None = None
    threads: int | None = None
    late: bool = False
    advice: str | None = None
    tried: tuple[str, ...] = ()


def prepare_backend() -> BackendReport:
    """Load a real BLAS where MLX needs one. Call it before ``mlx.core`` is first imported.

    Does its work once; later calls return the same report with the threads now in use.

    Raises:
        ConfigError: If ``MSI_BLAS`` or ``MSI_BLAS_THREADS`` holds something that cannot be used.
    """
    report, blas = _prepare()
    return replace(report, threads=blas.threads) if blas else report


def set_blas_threads(count: int) -> None:
    """Let the BLAS use ``count`` threads from now on. Without an own BLAS it does nothing.

    One thread decodes best on a busy machine; more prefill faster.

    Raises:
        ConfigError: If ``count`` is less than 1.
    """
    if count < 1:
        raise ConfigError(f"BLAS threads must be at least 1, got {count}")
    blas = _prepare()[1]
    if blas is not None:
        blas.set_threads(count)


@functools.cache
def _prepare() -> tuple[BackendReport, Blas | None]:
    device = expected_device()
    override = os.environ.get("MSI_BLAS")
    if device != "cpu" or sys.platform != "linux" or override == "none":
        return BackendReport(device), None
    threads = _wanted_threads()
    late = "mlx.core" in sys.modules
    blas, tried = _chosen_blas(override) if override else find_blas()
    if blas is None:
        _log.warning(INSTALL_ADVICE)
        return BackendReport(device, late=late, advice=INSTALL_ADVICE, tried=tuple(tried)), None
    if threads is not None:
        blas.set_threads(threads)
    advice = _LATE_ADVICE if late else None
    if advice is not None:
        _log.warning(advice)
    report = BackendReport(
        device,
        blas=blas.description,
        blas_source=blas.source,
        blas_path=blas.path,
        late=late,
        advice=advice,
        tried=tuple(tried),
    )
    return report, blas


def _chosen_blas(path: str) -> tuple[Blas | None, list[str]]:
    try:
        return load_blas("MSI_BLAS", path), []
    except OSError as error:
        raise ConfigError(f"MSI_BLAS: {error}; give another path, or `none`") from None


def expected_device() -> Device:
    """The device that MLX will use by default, judged without importing it."""
    if sys.platform == "darwin":
        return "metal"
    site = site_of_mlx()
    # Its CUDA build comes as a distribution of its own, mlx-cuda-12 or the like.
    return "cuda" if site and any(site.glob("mlx_cuda*.dist-info")) else "cpu"


def _wanted_threads() -> int | None:
    """Threads to set; None leaves it to the library's own environment variables."""
    text = os.environ.get("MSI_BLAS_THREADS")
    if text is not None:
        if not text.isascii() or not text.isdigit() or int(text) < 1:
            raise ConfigError(f"MSI_BLAS_THREADS must be a whole number from 1, got {text!r}")
        return int(text)
    if {"OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"} & os.environ.keys():
        return None
    return max(1, min(_MAX_DEFAULT_THREADS, len(os.sched_getaffinity(0)) // 2))
