"""Structured output: answers held to a schema at every token, and read as what it describes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Literal

from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.output_parsers import BaseCumulativeTransformOutputParser
from langchain_core.output_parsers.openai_tools import JsonOutputKeyToolsParser, PydanticToolsParser
from langchain_core.outputs import ChatGeneration, Generation
from langchain_core.runnables import Runnable, RunnableMap, RunnablePassthrough
from langchain_core.utils.function_calling import convert_to_json_schema
from langchain_core.utils.json import parse_partial_json
from langchain_core.utils.pydantic import is_basemodel_subclass

from langchain_msi.errors import translated
from langchain_msi.tools import Offer, tool_options
from msi_engine.errors import ConfigError
from msi_engine.grammar import JsonSchema

# The call option that bears a schema, in the form that OpenAI gave it.
FORMAT = "response_format"
Method = Literal["json_schema", "json_mode", "function_calling"]
_ANY_OBJECT = {"type": "object"}


class StructuredChatModel(BaseChatModel):
    """A chat model whose `with_structured_output` can give nothing that is not valid."""

    def with_structured_output(
        self,
        schema: dict[str, Any] | type,
        *,
        method: Method = "json_schema",
        include_raw: bool = False,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, Any]:
        """This model, held to a schema at every token, and a parser after it.

        The model is not told of the schema: what it should write, and why, is for the prompt.
        Strings and lists without an upper bound may fill ``max_tokens``; the parser then raises
        an error that says so, and never guesses the rest.

        Args:
            schema: A Pydantic class, a TypedDict, or a JSON schema.
            method: ``json_schema``; ``json_mode``, any JSON object, checked against the schema
                only when it is parsed; ``function_calling``, for models that call tools.
            include_raw: Give ``raw``, ``parsed`` and ``parsing_error`` and raise no parsing error.
            strict: Taken for LangChain's sake; the schema is always held to.
            **kwargs: Options of the calls, such as ``max_tokens``.

        Raises:
            ValueError: If the schema has a keyword that cannot be held to; it is named.
        """
        with translated():
            if method == "function_calling":
                options, parser = _by_tool(schema)
            else:
                options, parser = _by_format(schema, method)
        told = {"kwargs": {"method": method, "strict": strict}, "schema": schema}
        model = self.bind(**options, ls_structured_output_format=told, **kwargs)
        return with_raw(model, parser) if include_raw else model | parser


class SchemaParser(BaseCumulativeTransformOutputParser[Any]):
    """Reads an answer that was held to a schema. JSON that was cut off is an error.

    While an answer streams, it gives what a plain schema has so far; a Pydantic object comes when
    it is whole.

    Attributes:
        model_class: The Pydantic class to make; None for dictionaries.
    """

    model_class: Any = None

    def parse(self, text: str) -> Any:
        """The value of a whole answer.

        Raises:
            OutputParserException: If it is not JSON, or not what the class describes.
        """
        return self.parse_result([Generation(text=text)])

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        """The value of an answer, or of as much as there is.

        Raises:
            OutputParserException: If it was cut off, or is not what the class describes.
        """
        generation = result[0]
        ending = _ending(generation)
        if partial and ending is None:
            return self._so_far(generation.text)
        try:
            value = json.loads(generation.text)
        except ValueError as error:
            reason = _cut_off(ending) or f"the answer is not JSON: {error}"
            raise OutputParserException(reason, llm_output=generation.text) from None
        return value if self.model_class is None else self._made(value, generation.text)

    @property
    def _type(self) -> str:
        return "msi-schema"

    def _so_far(self, text: str) -> Any:
        if self.model_class is not None:
            return None
        try:
            return parse_partial_json(text)
        except ValueError:
            return None

    def _made(self, value: Any, text: str) -> Any:
        make = getattr(self.model_class, "model_validate", None) or self.model_class.parse_obj
        try:
            return make(value)
        except ValueError as error:  # a validator of the class, which no schema tells of
            raise OutputParserException(
                f"the answer fits the schema of {self.model_class.__name__} and not the class: "
                + " ".join(str(error).split()),
                llm_output=text,
            ) from error


def constraint_of(response_format: Any, offer: Offer | None = None) -> JsonSchema | None:
    """What a call holds its answer to; None if to nothing.

    Args:
        response_format: ``{"type": "json_schema", "json_schema": {"schema": ...}}``,
            ``{"type": "json_object"}``, ``{"type": "text"}`` or None.
        offer: The tools of the call.

    Raises:
        ConfigError: If it has another form, a schema that cannot be held to, or tools beside it.
    """
    match response_format:
        case None | {"type": "text"}:
            return None if offer is None else offer.constraint
        case _ if offer is not None:
            raise ConfigError(f"tools and `{FORMAT}` cannot be used in one call; leave one out")
        case {"type": "json_object"}:
            return JsonSchema(_ANY_OBJECT)
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            return JsonSchema(schema)
    raise ConfigError(
        f"`{FORMAT}` must be of type json_schema (with json_schema.schema), json_object or text, "
        f"got {response_format!r}"
    )


def with_raw(model: Runnable[Any, Any], parser: Runnable[Any, Any]) -> Runnable[Any, Any]:
    """Model and parser, giving ``raw``, ``parsed`` and ``parsing_error``."""
    parsed = RunnablePassthrough.assign(
        parsed=itemgetter("raw") | parser, parsing_error=lambda _: None
    )
    failed = RunnablePassthrough.assign(parsed=lambda _: None)
    return RunnableMap(raw=model) | parsed.with_fallbacks([failed], exception_key="parsing_error")


def _by_format(schema: Any, method: str) -> tuple[dict[str, Any], Runnable[Any, Any]]:
    if method not in ("json_schema", "json_mode"):
        raise ConfigError(
            f"`method` must be json_schema, json_mode or function_calling, got {method!r}"
        )
    parser = SchemaParser(model_class=schema if _is_class(schema) else None)
    if method == "json_mode":
        return {FORMAT: {"type": "json_object"}}, parser
    plain = _plain(schema)
    JsonSchema(plain)  # refuses now what the first call would
    name = str(plain.get("title", "answer"))
    form = {"type": "json_schema", "json_schema": {"name": name, "schema": plain}}
    return {FORMAT: form}, parser


def _by_tool(schema: Any) -> tuple[dict[str, Any], Runnable[Any, Any]]:
    """One tool that has to be called, whose parameters are the schema's."""
    options = tool_options([schema], "any")
    parser: Runnable[Any, Any]
    if _is_class(schema):
        parser = PydanticToolsParser(tools=[schema], first_tool_only=True)
    else:
        name = options["tools"][0]["function"]["name"]
        parser = JsonOutputKeyToolsParser(key_name=name, first_tool_only=True)
    return options, parser


def _plain(schema: Any) -> dict[str, Any]:
    """The JSON schema of a class, a TypedDict, a tool in OpenAI's form, or of itself."""
    if _is_class(schema):
        make: Callable[[], dict[str, Any]]
        make = getattr(schema, "model_json_schema", None) or schema.schema
        return make()
    if isinstance(schema, Mapping) and not {"parameters", "function"} & set(schema):
        return dict(schema)
    try:
        return convert_to_json_schema(schema)
    except ValueError as error:
        raise ConfigError(
            f"a schema must be a Pydantic class, a TypedDict or a JSON schema, got {schema!r}"
        ) from error


def _is_class(schema: Any) -> bool:
    return isinstance(schema, type) and is_basemodel_subclass(schema)


def _ending(generation: Generation) -> Mapping[str, Any] | None:
    """The metadata of an answer that has ended; None while it streams, or where there is none."""
    if not isinstance(generation, ChatGeneration):
        return None
    metadata = generation.message.response_metadata
    return metadata if "finish_reason" in metadata else None


def _cut_off(ending: Mapping[str, Any] | None) -> str | None:
    """Why the JSON of an answer is not whole, as far as its metadata tells."""
    if ending is None:
        return None
    if ending["finish_reason"] == "length":
        return (
            "the answer was cut off at max_tokens, before its JSON was complete; raise max_tokens, "
            "or bound the schema with maxLength and maxItems"
        )
    if ending.get("ended_by") == "stop":
        return "the answer ended at a stop string, before its JSON was complete; leave `stop` out"
    return None
