"""A JSON schema as a constraint: checked, closed, and turned into a grammar of llguidance's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msi_engine.errors import ConfigError
from msi_engine.grammar.closing import closed
from msi_engine.grammar.normal import normal
from msi_engine.grammar.subschemas import Schema, subschemas

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

# One spacing, that of `json.dumps`: white space can never go on without end, and no two paths
# differ in nothing else. Without \u escapes a name has one spelling, so that a property of the
# schema cannot come in again under a free name. The schema itself may change none of this.
_SPELLING: JsonCompileOptions = {
    "item_separator": ", ",
    "key_separator": ": ",
    "whitespace_flexible": False,
    "json_allowed_escapes": 'nrbtf\\"',
    "coerce_one_of": False,
    "lenient": False,
}


class JsonSchema:
    """A constraint on an answer: it is one JSON value that a schema describes, and ends there.

    Draft 2020-12 is read, and older drafts where they agree with it; docs/decoder.md says which
    keywords. Properties come in the order of the schema, and an object that names properties
    without a word on ``additionalProperties`` has no others.

    Args:
        schema: The schema, plain JSON.

    Attributes:
        schema: The schema as given.
        grammar: The same as a grammar, text that llguidance reads.

    Raises:
        ConfigError: If it is no schema, nothing can satisfy it, or it uses a keyword that cannot
            be held to; the message names the keyword.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        if not isinstance(schema, Mapping):
            raise ConfigError(f"a JSON schema must be a JSON object, got {schema!r}")
        self.schema = dict(schema)
        try:
            self.grammar = _grammar(_plain(schema))
        except RecursionError:
            raise ConfigError(
                "the JSON schema cannot be held to: it is nested too deeply"
            ) from None

    @property
    def text(self) -> str:
        """The schema on one line."""
        return json.dumps(self.schema, ensure_ascii=False)

    def __repr__(self) -> str:
        return f"JsonSchema({self.schema!r})"


def _plain(schema: Schema) -> dict[str, Any]:
    """The schema as JSON would bring it: lists and strings for keys, whatever stood for them.

    Raises:
        ConfigError: If it is not plain JSON.
    """
    try:
        text = json.dumps(schema, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError) as error:  # half a character, NaN, a set, a loop
        raise ConfigError(
            f"the JSON schema cannot be held to: it is not plain JSON: {error}"
        ) from None
    plain: dict[str, Any] = json.loads(text)
    return plain


def _grammar(schema: Schema) -> str:
    """The grammar of a schema, its objects closed.

    Raises:
        ConfigError: If it cannot be held to.
    """
    _check_names_can_be_counted(schema)
    _check_exclusive_bounds(schema)
    asked = normal(schema)
    grammar, problem = _compile(asked)
    if problem:
        raise ConfigError(f"the JSON schema cannot be held to: {_explained(problem)}")
    # Closed after it has compiled as given: that the branches of a `oneOf` exclude each other
    # has to be shown of the schema that was asked for.
    narrow, problem = _compile(closed(asked))
    return grammar if problem else narrow


def _compile(schema: Schema) -> tuple[str, str]:
    """The schema's grammar, and what is wrong with it, if anything."""
    from llguidance import LLMatcher  # a compiled library, not wanted before a schema is

    try:
        grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=_SPELLING)
    except ValueError as error:  # the library's reader has bounds that Python's has not
        return "", str(error)
    _, messages = LLMatcher.validate_grammar_with_warnings(grammar)
    return grammar, " ".join(messages)


def _explained(problem: str) -> str:
    """The library's message on one line, without what cannot be done about it here."""
    line = " ".join(problem.split())
    if line.startswith("Unimplemented keys: "):
        names = ", ".join(json.loads(line.removeprefix("Unimplemented keys: ")))
        return f"keyword {names} is not supported; leave it out"
    if line.startswith("oneOf "):
        return "the branches of `oneOf` may overlap, which is not supported; use `anyOf`"
    if line.startswith("Unknown format: "):
        name = line.removeprefix("Unknown format: ")
        return f"format {name!r} is not supported; leave `format` out or use `pattern`"
    if line.startswith("regex parse error"):
        return f"`pattern` is not supported ({line.removeprefix('regex parse error: ')})"
    return line


def _check_names_can_be_counted(schema: Schema) -> None:
    """Refuse to count names that may repeat: the grammar does not keep free names distinct."""
    for part in subschemas(schema):
        least, required = part.get("minProperties", 0), part.get("required")
        named = len(required) if isinstance(required, list) else 0
        if isinstance(least, int) and least > max(1, named):
            raise ConfigError(
                f"the JSON schema cannot be held to: keyword minProperties = {least} is supported "
                f"up to 1 or the number of `required` names; name more of them"
            )


def _check_exclusive_bounds(schema: Schema) -> None:
    """Refuse ``exclusiveMinimum: true`` without a ``minimum``, which the grammar passes over.

    Beside its bound it is held to, as draft 4 has it.
    """
    for part in subschemas(schema):
        for bound in ("minimum", "maximum"):
            keyword = f"exclusive{bound.capitalize()}"
            if part.get(keyword) is True and bound not in part:
                raise ConfigError(
                    f"the JSON schema cannot be held to: keyword {keyword} is true and there is no "
                    f"{bound} beside it; make it a number"
                )
