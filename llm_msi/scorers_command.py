"""What `llm msi scorers` says: every scorer with its provider, needs and options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from llm_msi.options import bounds, choices_of, show
from llm_msi.page import indented
from msi_engine.discovery import DISABLE, LOAD
from msi_engine.errors import ConfigError
from msi_engine.plugins import PluginStatus, find_scorers, offered_scorers, plugin_report

INDENT = 14


def scorers_found(names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Every registered scorer as plain JSON, or those of some names; all plugins are loaded.

    Raises:
        msi_engine.errors.ConfigError: If there is no scorer of a name.
    """
    found = [
        _scorer(name, description, status)
        for status in plugin_report()
        for name, description in status.scorers.items()
    ]
    if not names:
        return found
    find_scorers(names, {})
    return [scorer for name in names for scorer in found if scorer["name"] == name]


def plugins_left_out() -> list[dict[str, Any]]:
    """Every plugin that did not load, and why, as plain JSON."""
    return [
        {
            "provider": status.distribution,
            "version": status.version,
            "entry_point": status.entry_point,
            "problem": status.error or f"switched off by {LOAD} or {DISABLE}",
        }
        for status in plugin_report()
        if status.error is not None or not status.enabled
    ]


def _scorer(name: str, description: str, status: PluginStatus) -> dict[str, Any]:
    offered = offered_scorers().get(name)
    return {
        "name": name,
        "description": description,
        "provider": status.distribution,
        "version": status.version,
        "needs": list(offered.requires) if offered else [],
        "options": _options(offered.options) if offered else [],
        "problem": None if offered else _why_not(name),
    }


def _why_not(name: str) -> str:
    """Why a scorer that a plugin registered is not to be had."""
    try:
        find_scorers([name], {})
    except ConfigError as error:
        return str(error)
    return "another plugin has the name"


def _options(options: type[BaseModel] | None) -> list[dict[str, Any]]:
    if options is None:
        return []
    return [
        {
            "name": info.alias or name,
            "required": info.is_required(),
            "default": None if info.is_required() else _default(info),
            "values": " or ".join(map(str, choices_of(info.annotation))) or bounds(info),
            "description": info.description or "",
        }
        for name, info in options.model_fields.items()
    ]


def _default(info: FieldInfo) -> str:
    """A default as the user would type it; that of others' factories may not be known."""
    try:
        return show(info.get_default(call_default_factory=True))
    except Exception:  # a factory that looks at other fields, or fails
        return "computed"


def listing(scorers: Iterable[dict[str, Any]], left_out: Iterable[dict[str, Any]]) -> list[str]:
    """All scorers, options by name alone, then the plugins that did not load."""
    lines: list[str] = []
    for scorer in scorers:
        lines += _head(scorer)
        required = [o["name"] + " (required)" for o in scorer["options"] if o["required"]]
        others = [o["name"] for o in scorer["options"] if not o["required"]]
        if required or others:
            lines += indented("options: " + ", ".join(required + others), INDENT)
    if not lines:
        lines.append("No scorers.")
    for plugin in left_out:
        what = click.style(f"Not loaded: {plugin['provider']} {plugin['version']}", bold=True)
        lines += [what, *indented(f"({plugin['entry_point']}) {plugin['problem']}", INDENT)]
    use = indented("llm -m msi -o scorers NAME=WEIGHT,NAME=WEIGHT ...", INDENT, "To use some:")
    return [*lines, "", *use, *indented("llm msi scorers NAME", INDENT, "To see more:")]


def details(scorers: Iterable[dict[str, Any]]) -> list[str]:
    """Scorers with every option: default, values, meaning, and how to set one."""
    lines: list[str] = []
    for scorer in scorers:
        lines += ["", *_head(scorer)] if lines else _head(scorer)
        for option in scorer["options"]:
            lines += _option(option)
        if scorer["options"]:
            value = f'{{"{scorer["name"]}": {{"OPTION": "VALUE"}}}}'
            lines += indented(f"-o scorer_options '{value}'", 5, "  ->")
    return lines


def _head(scorer: dict[str, Any]) -> list[str]:
    """Name and purpose, then provider, needs and what is wrong."""
    name = scorer["name"]
    what, *more = indented(scorer["description"] or "(no description)", INDENT, name)
    facts = [f"{scorer['provider']} {scorer['version']}", "loaded"]
    if scorer["needs"]:
        facts.append("needs " + " and ".join(scorer["needs"]))
    if not scorer["options"]:
        facts.append("no options")
    lines = [click.style(name, bold=True) + what.removeprefix(name), *more]
    lines += indented("; ".join(facts), INDENT)
    if scorer["problem"]:
        lines += indented(f"cannot be used: {scorer['problem']}", INDENT)
    return lines


def _option(option: dict[str, Any]) -> list[str]:
    facts = ["required" if option["required"] else f"default {option['default']}"]
    facts += [option["values"]] if option["values"] else []
    text = f"{option['description']} ({'; '.join(facts)})"
    return indented(text, INDENT + 4, f"  {option['name']}")
