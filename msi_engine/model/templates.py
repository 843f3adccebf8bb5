"""What can be told of a model's chat template from its folder, without loading a tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msi_engine.errors import ConfigError, MSIError
from msi_engine.model.resolve import resolve


def refuse_without_tools(name: str | None) -> None:
    """Refuse a model that is on this machine and cannot call tools. Loads nothing.

    Args:
        name: As `msi_engine.Engine.load` takes it.

    Raises:
        ConfigError: If that is certain. If not, the first call finds out.
    """
    try:
        resolved = resolve(name)
    except MSIError:  # the call that uses the model will say so
        return
    reason = None if resolved.path is None else why_no_tools_in(resolved.path)
    if reason:
        raise ConfigError(f"model {resolved.name!r} cannot call tools: {reason}")


def why_no_tools_in(folder: Path) -> str | None:
    """Why the model of a folder certainly cannot call tools; None if that is not certain.

    Args:
        folder: In MLX format. What cannot be read in it tells nothing.
    """
    config = _json(folder / "tokenizer_config.json")
    if config.get("chat_template_type"):  # a template in Python, within mlx-lm
        return None
    templates = list(_templates(folder, config))
    if not templates or any("tools" in template for template in templates):
        return None
    return "its chat template has no tools; use a model that has"


def _templates(folder: Path, config: dict[str, Any]) -> Iterator[str]:
    for value in (config, _json(folder / "chat_template.json")):
        found = value.get("chat_template")
        if isinstance(found, str):
            yield found
        elif isinstance(found, list):  # several, by name
            yield from (str(item.get("template")) for item in found if isinstance(item, dict))
    for path in (folder / "chat_template.jinja", *folder.glob("additional_chat_templates/*.jinja")):
        if path.is_file():
            yield path.read_text(encoding="utf-8", errors="replace")


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
