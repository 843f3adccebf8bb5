"""Closing objects: a schema that names properties gets these and no others.

JSON Schema leaves an object open unless ``additionalProperties`` says otherwise, and a small model
that may add properties does so without end. Objects are closed only where that takes answers away
and never adds one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msi_engine.grammar.subschemas import Schema, rebuilt, subschemas

_ALTERNATIVES = ("anyOf", "oneOf", "$ref")
_OF_OBJECTS = ("properties", "required", "patternProperties", "additionalProperties")


def closed(schema: Schema) -> dict[str, Any]:
    """A copy with ``additionalProperties: false`` where an object says nothing about it.

    A schema that joins objects (``allOf``, or properties beside ``anyOf``, ``oneOf`` or ``$ref``)
    is copied as it is: what closes one of them would shut out the properties of the others.
    """
    if any(_joins(part) for part in subschemas(schema)):
        return dict(schema)
    return rebuilt(schema, _close)


def _joins(schema: Schema) -> bool:
    alternatives = sum(key in schema for key in _ALTERNATIVES)
    of_objects = any(key in schema for key in _OF_OBJECTS)
    return "allOf" in schema or alternatives > 1 or (alternatives == 1 and of_objects)


def _close(schema: dict[str, Any]) -> dict[str, Any]:
    names = schema.get("properties")
    says = "additionalProperties" in schema or "patternProperties" in schema
    required = schema.get("required")
    needed = set(required) if isinstance(required, list) else set()
    if says or not isinstance(names, Mapping) or not needed <= set(names):
        return schema
    return {**schema, "additionalProperties": False}
