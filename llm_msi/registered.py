"""The aliases of the pulled models, for registration: one small file read, nothing imported."""

from __future__ import annotations


def aliases() -> list[str]:
    """Aliases in the order of pulling; empty if nothing has been pulled."""
    return []
