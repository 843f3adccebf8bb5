"""Views of paths for tests of scorers."""

from __future__ import annotations

from msi_engine import PathView


def view(segment="", *, committed="", others=(), tokens=()):
    return PathView(0, "prompt", committed, segment, tuple(tokens), -1.0, False, tuple(others))
