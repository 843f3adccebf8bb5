"""Reads tensors out of safetensors files, again and again, and notices if a file changes.

By plain reads and not through a memory map: a map of a file that is cut short kills the process
with SIGBUS, and what is read through one cannot be told from what was there at first. A read that
comes back short is an error that can be reported, and the pages that are read ahead do not count
as the process's own.

Knows nothing of models or MLX.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import numpy as np

from msi_engine.errors import ModelFileError
from msi_engine.model.tensors import Place

Raw = np.ndarray  # unsigned integers as wide as the tensor's entries, in its shape

_MOST = 1 << 30  # bytes in one read; systems bound it somewhere above


class TensorReader:
    """Tensors of one model folder, read when asked for or one batch ahead on a helper thread.

    Not for use from several threads at once.
    """

    def __init__(self, places: Mapping[str, Place]) -> None:
        """Open the files.

        Args:
            places: Where the tensors lie, by name.

        Raises:
            ModelFileError: If a file cannot be opened.
        """
        self._places = dict(places)
        self._files = {path: _File(path) for path in {p.path for p in places.values()}}
        self._helper = ThreadPoolExecutor(1, thread_name_prefix="msi-read-ahead")
        self._ahead: tuple[tuple[str, ...], Future[dict[str, Raw]]] | None = None

    def read(self, names: Sequence[str]) -> dict[str, Raw]:
        """Tensors by name; those that were read ahead are handed over.

        Raises:
            ModelFileError: If a file has been cut short or changed since it was opened.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            wanted, future = ahead
            if wanted == tuple(names):
                return future.result()
            future.cancel()
        return self._read(names)

    def read_ahead(self, names: Sequence[str]) -> None:
        """Begin to read the tensors that the next `read` will ask for."""
        self.forget()
        self._ahead = (tuple(names), self._helper.submit(self._read, tuple(names)))

    def forget(self) -> None:
        """Give up what is being read ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead[1].cancel()

    def read_rows(self, name: str, rows: Sequence[int]) -> Raw:
        """Some rows of a tensor of two or more dimensions, in the order asked for.

        Raises:
            ModelFileError: If a file has been cut short or changed since it was opened.
        """
        place = self._places[name]
        width = place.nbytes // place.shape[0]
        found = np.empty((len(rows), *place.shape[1:]), _entry(place))
        file = self._files[place.path]
        for i, row in enumerate(rows):
            file.read_into(found[i], place.offset + row * width)
        file.check()
        return found

    def _read(self, names: Sequence[str]) -> dict[str, Raw]:
        found = {}
        for name in names:
            place = self._places[name]
            found[name] = np.empty(place.shape, _entry(place))
            self._files[place.path].read_into(found[name], place.offset)
        for path in {self._places[name].path for name in names}:
            self._files[path].check()
        return found


class _File:
    """An open file that must stay what it was."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file: BinaryIO = path.open("rb", buffering=0)
            self._was = self._state()
        except OSError as error:
            raise ModelFileError(f"{path} cannot be read: {error.strerror}") from error

    def read_into(self, array: np.ndarray, offset: int) -> None:
        """Fill an array with the bytes at ``offset``."""
        view = memoryview(array.reshape(-1).view(np.uint8).data)
        done = 0
        while done < len(view):
            piece = view[done : done + _MOST]
            try:
                count = os.preadv(self._file.fileno(), [piece], offset + done)
            except OSError as error:
                raise ModelFileError(f"{self._path} cannot be read: {error.strerror}") from error
            if count == 0:
                self.check()
                raise ModelFileError(f"{self._path} ends too soon; fetch the model again")
            done += count

    def check(self) -> None:
        """Make sure that what has been read is what was there when it was opened."""
        now = self._state()
        if now != self._was:
            raise ModelFileError(
                f"{self._path} was changed while it was in use (it had {self._was[0]} bytes and "
                f"has {now[0]}); let it be, and load the model again"
            )

    def _state(self) -> tuple[int, int]:
        found = os.fstat(self._file.fileno())
        return found.st_size, found.st_mtime_ns


def _entry(place: Place) -> str:
    """The NumPy type of an entry's bytes."""
    return f"u{place.nbytes // place.size}" if place.size else "u1"
