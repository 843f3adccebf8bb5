"""The normal form of a JSON schema: the same answers, said so that the grammar library reads it."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import unquote

from msi_engine.grammar.subschemas import Schema, rebuilt


def normal(schema: Schema) -> dict[str, Any]:
    """A copy without ``uniqueItems: false``, and with each ``oneOf`` in a form that can be read.

    The first asks for nothing and is often generated. Branches that are references hide that they
    exclude each other. If one property tells them apart, as in a discriminated union of pydantic's,
    the ``oneOf`` becomes an ``anyOf``, which may go on within itself; else they are written out.
    """
    return rebuilt(schema, partial(_changed, schema))


def _changed(root: Schema, schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("uniqueItems") is False:
        del schema["uniqueItems"]
    if isinstance(schema.get("oneOf"), list):
        branches = [_written_out(root, branch) for branch in schema["oneOf"]]
        if "anyOf" not in schema and _are_told_apart(branches):
            schema["anyOf"] = schema.pop("oneOf")
            schema.pop("discriminator", None)  # OpenAPI's, asks for nothing; in the way of a circle
        else:
            schema["oneOf"] = branches
    return schema


def _are_told_apart(branches: list[Any]) -> bool:
    """Whether a required property has a value of its own in each branch."""
    tags = [_tags(branch) for branch in branches]
    shared = set(tags[0]).intersection(*tags[1:]) if tags else set()
    return any(
        len(set().union(*(tag[name] for tag in tags))) == sum(len(tag[name]) for tag in tags)
        for name in shared
    )


def _tags(branch: Any) -> dict[str, set[str]]:
    """The required properties of an object that have one of certain strings, with these."""
    if not isinstance(branch, dict) or branch.get("type") != "object":
        return {}
    required, properties = branch.get("required"), branch.get("properties")
    if not isinstance(required, list) or not isinstance(properties, dict):
        return {}
    tags = {}
    for name in filter(properties.__contains__, map(str, required)):
        given = properties[name] if isinstance(properties[name], dict) else {}
        values = [given["const"]] if "const" in given else given.get("enum")
        if isinstance(values, list) and all(isinstance(value, str) for value in values):
            tags[name] = set(values)
    return tags


def _written_out(root: Schema, branch: Any) -> Any:
    """What a branch refers to, if it is a reference into this schema and nothing else."""
    if not isinstance(branch, dict) or list(branch) != ["$ref"]:
        return branch
    target: Any = root
    for part in str(branch["$ref"]).removeprefix("#/").split("/"):
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        target = target.get(name) if isinstance(target, dict) else None
    return branch if target is None else target
