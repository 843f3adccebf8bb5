"""The names of the pulled models, for registration: one folder listed, nothing opened."""

from __future__ import annotations


def aliases() -> list[str]:
    """Names of the complete models in the store; empty if nothing has been pulled.

    Empty, too, if the store cannot be read: `llm` and its other models must go on working, and
    whoever uses ours is told then.
    """
    from msi_engine.model.home import home

    try:
        return sorted(path.parent.name for path in (home() / "models").glob("*/msi.json"))
    except OSError:
        return []
