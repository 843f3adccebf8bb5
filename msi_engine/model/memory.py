"""How much memory is free for weights.

``MSI_FREE_MEMORY`` overrides it: a number of bytes.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from msi_engine.errors import ConfigError

_CGROUP = Path("/sys/fs/cgroup")


def free_memory() -> int | None:
    """Bytes that this process may still take; None if nothing tells.

    The least of what the machine has, what the process's limits leave, and what a container's
    leave. On a GPU it is the device's memory.

    Raises:
        ConfigError: If ``MSI_FREE_MEMORY`` is no number of bytes.
    """
    setting = os.environ.get("MSI_FREE_MEMORY")
    if setting is not None:
        if not (setting.isascii() and setting.isdigit()):
            raise ConfigError(f"MSI_FREE_MEMORY must be a number of bytes, got {setting!r}")
        return int(setting)
    device = _device_memory()
    if device is not None:
        return device
    return min(_host_memory(), default=None)


def _device_memory() -> int | None:
    """Of a GPU; None on a CPU."""
    import mlx.core as mx

    if mx.default_device() == mx.cpu:
        return None
    info = mx.device_info()
    if "free_memory" in info:
        return int(info["free_memory"])
    most = info.get("max_recommended_working_set_size", info.get("total_memory"))
    return None if most is None else max(0, int(most) - mx.get_active_memory())


def _host_memory() -> Iterator[int]:
    looks: tuple[Callable[[], Iterator[int]], ...] = (_machine, _limits, _container)
    for look in looks:
        # What cannot be read limits nothing that we know of.
        with contextlib.suppress(OSError, ValueError, LookupError):
            yield from look()


def _machine() -> Iterator[int]:
    if sys.platform == "linux":
        fields = _fields(Path("/proc/meminfo"))
        yield fields["MemAvailable:"] * 1024
    else:
        yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _limits() -> Iterator[int]:
    import resource

    fields = _fields(Path("/proc/self/status"))
    for limit, used in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY:
            yield max(0, most - fields[used] * 1024)


def _container() -> Iterator[int]:
    most = int((_CGROUP / "memory.max").read_text())  # the word "max" if there is no limit
    used = int((_CGROUP / "memory.current").read_text())
    # Pages of files that can be dropped at once are no use of memory.
    yield max(0, most - used + _fields(_CGROUP / "memory.stat")["inactive_file"])


def _fields(path: Path) -> dict[str, int]:
    """First word of each line to the number behind it."""
    rows = (line.split() for line in path.read_text().splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
