"""What `llm msi doctor` says of the plugins that bring scorers and boundaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msi_engine.model import Check

if TYPE_CHECKING:
    from msi_engine.plugins import PluginStatus


def plugin_checks() -> list[Check]:
    """One check for each plugin that is installed; every plugin is loaded for it."""
    from msi_engine.plugins import plugin_report

    return [check_of(status) for status in plugin_report()]


def check_of(status: PluginStatus) -> Check:
    """The check of one plugin: a warning if it was skipped, since decoding goes on without it."""
    name = f"plugin {status.distribution}"
    if status.error is not None:
        advice = f"update it, or: pip uninstall {status.distribution}"
        return Check(name, "warn", f"{status.version} is skipped: {status.error}", advice)
    if not status.enabled:
        return Check(name, "ok", f"{status.version}, switched off by MSI's variables")
    offers = [
        f"{kind} {', '.join(names)}"
        for kind, names in (("scorers", status.scorers), ("boundaries", status.boundaries))
        if names
    ]
    return Check(name, "ok", "; ".join([status.version, *offers]))
