"""Structured output: what a schema describes, or an error that says why not; never a guess."""

import json
from typing import Annotated, TypedDict

import jsonschema
import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.exceptions import OutputParserException
from langchain_core.globals import set_llm_cache
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.prompts import ChatPromptTemplate
from pydantic import BaseModel, Field, field_validator

from langchain_msi import ChatMSI
from langchain_msi.structured import SchemaParser, constraint_of
from msi_engine.errors import ConfigError


class Dog(BaseModel):
    """A dog."""

    name: str = Field(max_length=6)
    age: int = Field(ge=0, le=20)


class DogDict(TypedDict):
    """A dog."""

    age: Annotated[int, ..., "years"]
    good: Annotated[bool, ..., "whether it is"]


DOG = {
    "type": "object",
    "properties": {
        "age": {"type": "integer", "minimum": 0, "maximum": 20},
        "kind": {"enum": [1, 2]},
    },
    "required": ["age", "kind"],
}
ASK = "Invent a dog."


@pytest.fixture
def llm(tiny):
    return ChatMSI(model=tiny, k=3, max_tokens=80, temperature=1.0, seed=0)


def test_a_pydantic_class_comes_back_as_its_object(llm):
    dog = llm.with_structured_output(Dog).invoke(ASK)
    assert type(dog) is Dog
    assert len(dog.name) <= 6


def test_a_typed_dict_and_a_schema_come_back_as_dictionaries(llm):
    assert set(llm.with_structured_output(DogDict).invoke(ASK, max_tokens=150)) == {"age", "good"}
    jsonschema.validate(llm.with_structured_output(DOG).invoke(ASK), DOG)


async def test_async_streams_and_batches_are_held_to_it_too(llm):
    chain = ChatPromptTemplate.from_template("Invent a {what}.") | llm.with_structured_output(DOG)
    dogs = [await chain.ainvoke({"what": "dog"}), *chain.batch([{"what": "pug"}, {"what": "dog"}])]
    dogs += [list(chain.stream({"what": "dog"}))[-1]]
    dogs += [[d async for d in chain.astream({"what": "dog"})][-1]]
    for dog in dogs:
        jsonschema.validate(dog, DOG)
    assert dogs[0] == dogs[2] == dogs[3] == dogs[4]


def test_a_stream_gives_dictionaries_as_far_as_they_are_and_objects_when_they_are_whole(llm):
    parts = list(llm.with_structured_output(DOG, k=1).stream(ASK))  # token by token
    assert all(isinstance(part, dict) for part in parts)
    assert len(parts) > 1
    assert [type(d) for d in llm.with_structured_output(Dog, k=1).stream(ASK)] == [Dog]


@pytest.mark.parametrize("schema", [Dog, DOG])
def test_json_that_is_cut_off_is_an_error_that_names_max_tokens(llm, schema):
    short = llm.with_structured_output(schema, max_tokens=4)
    for ask in (short.invoke, lambda text: list(short.stream(text))):
        with pytest.raises(OutputParserException, match="raise max_tokens") as caught:
            ask(ASK)
        assert caught.value.llm_output.startswith('{"')


def test_a_stop_string_inside_the_json_is_an_error_that_says_so(llm):
    with pytest.raises(OutputParserException, match="stop string"):
        llm.with_structured_output(DOG, stop=['"kind"']).invoke(ASK)


def test_raw_answers_come_with_what_was_read_or_why_not(llm):
    whole = llm.with_structured_output(DOG, include_raw=True).invoke(ASK)
    assert whole["parsed"] == json.loads(whole["raw"].content)
    assert whole["parsing_error"] is None
    cut = llm.with_structured_output(DOG, include_raw=True, max_tokens=4).invoke(ASK)
    assert cut["parsed"] is None
    assert "max_tokens" in str(cut["parsing_error"])
    assert cut["raw"].response_metadata["finish_reason"] == "length"


def test_json_mode_gives_any_object(llm):
    # Random weights would go on for ever; the braces are all they may write.
    answer = llm.bind(response_format={"type": "json_object"}, max_tokens=1).invoke(ASK)
    assert answer.content.startswith("{")
    chain = llm.with_structured_output(DOG, method="json_mode", include_raw=True, max_tokens=30)
    assert chain.invoke(ASK)["raw"].content.startswith("{")


def test_function_calling_is_for_models_that_call_tools(llm):
    chain = llm.with_structured_output(Dog, method="function_calling")
    with pytest.raises(ValueError, match="tools"):
        chain.invoke(ASK)


@pytest.mark.parametrize("strict", [None, True, False])
def test_strict_changes_nothing(llm, strict):
    assert llm.with_structured_output(DOG, strict=strict).invoke(ASK) == llm.with_structured_output(
        DOG
    ).invoke(ASK)


def test_what_cannot_be_held_to_is_refused_when_the_chain_is_made():
    class Pack(BaseModel):
        names: set[str]

    llm = ChatMSI(model="not-on-this-machine")
    with pytest.raises(ValueError, match="uniqueItems") as caught:
        llm.with_structured_output(Pack)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="a Pydantic class, a TypedDict or a JSON schema"):
        llm.with_structured_output(3)
    with pytest.raises(ValueError, match="`method` must be json_schema"):
        llm.with_structured_output(Dog, method="xml")


def test_the_cache_tells_schemas_apart(llm):
    set_llm_cache(InMemoryCache())
    other = {**DOG, "properties": {**DOG["properties"], "kind": {"enum": [3]}}}
    first = llm.with_structured_output(DOG).invoke(ASK)
    assert llm.with_structured_output(other).invoke(ASK)["kind"] == 3
    assert llm.with_structured_output(DOG, include_raw=True).invoke(ASK)["parsed"] == first
    keys = {
        llm._get_llm_string(response_format=form)
        for form in (None, {"type": "json_object"}, {"type": "text"})
    }
    assert len(keys) == 3


def test_tools_and_a_schema_do_not_go_together(llm):
    tool = {"name": "bark", "description": "Bark.", "parameters": {"type": "object"}}
    with pytest.raises(ValueError, match="cannot be used in one call"):
        llm.invoke(ASK, tools=[tool], response_format={"type": "json_object"})


@pytest.mark.parametrize(
    "form",
    ["json", {"type": "xml"}, {"type": "json_schema"}, {"type": "json_schema", "schema": {}}],
)
def test_a_response_format_of_no_known_form_is_refused(llm, form):
    with pytest.raises(ValueError, match="`response_format` must be"):
        llm.invoke(ASK, response_format=form)


def test_plain_text_is_held_to_nothing():
    assert constraint_of({"type": "text"}) is None
    assert constraint_of(None) is None
    with pytest.raises(ConfigError):
        constraint_of({"type": "json_schema", "json_schema": {"schema": {"not": {}}}})


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def _even(cls, value):
        if value % 2:
            raise ValueError("must be even")
        return value


def test_a_validator_of_the_class_speaks_for_itself():
    parser = SchemaParser(model_class=Even)
    assert parser.parse('{"number": 2}') == Even(number=2)
    with pytest.raises(OutputParserException, match=r"not the class.*must be even"):
        parser.parse('{"number": 3}')


def test_whole_json_is_read_even_where_the_budget_ended_it():
    ended = {"finish_reason": "length"}
    assert SchemaParser().invoke(AIMessage('{"a": 1}', response_metadata=ended)) == {"a": 1}
    with pytest.raises(OutputParserException, match="max_tokens"):
        SchemaParser().invoke(AIMessage('{"a": 1', response_metadata=ended))
    with pytest.raises(OutputParserException, match="not JSON"):
        SchemaParser().invoke(AIMessage("Certainly!"))


def test_a_stream_that_never_tells_its_end_gives_what_there_is():
    chunks = [AIMessageChunk('{"a": [1'), AIMessageChunk(", 2]}")]
    assert list(SchemaParser().transform(iter(chunks))) == [{"a": [1]}, {"a": [1, 2]}]
