"""Walking a JSON schema: which parts of it are schemas, and which are only data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

_ONE = ("items", "additionalProperties")
_LISTS = ("items", "prefixItems", "anyOf", "oneOf", "allOf")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")


def subschemas(schema: Schema) -> Iterator[Schema]:
    """A schema and all schemas in it, outermost first. What ``$ref`` points to is not followed."""
    yield schema
    for key in _ONE:
        if isinstance(schema.get(key), Mapping):
            yield from subschemas(schema[key])
    for part in _listed(schema):
        if isinstance(part, Mapping):
            yield from subschemas(part)


def rebuilt(schema: Schema, change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """A copy with ``change`` applied to it and to every schema in it, innermost first."""
    copy = dict(schema)
    for key in _ONE:
        if isinstance(copy.get(key), Mapping):
            copy[key] = rebuilt(copy[key], change)
    for key in _LISTS:
        if isinstance(copy.get(key), list):
            copy[key] = [_rebuilt_if_schema(part, change) for part in copy[key]]
    for key in _MAPS:
        if isinstance(copy.get(key), Mapping):
            copy[key] = {name: _rebuilt_if_schema(part, change) for name, part in copy[key].items()}
    return change(copy)


def _listed(schema: Schema) -> Iterator[Any]:
    for key in _LISTS:
        if isinstance(schema.get(key), list):
            yield from schema[key]
    for key in _MAPS:
        if isinstance(schema.get(key), Mapping):
            yield from schema[key].values()


def _rebuilt_if_schema(part: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    return rebuilt(part, change) if isinstance(part, Mapping) else part
