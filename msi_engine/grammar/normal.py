"""The normal form of a JSON schema: the same answers, said so that the grammar library reads it."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import unquote

from msi_engine.grammar.subschemas import Schema, rebuilt


def normal(schema: Schema) -> dict[str, Any]:
    """A copy without ``uniqueItems: false`` and with the branches of each ``oneOf`` written out.

    The first asks for nothing and is often generated. Branches that are references hide that they
    exclude each other; a discriminated union of pydantic's is such a ``oneOf``.
    """
    return rebuilt(schema, partial(_changed, schema))


def _changed(root: Schema, schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("uniqueItems") is False:
        del schema["uniqueItems"]
    if isinstance(schema.get("oneOf"), list):
        schema["oneOf"] = [_written_out(root, branch) for branch in schema["oneOf"]]
    return schema


def _written_out(root: Schema, branch: Any) -> Any:
    """What a branch refers to, if it is a reference into this schema and nothing else."""
    if not isinstance(branch, dict) or list(branch) != ["$ref"]:
        return branch
    target: Any = root
    for part in str(branch["$ref"]).removeprefix("#/").split("/"):
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        target = target.get(name) if isinstance(target, dict) else None
    return branch if target is None else target
