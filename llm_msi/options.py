"""The `-o` options of `llm -m msi`, derived from `DecodeConfig`; nothing is written twice.

Every default is None, meaning "not given": `llm` would otherwise take the default for the user's
word and let it override a stored model option. The real defaults are in the descriptions and are
applied when the generation starts.
"""

from __future__ import annotations

import difflib
import json
import re
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal

import click
import llm
from pydantic import (
    Field,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
    field_validator,
)
from pydantic.fields import FieldInfo

from msi_engine.config import PRESETS, DecodeConfig, one_line

# The beginning of a JSON list of strings, or an empty one: `[END]`, `[1]`, `[ab]*.md` are none.
_JSON_LIST = re.compile(r'\s*\[\s*("|\]\s*$)')

OFF = "off"  # what stands for None in an option that may be None: there, None is "not given"


class OptionError(click.ClickException, ValueError):
    """An option that cannot be: one line at the terminal, a ValueError in Python."""


class MSIOptions(llm.Options):
    """What the options have beside their fields: parsing of strings and one-line errors."""

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise OptionError(one_line(error) + _did_you_mean(values)) from None

    @field_validator("*", mode="before")
    @classmethod
    def _from_text(cls, value: Any, info: ValidationInfo) -> Any:
        # `llm` validates twice, the second time with what the first made: only strings are parsed.
        name = info.field_name or ""
        if not isinstance(value, str):
            return value
        if name in CAN_BE_OFF and value.strip().lower() in (OFF, "none"):
            return OFF
        parse = PARSERS.get(name)
        return parse(value) if parse is not None else value


def decode_config(options: llm.Options) -> DecodeConfig:
    """The engine's options: the preset's, with what was given over them.

    Raises:
        msi_engine.errors.ConfigError: If the combination cannot be.
    """
    given = {name: value for name, value in options if value is not None}
    given |= {name: None for name in CAN_BE_OFF if given.get(name) == OFF}
    for name in SURFACE:
        given.pop(name, None)
    return DecodeConfig.preset(given.pop("preset", "default"), **given)


def wants_trace(options: llm.Options) -> bool:
    """Whether the collapses are to be shown on the reasoning channel."""
    return bool(dict(options).get("trace"))


def describe(info: FieldInfo) -> str:
    """The field's description followed by its default, bounds or allowed values."""
    facts = [f"default {show(info.get_default(call_default_factory=True))}"]
    choices = choices_of(info.annotation)
    if choices:
        facts.append("one of " + ", ".join(str(choice) for choice in choices))
    facts += [text for text in [bounds(info)] if text]
    if can_be_off(info):
        facts.append(f"or {OFF}")
    return f"{info.description} ({'; '.join(facts)})"


def bounds(info: FieldInfo) -> str:
    """The field's numeric bounds in words, such as ``1 to 64``; empty if it has none."""
    limit: dict[str, Any] = {}
    for item in info.metadata:
        limit |= {
            name: getattr(item, name) for name in ("ge", "gt", "le", "lt") if hasattr(item, name)
        }
    low = limit.get("ge", limit.get("gt"))
    high = limit.get("le", limit["lt"] - 1 if "lt" in limit else None)
    if low is None:
        return "" if high is None else f"at most {high}"
    start = f"above {low}" if "gt" in limit else str(low)
    if high is None:
        return f"{low} or more" if "ge" in limit else start
    return f"{start} to {high}"


def choices_of(annotation: Any) -> tuple[Any, ...]:
    """The values of a `Literal` anywhere in the annotation; empty if there is none."""
    if typing.get_origin(annotation) is Literal:
        return typing.get_args(annotation)
    return tuple(choice for part in typing.get_args(annotation) for choice in choices_of(part))


def can_be_off(info: FieldInfo) -> bool:
    """Whether the field may be None, which a user writes as ``off`` (or ``none``)."""
    return type(None) in typing.get_args(info.annotation)


def show(value: Any) -> str:
    """A default as the user would type it."""
    if value is None:
        return "unset"
    if isinstance(value, (tuple, list)):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return json.dumps(value, default=str) if value else "none"
    return str(value)


def _did_you_mean(values: dict[str, Any]) -> str:
    for name in values:
        if name not in Options.model_fields:
            near = difflib.get_close_matches(name, Options.model_fields, n=1)
            return f"; did you mean {near[0]!r}?" if near else "; see `llm models --options -m msi`"
    return ""


def _json(text: str) -> Any:
    try:
        return json.loads(text.strip())
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON ({error.msg} at character {error.pos + 1})") from None


def _strings(text: str) -> Any:
    """A comma-separated list, or a JSON list."""
    if _JSON_LIST.match(text):
        return _json(text)
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _stops(text: str) -> Any:
    """One string, taken as it is, or a JSON list of strings."""
    return _json(text) if _JSON_LIST.match(text) else (text,)


def _weights(text: str) -> Any:
    """``name=number`` pairs separated by commas (the number defaults to 1), or a JSON object."""
    if text.lstrip().startswith("{"):
        return _json(text)
    pairs = (part.partition("=") for part in text.split(",") if part.strip())
    return {name.strip(): weight.strip() if mark else 1.0 for name, mark, weight in pairs}


def _integer(text: str) -> Any:
    """An integer where there is one: a `Literal` of integers does not take strings."""
    return int(text) if text.strip().isdigit() else text


def _parser(name: str, info: FieldInfo) -> Callable[[str], Any] | None:
    if name == "stop":
        return _stops
    kinds = [info.annotation, *typing.get_args(info.annotation)]
    for kind in kinds:
        if typing.get_origin(kind) is tuple:
            return _strings
        if typing.get_origin(kind) is dict:
            nested = typing.get_origin(typing.get_args(kind)[1]) is dict
            return _json if nested else _weights
    choices = choices_of(info.annotation)
    return _integer if choices and all(isinstance(c, int) for c in choices) else None


def _optional(info: FieldInfo) -> Any:
    """The field's type with its bounds, or None."""
    kind: Any = info.annotation
    if info.metadata:
        kind = Annotated[(kind, *info.metadata)]
    if can_be_off(
        info
    ):  # `llm` logs and stores what is here, and reads it back: None would be lost
        kind = Annotated[kind, WrapValidator(_pass_off), PlainSerializer(lambda value: value)]
    return kind | None


def _pass_off(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    return value if value == OFF else validate(value)


CAN_BE_OFF = frozenset(name for name, info in DecodeConfig.model_fields.items() if can_be_off(info))


PARSERS: dict[str, Callable[[str], Any]] = {
    name: parse
    for name, info in DecodeConfig.model_fields.items()
    if (parse := _parser(name, info)) is not None
}

PARSERS["docs"] = _strings

# What the engine does not know: these never reach `DecodeConfig`.
SURFACE: dict[str, Any] = {
    "docs": (
        tuple[str, ...] | None,
        Field(
            None,
            description="Documents to answer from: files, folders or patterns, comma-separated "
            "(default none; txt, md, html, pdf)",
        ),
    ),
    "collection": (
        str | None,
        Field(
            None,
            min_length=1,
            description="Embedding collection of `llm` to answer from (default none)",
        ),
    ),
    "chunks": (
        int | None,
        Field(None, ge=1, le=100, description="Passages that are retrieved (default 4; 1 to 100)"),
    ),
    "rag_prompt": (
        bool | None,
        Field(None, description="Put retrieved passages into the prompt (default true)"),
    ),
    "cite": (
        bool | None,
        Field(None, description="End sentences with the number of their source (default false)"),
    ),
    "embedder": (
        str | None,
        Field(
            None,
            min_length=1,
            description="Embedding model: a sentence-transformers name or folder, onnx: before "
            "it for its ONNX form, or llm:NAME (default all-MiniLM-L6-v2)",
        ),
    ),
    "trace": (
        bool | None,
        Field(None, description="Show every collapse and its paths as reasoning (default false)"),
    ),
}

_FIELDS: dict[str, Any] = {
    "preset": (
        Literal[tuple(PRESETS)] | None,
        Field(
            None, description=f"Values to start from (default default; one of {', '.join(PRESETS)})"
        ),
    ),
    **{
        name: (_optional(info), Field(None, description=describe(info)))
        for name, info in DecodeConfig.model_fields.items()
    },
    **SURFACE,
}

Options: type[MSIOptions] = create_model("Options", __base__=MSIOptions, **_FIELDS)
