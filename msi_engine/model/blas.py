"""Find a real BLAS on this machine and load it for the whole process.

MLX's CPU build for Linux brings the reference BLAS, thirty times slower at prefill than a tuned
one. Symbols of a library loaded with ``RTLD_GLOBAL`` come before those of MLX's own, so loading
another one first replaces it. Knows nothing of MLX beyond the libraries that its wheel bundles.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from msi_engine.model.elf import with_soname
from msi_engine.model.home import home

_SET_THREADS = ("openblas_set_num_threads", "MKL_Set_Num_Threads")
_GET_THREADS = ("openblas_get_num_threads", "MKL_Get_Max_Threads")


@dataclass(frozen=True, slots=True)
class Blas:
    """A BLAS that has been loaded for the whole process.

    Attributes:
        source: ``system``, ``cmeel-openblas``, ``mkl`` or ``MSI_BLAS``.
        path: The file, or the name that the system's loader resolved.
        library: Its handle.
    """

    source: str
    path: str
    library: ctypes.CDLL

    @property
    def description(self) -> str:
        """What the library says about itself, or its file name."""
        try:
            config = self.library.openblas_get_config
        except AttributeError:
            return Path(self.path).name
        config.restype = ctypes.c_char_p
        return str(config().decode("ascii", "replace")).strip()

    @property
    def threads(self) -> int | None:
        """Threads that it uses, or None if it does not say."""
        function = _first_function(self.library, _GET_THREADS)
        return int(function()) if function else None

    def set_threads(self, count: int) -> bool:
        """Use ``count`` threads from now on; False if this library cannot be told."""
        function = _first_function(self.library, _SET_THREADS)
        if function:
            function(ctypes.c_int(count))
        return function is not None


def find_blas() -> tuple[Blas | None, list[str]]:
    """Load the first BLAS there is: the system's OpenBLAS, the wheel's, MKL.

    Returns:
        The library, or None; and why each candidate before it was passed over.
    """
    tried: list[str] = []
    for source, open_it in _SOURCES:
        try:
            for path in open_it():
                return load_blas(source, path), tried
        except OSError as error:
            tried.append(f"{source}: {error}")
    return None, tried


def load_blas(source: str, path: str) -> Blas:
    """Load one library for the whole process.

    Raises:
        OSError: If it cannot be loaded or has no ``cblas_sgemm``.
    """
    library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    if not hasattr(library, "cblas_sgemm"):
        raise OSError(f"{path} has no cblas_sgemm")
    return Blas(source, path, library)


def _system() -> Iterator[str]:
    yield "libopenblas.so.0"


def _cmeel() -> Iterator[str]:
    path = _in_distribution("cmeel-openblas", "cmeel.prefix/lib/libopenblas.so.0")
    if path is None:
        raise OSError("package cmeel-openblas is not installed")
    try:
        ctypes.CDLL("libgfortran.so.5", mode=ctypes.RTLD_GLOBAL)
    except OSError:
        load_bundled_gfortran()
    yield str(path)


def _mkl() -> Iterator[str]:
    for folder in dict.fromkeys([sys.prefix, sys.base_prefix]):
        yield from map(str, sorted(Path(folder, "lib").glob("libmkl_rt.so.*"), reverse=True))
    yield "libmkl_rt.so.2"


_SOURCES: tuple[tuple[str, Callable[[], Iterator[str]]], ...] = (
    ("system", _system),
    ("cmeel-openblas", _cmeel),
    ("mkl", _mkl),
)


def load_bundled_gfortran() -> None:
    """Load the Fortran runtime that MLX's wheel bundles, under the name others ask for.

    The wheel renames its copy, so that a library which needs ``libgfortran.so.5`` does not find
    it. A copy with that soname satisfies the loader without root. It is kept in MSI's home folder,
    or made anew each time where that cannot be written.

    Raises:
        OSError: If the wheel bundles none, or it cannot be copied or loaded.
    """
    site = site_of_mlx()
    fortran = next(site.glob("mlx_cpu.libs/libgfortran-*.so.5*"), None) if site else None
    if fortran is None:
        raise OSError("libgfortran.so.5 is not installed and MLX's wheel bundles none")
    for quadmath in fortran.parent.glob("libquadmath-*"):
        ctypes.CDLL(str(quadmath), mode=ctypes.RTLD_GLOBAL)
    try:
        # The wheel's file name carries a hash of the content: another wheel gets another folder.
        _load_renamed(fortran, home() / "lib" / fortran.name.split(".")[0])
    except OSError:
        with tempfile.TemporaryDirectory() as folder:
            _load_renamed(fortran, Path(folder))


def _load_renamed(fortran: Path, folder: Path) -> None:
    copy = folder / "libgfortran.so.5"
    if not copy.exists() or copy.stat().st_size != fortran.stat().st_size:
        try:
            image = with_soname(fortran.read_bytes(), copy.name)
        except ValueError as error:
            raise OSError(f"{fortran}: {error}") from None
        _write_whole(copy, image)
    ctypes.CDLL(str(copy), mode=ctypes.RTLD_GLOBAL)


def site_of_mlx() -> Path | None:
    """The folder that MLX is installed in, found without importing it."""
    spec = importlib.util.find_spec("mlx")
    packages = (spec.submodule_search_locations or []) if spec else []
    return next((Path(p).parent for p in packages), None)


def _in_distribution(name: str, relative: str) -> Path | None:
    try:
        path = Path(str(importlib.metadata.distribution(name).locate_file(relative)))
    except importlib.metadata.PackageNotFoundError:
        return None
    return path if path.exists() else None


def _write_whole(path: Path, data: bytes) -> None:
    """Write a file so that nobody ever sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _first_function(library: ctypes.CDLL, names: tuple[str, ...]) -> Callable[..., int] | None:
    return next((getattr(library, n) for n in names if hasattr(library, n)), None)
