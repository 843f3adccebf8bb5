"""`llm`'s schemas: what `--schema` and `schema=` hold an answer to, and whether it came to that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from msi_engine import JsonSchema
from msi_engine.errors import ConfigError

if TYPE_CHECKING:
    import llm


def constraint_of(prompt: llm.Prompt) -> JsonSchema | None:
    """The schema of a prompt as a constraint; None if it has none.

    Raises:
        ConfigError: If it cannot be held to, or citations would be written into the JSON.
    """
    if prompt.schema is None:
        return None
    if dict(prompt.options).get("cite"):
        raise ConfigError("cite cannot write into JSON; leave out cite or the schema")
    return JsonSchema(cast("dict[str, Any]", prompt.schema))  # of a class, `llm` has made one


def is_whole(text: str) -> bool:
    """Whether an answer that was cut off is JSON all the same."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
