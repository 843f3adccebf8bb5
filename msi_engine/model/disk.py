"""Tell a full disk from other failures."""

from __future__ import annotations

import errno

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# What libraries that keep no error number say; the second is MLX's.
_SAYINGS = ("No space left", "[write] Unable to write")


def is_disk_full(error: BaseException | None) -> bool:
    """True if an error, or one that it came from, says that the disk or a quota is full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        if any(saying in str(error) for saying in _SAYINGS):
            return True
        error = error.__cause__ or error.__context__
    return False
