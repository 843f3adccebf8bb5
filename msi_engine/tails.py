"""Tails: what the cache holds of a segment's paths, kept in step with the paths themselves."""

from __future__ import annotations

from collections.abc import Sequence

from msi_engine.feed import Branch, CacheOp, Drop, Fork, Merge, Park
from msi_engine.path import PathState, PathStatus


class Tails:
    """The cache's view of one segment; turns changes of the paths into cache operations.

    A single path needs no tail, unless it may have to be taken back: it runs on the prefix.

    Args:
        num_paths: Paths that were spawned.
        revocable: True if tokens may be taken back before they are committed.
    """

    def __init__(self, num_paths: int, *, revocable: bool = False) -> None:
        forked = num_paths > 1 or revocable
        self._held = set(range(num_paths)) if forked else set()
        self._parked: set[int] = set()
        self._revocable = revocable
        self._ops: list[CacheOp] = [Fork(num_paths)] if forked else []

    @property
    def forked(self) -> bool:
        """True while paths have tails of their own."""
        return bool(self._held)

    def follow(self, paths: Sequence[PathState]) -> None:
        """Drop and park the tails of paths that have been dropped or wait."""
        if not self.forked:
            return
        for path in paths:
            if path.status is PathStatus.DROPPED:
                self._drop(path.index)
            elif path.status is PathStatus.WAITING:
                self._park(path.index)
        if (
            len(self._held) == 1 and not self._revocable
        ):  # the only one left may as well run straight on the prefix
            self.merge(min(self._held))

    def branch(self, keep: int) -> None:
        """Start an empty tail beside path ``keep``, and forget the rest."""
        for path in sorted(self._held - {keep}):
            self._drop(path)
        self._park(keep)
        self._ops.append(Branch())

    def merge(self, path: int, length: int | None = None) -> None:
        """Make a path's tail, or its first ``length`` tokens, prefix, if it has one."""
        if self.forked:
            self._ops.append(Merge(path, length))
            self._held = set()

    def take_ops(self) -> tuple[CacheOp, ...]:
        """The operations since the last call."""
        ops, self._ops = tuple(self._ops), []
        return ops

    def _drop(self, path: int) -> None:
        if path in self._held:
            self._held.discard(path)
            self._ops.append(Drop(path))

    def _park(self, path: int) -> None:
        if path not in self._parked:
            self._parked.add(path)
            self._ops.append(Park(path))
