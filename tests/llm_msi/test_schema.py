"""`--schema` and `schema=`: the response is the JSON, or a line says why it is not."""

import asyncio
import json

import jsonschema
import llm
import pytest
from pydantic import BaseModel, Field

from llm_msi.answer import cut_off
from llm_msi.schema import is_whole
from msi_engine import JsonSchema
from msi_engine.events import Stats

DOG = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 10},
        "age": {"type": "integer", "minimum": 0, "maximum": 20},
        "good": {"type": "boolean"},
    },
    "required": ["name", "age", "good"],
}
ASK = "Invent a dog."


class Cat(BaseModel):
    """A cat."""

    name: str = Field(max_length=10)
    lives: int = Field(ge=0, le=9)


@pytest.mark.real_model
@pytest.mark.parametrize("k", ["1", "3"])
def test_the_response_is_the_json(msi, engine, k):
    out = msi(ASK, "--schema", json.dumps(DOG), "-o", "k", k, "-o", "max_tokens", "100").out
    jsonschema.validate(json.loads(out), DOG)
    question = [{"role": "user", "content": ASK}]
    constraint = JsonSchema(DOG)
    answer = engine.generate(question, k=int(k), max_tokens=100, constraint=constraint)
    assert out == answer.text + "\n"  # the model is asked what the user asks, and no more


@pytest.mark.real_model
def test_the_concise_form_and_lists_of_objects(msi):
    # Bounds are what the concise form lacks, so the answer may be cut off; here it is not.
    out = msi(ASK, "--schema", "good bool, old bool", "-o", "max_tokens", "60").out
    assert set(json.loads(out)) == {"good", "old"}


@pytest.mark.real_model
def test_a_pydantic_class_in_python_sync_and_async(msi):
    options = {"k": 2, "max_tokens": 60}
    text = llm.get_model("msi").prompt("Invent a cat.", schema=Cat, **options).text()
    assert 0 <= Cat.model_validate_json(text).lives <= 9

    async def asked():
        model = llm.get_async_model("msi")
        return await model.prompt("Invent a cat.", schema=Cat, **options).text()

    assert asyncio.run(asked()) == text


@pytest.mark.real_model
def test_json_that_is_cut_off_is_printed_and_said_to_be(msi, logged):
    result = msi(ASK, "--schema", json.dumps(DOG), "-o", "max_tokens", "6")
    assert result.out.startswith('{"name": ')
    assert "cut off at max_tokens = 6, before its JSON was complete" in result.err
    assert logged()[-1]["response"] + "\n" == result.out


@pytest.mark.real_model
def test_json_that_ends_with_the_budget_is_whole(msi, engine):
    schema = {"const": {"a": 1}}
    question = [{"role": "user", "content": ASK}]
    tokens = engine.generate(question, max_tokens=50, constraint=JsonSchema(schema)).tokens
    budget = str(len(tokens) - 1)  # all but end-of-sequence
    result = msi(ASK, "--schema", json.dumps(schema), "-o", "max_tokens", budget)
    assert result.out == '{"a": 1}\n'
    assert "cut off" not in result.err


@pytest.mark.real_model
def test_a_stop_string_inside_the_json_is_said(msi):
    result = msi(ASK, "--schema", json.dumps(DOG), "-o", "stop", '"age"', "-o", "max_tokens", "50")
    assert "stop string, before its JSON was complete" in result.err


@pytest.mark.real_model
@pytest.mark.parametrize(
    ("schema", "options", "says"),
    [
        ({"type": "array", "uniqueItems": True}, [], "uniqueItems"),
        ({"type": "object", "properties": {"d": {"type": "string", "format": "iban"}}}, [], "iban"),
        (DOG, ["-o", "cite", "1"], "cite"),
    ],
)
def test_what_cannot_be_held_to_is_one_line_before_anything_else(llm_cli, schema, options, says):
    """No model is there: it is not even looked for."""
    result = llm_cli("-m", "msi", ASK, "--schema", json.dumps(schema), *options, code=1)
    assert result.err.count("\n") == 1
    assert says in result.err


@pytest.mark.parametrize(
    ("text", "whole"), [('{"a": 1}', True), ('{"a": ', False), ("", False), ("12", True)]
)
def test_what_is_whole(text, whole):
    assert is_whole(text) is whole


def test_the_line_about_a_cut_says_what_was_missing():
    before = ", before its JSON was complete"
    for max_tokens in (192, 512):
        line = cut_off(max_tokens, Stats(prompt_tokens=8000, output_tokens=192), before)
        assert f"{before};" in line
