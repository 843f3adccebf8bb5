"""Answers held to a JSON schema, judged by the `jsonschema` package and by walks from scratch."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema
import mlx.core as mx
import numpy as np
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher
from mlx.utils import tree_map

from msi_engine import DecodeConfig, Engine, JsonSchema
from msi_engine.errors import ConfigError, DecodeError
from msi_engine.events import Collapsed, Spawned
from msi_engine.grammar import states
from msi_engine.grammar.processor import GrammarProcessor, _read_vocabulary
from msi_engine.grammar.states import GrammarStates
from msi_engine.model import TargetModel
from msi_engine.pair import Pair, Target
from msi_engine.prefix import PrefixKeeper
from msi_engine.testing import ToyModel, ToyTokenizer, run_toy
from tests.engine.schemas import random_schema
from tests.engine.tiny_engine import tiny_engine
from tests.engine.toy_tokenizers import tokenizer_of

PROMPT = "The quick brown fox"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
    },
    "required": ["name", "age"],
}
LISTS = {"type": "array", "items": {"type": "string", "maxLength": 9}, "minItems": 4, "maxItems": 9}
WAYS: list[dict[str, Any]] = [
    {"temperature": 1.0, "spawn_temperature": 1.0},
    {"temperature": 1.0, "collapse": "token_vote", "vote_guard": None, "segment_length": 6},
    {"temperature": 1.3, "top_p": 0.9, "min_p": 0.01, "min_tokens_to_keep": 5, "law": "paper"},
    {"temperature": 1.0, "top_k": 3, "xtc_probability": 0.5, "law": "posterior"},
    {"temperature": 0.9, "collapse": "sample", "short_circuit": 0.7, "diversity": 1.0},
]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return tiny_engine()


@pytest.fixture(scope="module")
def spm_engine() -> Engine:
    return tiny_engine("spm_bpe")


# Validity


@pytest.mark.parametrize("block", range(10))
def test_every_answer_is_what_its_schema_describes(block: int, engine: Engine) -> None:
    for seed in range(10 * block, 10 * block + 10):
        schema, way = random_schema(seed), WAYS[seed % len(WAYS)]
        answer = engine.generate(
            PROMPT, k=4, max_tokens=2000, seed=seed, constraint=JsonSchema(schema), **way
        )
        assert (seed, answer.finish_reason) == (seed, "eos")
        jsonschema.validate(json.loads(answer.text), schema, jsonschema.Draft202012Validator)


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("seed", range(4))
def test_bytes_as_tokens_make_valid_answers_too(spm_engine: Engine, k: int, seed: int) -> None:
    schema, options = random_schema(seed), {"max_tokens": 2000, "temperature": 1.0, "seed": seed}
    answer = spm_engine.generate(PROMPT, k=k, constraint=JsonSchema(schema), **options)
    assert answer.finish_reason == "eos"
    jsonschema.validate(json.loads(answer.text), schema, jsonschema.Draft202012Validator)


def test_without_a_constraint_the_same_model_writes_no_json(engine: Engine) -> None:
    answer = engine.generate(PROMPT, k=4, max_tokens=50)
    with pytest.raises(json.JSONDecodeError):
        json.loads(answer.text)


def test_text_has_the_spacing_of_json_dumps(engine: Engine) -> None:
    answer = engine.generate(PROMPT, k=4, max_tokens=400, constraint=JsonSchema(PERSON))
    assert answer.text == json.dumps(json.loads(answer.text), ensure_ascii=False)


# The same as walking from scratch


def fresh_walk(grammar: str, vocabulary: Any, tokens: list[int]) -> np.ndarray:
    """Allowed tokens after ``tokens``, by a matcher that has never seen anything else."""
    matcher = LLMatcher(vocabulary, grammar)
    for token in tokens:
        assert matcher.consume_token(token)
    bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
    return np.unpackbits(bits, bitorder="little")[: vocabulary.vocab_size].astype(bool)


@pytest.mark.parametrize("seed", range(6))
def test_one_greedy_path_is_the_slow_loop(engine: Engine, seed: int) -> None:
    constraint = JsonSchema(PERSON if seed == 0 else random_schema(seed))
    answer = engine.generate(PROMPT, k=1, max_tokens=60, constraint=constraint)
    model, tokenizer = engine._held.loaded.model, engine._held.loaded.tokenizer
    vocabulary = _read_vocabulary(tokenizer, engine._held.loaded.eos_token_ids)
    prompt, tokens = tokenizer.encode(PROMPT), []
    while len(tokens) < 60 and tokens[-1:] != [tokenizer.eos_token_id]:
        logits = np.array(model(mx.array([prompt + tokens]))[0, -1])
        logits[vocabulary.vocab_size :] = -np.inf
        logits[: vocabulary.vocab_size][
            ~fresh_walk(constraint.grammar, vocabulary, tokens)
        ] = -np.inf
        tokens.append(int(logits.argmax()))
    assert list(answer.tokens) == tokens


VOCABULARY = _read_vocabulary(tokenizer_of("byte_level"), [tokenizer_of("byte_level").eos_token_id])
LONG = JsonSchema({"type": "array", "items": {"type": "string", "maxLength": 9}, "maxItems": 20})


@given(seed=st.integers(0, 2**16), kept=st.sampled_from([1, 2, 5, 200]))
@settings(max_examples=40, deadline=None)
def test_what_is_allowed_depends_on_the_tokens_alone(seed: int, kept: int) -> None:
    """Whatever is asked in whatever order, with room for many matchers or for hardly any."""
    rng = random.Random(seed)
    walks = GrammarStates(LONG.grammar, VOCABULARY)
    asked: list[list[int]] = [[]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states, "_KEPT", kept)
        for _ in range(60):
            tokens = rng.choice(asked)[: rng.choice([None, None, rng.randint(0, 30)])]
            allowed = walks.allowed(tuple(tokens))
            assert (allowed == fresh_walk(LONG.grammar, VOCABULARY, tokens)).all()
            token = int(rng.choice(np.flatnonzero(allowed).tolist()))
            if token != VOCABULARY.eos_token:
                asked.append([*tokens, token])


def test_after_a_token_that_is_not_allowed_nothing_is() -> None:
    walks = GrammarStates(LONG.grammar, VOCABULARY)
    (bad,) = VOCABULARY.tokenize_str("}")
    assert not walks.allowed((bad,)).any()
    assert not walks.allowed((bad, *VOCABULARY.tokenize_str("["))).any()
    assert walks.allowed(()).any()


def test_a_token_costs_one_step_of_the_grammar_and_not_a_walk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counted, not timed: 400 tokens in a row, two paths in turn, are 800 tokens read."""
    read: list[int] = []

    class Counting(GrammarStates):
        def _read(self, tokens: tuple[int, ...]) -> Any:
            read.append(
                len(tokens) - max((len(k) for k in self._kept if k == tokens[:-1]), default=0)
            )
            return super()._read(tokens)

    schema = JsonSchema({"type": "array", "items": {"type": "integer"}})
    walks = Counting(schema.grammar, VOCABULARY)
    paths = [VOCABULARY.tokenize_str("[1"), VOCABULARY.tokenize_str("[2")]
    for _ in range(400):
        for path in paths:
            walks.allowed(tuple(path))
            path += VOCABULARY.tokenize_str("7")
    assert sum(read) <= 2 * 400 + 2


# How answers end


def test_the_end_is_allowed_exactly_where_the_json_is_whole() -> None:
    walks = GrammarStates(JsonSchema({"type": "integer", "maximum": 99}).grammar, VOCABULARY)
    end = VOCABULARY.eos_token
    for text, may_end, must_end in [("", False, False), ("-", False, False), ("9", True, False)]:
        allowed = walks.allowed(tuple(VOCABULARY.tokenize_str(text)))
        assert (allowed[end], allowed.sum() == 1) == (may_end, must_end)
    done = walks.allowed(tuple(VOCABULARY.tokenize_str("99")))
    assert np.flatnonzero(done).tolist() == [end]


@pytest.mark.parametrize("k", [1, 4])
def test_an_answer_with_one_possibility_needs_no_model(engine: Engine, k: int) -> None:
    constraint = JsonSchema({"const": {"a": [1, None, "é"]}})
    answer = engine.generate(PROMPT, k=k, max_tokens=100, constraint=constraint)
    assert (answer.text, answer.finish_reason) == ('{"a": [1, null, "é"]}', "eos")


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("max_tokens", [1, 5, 9])
def test_the_budget_cuts_json_off_and_says_so(engine: Engine, k: int, max_tokens: int) -> None:
    answer = engine.generate(PROMPT, k=k, max_tokens=max_tokens, constraint=JsonSchema(PERSON))
    assert (answer.finish_reason, len(answer.tokens)) == ("length", max_tokens)
    with pytest.raises(json.JSONDecodeError):
        json.loads(answer.text)


@pytest.mark.parametrize("k", [1, 3])
def test_a_stop_string_still_ends_the_answer(engine: Engine, k: int) -> None:
    constraint = JsonSchema(PERSON)
    answer = engine.generate(PROMPT, k=k, max_tokens=200, constraint=constraint, stop=('", "age',))
    assert answer.finish_reason == "stop"
    assert answer.text.startswith('{"name": "')


# Paths


def test_a_forced_token_is_spawned_once_and_paths_fork_where_there_is_a_choice(
    engine: Engine,
) -> None:
    constraint = JsonSchema({"type": "object", "properties": {"n": {"enum": [17, 25, 48, 96]}},
                             "required": ["n"]})  # fmt: skip
    events = list(engine.stream(PROMPT, k=4, max_tokens=50, spawn_min_p=0, constraint=constraint))
    spawned = [len(e.tokens) for e in events if isinstance(e, Spawned)]
    collapses = [e for e in events if isinstance(e, Collapsed)]
    assert spawned[0] == 1
    assert collapses[0].reason == "choice"
    assert collapses[0].text == '{"n":'
    assert spawned[1] > 1


def test_one_path_is_not_cut_at_choices(engine: Engine) -> None:
    answer = engine.generate(PROMPT, k=1, max_tokens=50, constraint=JsonSchema(PERSON))
    assert {c.reason for c in answer.trace.collapses} <= {"length", "budget", "eos"}


def masking(history: list[int], logits: np.ndarray) -> np.ndarray:
    """After 0 comes 3, after 1 and 2 comes 4, and nothing else."""
    allowed = {0: [3], 1: [4], 2: [4]}.get(history[-1])
    if allowed is not None:
        logits[[t for t in range(len(logits)) if t not in allowed]] = -np.inf
    return logits


def test_a_vote_that_no_path_may_write_is_refused() -> None:
    """0 leads, and most paths go on with 4: the vote (0, 4) is what the processor forbids."""
    model = ToyModel.from_table({(): [0.2, 0.1, 0.0, -9.0, -9.0]})
    config = DecodeConfig(
        k=3, max_tokens=2, collapse="token_vote", boundary=(), dedup_tokens=0, vote_guard=None,
        majority=1.0,
    )  # fmt: skip
    tokenizer = ToyTokenizer("abcde", eos=())
    taken, refused = (
        next(
            e
            for e in run_toy(config, chosen, tokenizer, prompt=(4,), processors=processors)
            if isinstance(e, Collapsed)
        )
        for chosen, processors in [
            (ToyModel.from_table({(): [0.2, 0.1, 0.0, -9.0, -9.0], (0,): [0.0, 0.0, 0.0, 0.1, 0.0],
                                  (1,): [0.0] * 4 + [0.1], (2,): [0.0] * 4 + [0.1]}), []),
            (model, [masking]),
        ]
    )  # fmt: skip
    assert (taken.tokens, taken.mode, taken.winner) == ((0, 4), "token_vote", None)
    assert (refused.tokens, refused.mode, refused.winner) == ((0, 3), "argmax", 0)
    assert "mask" in (refused.note or "")


def test_the_real_runner_sees_every_token_of_a_vote(engine: Engine) -> None:
    """Votes without a guard, over many answers: some are refused, and every answer is valid."""
    refused = 0
    schema = {"type": "array", "items": {"enum": ["abc", "abd", "xbc", 12, 13, True]},
              "minItems": 4, "maxItems": 6}  # fmt: skip
    way = {"k": 4, "collapse": "token_vote", "vote_guard": None, "temperature": 1.5,
           "spawn_min_p": 0.0, "majority": 1.0, "segment_length": 5}  # fmt: skip
    for seed in range(20):
        answer = engine.generate(
            PROMPT, seed=seed, max_tokens=200, constraint=JsonSchema(schema), **way
        )
        jsonschema.validate(json.loads(answer.text), schema)
        refused += sum("mask" in (c.note or "") for c in answer.trace.collapses)
    assert refused > 0


def test_a_bias_cannot_force_a_token_that_the_grammar_forbids(engine: Engine) -> None:
    (bad,) = engine.tokenizer.encode("]", add_special_tokens=False)
    answer = engine.generate(
        PROMPT, k=2, max_tokens=300, logit_bias={bad: 1000.0}, temperature=1.0, seed=1,
        constraint=JsonSchema({"type": "object", "properties": {"n": {"enum": [1, 2]}},
                               "required": ["n"]}),
    )  # fmt: skip
    assert json.loads(answer.text)["n"] in (1, 2)


def test_a_processor_that_forbids_all_that_the_grammar_allows_fails_the_answer(
    engine: Engine,
) -> None:
    (brace,) = engine.tokenizer.encode("{", add_special_tokens=False)
    for k in (1, 4):
        with pytest.raises(DecodeError, match=r"mask every token|no token to draw"):
            engine.generate(
                PROMPT,
                k=k,
                constraint=JsonSchema(PERSON),
                logits_processors=[lambda _, logits: logits.at[:, brace].add(-np.inf)],
            )


# With a target


def with_target(off: float = 0.15) -> Engine:
    """A draft whose target has other weights, a little off."""
    engine, target = tiny_engine(), tiny_engine()._held.loaded.model
    keys = iter(mx.random.split(mx.random.key(7), 100))
    target.update(
        tree_map(
            lambda a: a + off * mx.std(a) * mx.random.normal(a.shape, key=next(keys)),
            target.parameters(),
        )
    )
    mx.eval(target.parameters())
    swept = TargetModel(target, "resident", "t", Path("t"), bytes_per_sweep=0, nbytes=0)
    pair = Pair(
        engine._held.loaded,
        PrefixKeeper(engine._held.loaded.model),
        Target(swept, PrefixKeeper(target), draft_bytes=0),
    )
    engine._held._pair = ((None, "auto"), pair)
    return engine


@pytest.mark.parametrize("seed", range(3))
def test_a_verified_path_is_the_targets_own_held_to_the_same_schema(seed: int) -> None:
    engine = with_target()
    target = engine._held._pair[1].target.model.model
    alone = Engine(dataclasses.replace(engine._held.loaded, model=target))
    options = {"k": 1, "max_tokens": 60, "constraint": JsonSchema(PERSON if seed else LISTS)}
    prompt = PROMPT + " jumps" * seed
    checked = engine.generate(prompt, refine="verify", **options)
    assert checked.tokens == alone.generate(prompt, **options).tokens
    assert checked.stats.refinement.rollbacks > 0


@pytest.mark.parametrize("refine", ["verify", "margin", "rescore"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_a_target_puts_in_place_is_valid_too(refine: str, temperature: float) -> None:
    engine = with_target()
    for seed in range(4):
        schema = random_schema(seed)
        answer = engine.generate(
            PROMPT, k=3, max_tokens=500, seed=seed, temperature=temperature, refine=refine,
            constraint=JsonSchema(schema),
        )  # fmt: skip
        if answer.finish_reason == "eos":
            jsonschema.validate(json.loads(answer.text), schema, jsonschema.Draft202012Validator)
        else:  # a greedy model of random weights may write the digits of a number for ever
            assert (answer.finish_reason, temperature) == ("length", 0.0)


# Schemas


REFUSED = {
    "uniqueItems": {"type": "array", "uniqueItems": True},
    "not": {"not": {"type": "string"}},
    "if": {"if": {"type": "string"}, "then": {"minLength": 2}},
    "contains": {"type": "array", "contains": {"type": "integer"}},
    "maxContains": {"type": "array", "maxContains": 2},
    "dependentRequired": {"dependentRequired": {"a": ["b"]}},
    "dependentSchemas": {"dependentSchemas": {"a": {"required": ["b"]}}},
    "propertyNames": {"propertyNames": {"pattern": "a"}},
    "unevaluatedProperties": {"unevaluatedProperties": False},
    "unevaluatedItems": {"unevaluatedItems": False},
    "$dynamicRef": {"$dynamicRef": "#a"},
    "minProperties": {"type": "object", "minProperties": 2},
    "format": {"type": "string", "format": "iban"},
    "pattern": {"type": "string", "pattern": "(?=a)b"},
    "oneOf": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    "strng": {"type": "strng"},
    "nsatisfiable": {"type": "integer", "minimum": 5, "maximum": 3},
    "https://elsewhere.org/x": {"$ref": "https://elsewhere.org/x"},
    "/$defs/nowhere": {"$ref": "#/$defs/nowhere"},
    "not plain JSON": {"const": float("nan")},
    "surrogates": {"const": "\ud800"},
    "out of range": {"type": "integer", "maximum": 10**400},
    "'required', got true": {"type": "object", "properties": {"a": {}}, "required": True},
    "exclusiveMinimum": {"type": "integer", "exclusiveMinimum": True},
    "exclusiveMaximum": {"allOf": [{"maximum": 3}, {"exclusiveMaximum": True}]},
    "minProperties = 3": {"type": "object", "minProperties": 3, "required": True},
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("deep", [False, True])
def test_what_cannot_be_held_to_is_refused_by_name(name: str, deep: bool) -> None:
    schema = REFUSED[name]
    if deep:
        schema = {"type": "object", "properties": {"p": schema}, "required": ["p"]}
    with pytest.raises(ConfigError) as caught:
        JsonSchema(schema)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["integer", "number"])
@pytest.mark.parametrize("exclusive", [True, False])
def test_the_exclusive_bounds_of_draft_4_are_held_to_beside_their_bounds(
    kind: str, exclusive: bool
) -> None:
    bounds = {"minimum": 3, "maximum": 8, "exclusiveMinimum": exclusive}
    schema = {"allOf": [{"type": kind, **bounds}, {"maximum": 6, "exclusiveMaximum": exclusive}]}
    judge = jsonschema.Draft4Validator(schema)
    for number in range(10):
        assert accepts(schema, str(number)) == judge.is_valid(number)


@pytest.mark.parametrize("schema", [True, None, [], "{}", 3])
def test_a_schema_is_an_object(schema: Any) -> None:
    with pytest.raises(ConfigError, match="must be a JSON object"):
        JsonSchema(schema)


@pytest.mark.parametrize("depth", [300, 3000])
@pytest.mark.parametrize("around", ["items", "not-a-keyword"])
def test_a_schema_that_is_nested_too_deeply_is_refused(depth: int, around: str) -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {around: schema}
    with pytest.raises(ConfigError, match=r"nested too deeply|recursion limit exceeded"):
        JsonSchema(schema)


def test_a_schema_that_holds_itself_is_refused() -> None:
    schema: dict[str, Any] = {"type": "array"}
    schema["items"] = schema
    with pytest.raises(ConfigError, match="not plain JSON"):
        JsonSchema(schema)


def test_a_schema_is_read_as_the_json_that_it_would_be_written_as() -> None:
    """Tuples are lists and numbers are names, in what is compiled and in what is checked before."""
    tuples = {"type": "object", "properties": {1: {"enum": ("a",)}}, "required": ("1",)}
    assert accepts(tuples, '{"1": "a"}')
    assert not accepts(tuples, "{}")
    assert not accepts(tuples, '{"1": "a", "b": 2}')  # closed, as a list of names would be


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        {"type": "string", "pattern": "^(a{1000}){1000}$"},
    ],
)
def test_a_grammar_that_breaks_off_says_why_in_short(
    engine: Engine, schema: dict[str, Any]
) -> None:
    with pytest.raises(DecodeError, match=r"the grammar cannot go on: .*; simplify it") as caught:
        engine.generate(PROMPT, k=2, max_tokens=8, constraint=JsonSchema(schema))
    assert len(str(caught.value)) < 150
    assert engine.generate(PROMPT, k=2, constraint=JsonSchema({"const": None})).text == "null"


def test_a_schema_cannot_switch_its_own_checks_off() -> None:
    with pytest.raises(ConfigError, match="uniqueItems"):
        JsonSchema({"x-guidance": {"lenient": True}, "type": "array", "uniqueItems": True})


def accepts(schema: dict[str, Any], text: str) -> bool:
    matcher = LLMatcher(VOCABULARY, JsonSchema(schema).grammar, log_level=0)
    tokens = VOCABULARY.tokenize_str(text)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


A_AND_B = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
PETS = {
    "$defs": {
        kind: {"type": "object", "properties": {"kind": {"const": kind}}, "required": ["kind"]}
        for kind in ("cat", "dog")
    },
    "oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}],
}


@pytest.mark.parametrize(
    ("schema", "text", "accepted"),
    [
        (A_AND_B, '{"a": 1, "b": 2}', True),
        (A_AND_B, '{"a": 1, "c": 2}', False),
        ({**A_AND_B, "additionalProperties": True}, '{"a": 1, "c": 2}', True),
        ({**A_AND_B, "required": ["c"]}, '{"c": 2}', True),
        ({"type": "object"}, '{"c": 2}', True),
        ({"type": "object", "properties": {}}, '{"c": 2}', False),
        ({"type": "array", "items": A_AND_B}, '[{"c": 2}]', False),
        ({"anyOf": [A_AND_B, {"type": "null"}]}, '{"c": 2}', False),
        ({"allOf": [A_AND_B, {"properties": {"c": {"type": "null"}}}]},
         '{"a": 1, "c": null}', True),
        (PETS, '{"kind": "cat"}', True),
        (PETS, '{"kind": "cat", "c": 2}', False),
        # A name spelled with an escape would be a known property in disguise.
        ({**A_AND_B, "additionalProperties": {"type": "string"}}, '{"\\u0061": "x"}', False),
        ({"type": "array", "uniqueItems": False}, "[1, 1]", True),
        ({"enum": [{"properties": {"a": 1}}]}, '{"properties": {"a": 1}}', True),
        ({"type": "string"}, '"\\n \\" é 😀"', True),
        ({"type": "string", "maxLength": 1}, '"😀"', True),
        ({}, '{"a": [1.5e3, null]}', True),
    ],
)  # fmt: skip
def test_objects_are_closed_where_that_adds_no_answer(
    schema: dict[str, Any], text: str, accepted: bool
) -> None:
    assert accepts(schema, text) is accepted
    if accepted:
        jsonschema.validate(json.loads(text), schema)


class Leaf(pydantic.BaseModel):
    kind: Literal["leaf"]


class Node(pydantic.BaseModel):
    kind: Literal["node", "root"]
    marks: Annotated[list[int], pydantic.Field(json_schema_extra={"uniqueItems": False})]
    child: Annotated[Leaf | Node, pydantic.Field(discriminator="kind")]


class Tree(pydantic.BaseModel):
    top: Annotated[Leaf | Node, pydantic.Field(discriminator="kind")]


LEAF = '{"kind": "leaf"}'
NODE = '{"kind": "node", "marks": [1, 1], "child": %s}'


@pytest.mark.parametrize(
    "top",
    [
        LEAF,
        NODE % LEAF,
        NODE % (NODE % LEAF),
        NODE % "{}",
        '{"kind": "leaf", "marks": []}',
        NODE.replace("node", "tree") % LEAF,
    ],
)
def test_unions_told_apart_by_a_property_may_hold_each_other(top: str) -> None:
    text, schema = f'{{"top": {top}}}', Tree.model_json_schema()
    strict = {**schema, "$defs": {k: {**v, "additionalProperties": False}
                                  for k, v in schema["$defs"].items()}}  # fmt: skip
    is_valid = jsonschema.Draft202012Validator(strict).is_valid(json.loads(text))
    assert accepts(schema, text) is is_valid
    if is_valid:
        Tree.model_validate_json(text)


@pytest.mark.parametrize(
    "change",
    [
        {"required": []},
        {"type": ["object", "null"]},
        {"properties": {"kind": {"enum": ["cat", "dog"]}}},
        {"properties": {"kind": {"type": "string"}}},
    ],
)
def test_a_property_that_does_not_tell_branches_apart_is_no_excuse(change: dict[str, Any]) -> None:
    kinds = {kind: {**schema, **change} for kind, schema in PETS["$defs"].items()}
    with pytest.raises(ConfigError, match="may overlap"):
        JsonSchema({**PETS, "$defs": kinds})


@pytest.mark.parametrize("text", ['{"a":1}', '{ "a": 1}', '{"a": 1} ', ' {"a": 1}', '{"a":  1}'])
def test_white_space_has_one_form(text: str) -> None:
    assert not accepts(A_AND_B, text)
    assert accepts(A_AND_B, '{"a": 1}')


# Tokenizers and callers


@pytest.mark.parametrize("family", ["unigram", "wordpiece", "suffix_bpe"])
def test_a_tokenizer_that_no_grammar_fits_is_refused(family: str) -> None:
    with pytest.raises(ConfigError, match="tokenizer"):
        GrammarProcessor(JsonSchema({}).grammar, tokenizer_of(family), [1], 0)


def test_a_tokenizer_without_a_fast_form_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        GrammarProcessor(JsonSchema({}).grammar, ToyTokenizer(), [5], 0)


def test_a_model_without_an_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="end-of-sequence"):
        GrammarProcessor(JsonSchema({}).grammar, tokenizer_of("byte_level"), [], 0)


def test_the_ends_of_one_generation_are_not_those_of_the_next() -> None:
    """A target may end answers with other tokens than its draft, on the same tokenizer."""
    tokenizer = tokenizer_of("byte_level")
    null = tokenizer.encode("null", add_special_tokens=False)
    for ends in ([1], [1, 2], [2]):
        processor = GrammarProcessor(JsonSchema({"const": None}).grammar, tokenizer, ends, 0)
        row = np.array(processor(mx.array(null), mx.zeros((1, len(tokenizer)))))[0]
        assert np.flatnonzero(np.isfinite(row)).tolist() == ends


def test_logits_beyond_the_vocabulary_are_masked() -> None:
    tokenizer = tokenizer_of("byte_level")
    processor = GrammarProcessor(JsonSchema({}).grammar, tokenizer, [tokenizer.eos_token_id], 2)
    for width in (len(tokenizer) + 40, len(tokenizer) - 3):
        row = np.array(processor(mx.array([0, 0]), mx.zeros((1, width))))[0]
        assert row.shape == (width,)
        assert np.isfinite(row).any()
        assert not np.isfinite(row[len(tokenizer) :]).any()


def test_every_way_of_asking_holds_to_the_constraint(engine: Engine) -> None:
    import asyncio

    options = {"k": 3, "max_tokens": 200, "constraint": JsonSchema(PERSON)}

    async def asynchronous() -> tuple[str, str]:
        streamed = [e async for e in engine.astream(PROMPT, **options)]
        text = "".join(getattr(e, "text", "") for e in streamed if type(e).__name__ == "Committed")
        return (await engine.agenerate(PROMPT, **options)).text, text

    texts = {engine.generate(PROMPT, **options).text, *asyncio.run(asynchronous())}
    assert len(texts) == 1
    jsonschema.validate(json.loads(texts.pop()), PERSON)


def test_a_schema_that_is_not_made_into_a_constraint_is_refused_at_once(engine: Engine) -> None:
    with pytest.raises(ConfigError, match="JsonSchema"):
        engine.stream(PROMPT, constraint=PERSON)


def test_a_constraint_does_not_stay_with_the_engine(engine: Engine) -> None:
    plain = engine.generate(PROMPT, k=2, max_tokens=12).text
    engine.generate(PROMPT, k=2, max_tokens=12, constraint=JsonSchema(PERSON))
    assert engine.generate(PROMPT, k=2, max_tokens=12).text == plain
