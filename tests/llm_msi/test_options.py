"""The options of `llm -m msi`: derived from DecodeConfig, parsed from strings, one-line errors."""

import json
import re
import typing

import click
import pytest

from llm_msi.options import (
    PARSERS,
    SURFACE,
    OptionError,
    Options,
    bounds,
    decode_config,
    wants_trace,
)
from msi_engine.config import PRESETS, DecodeConfig
from msi_engine.errors import ConfigError

# What a user types, and the value of DecodeConfig that it stands for.
TYPED = [
    ("k", "2", 2),
    ("max_tokens", "7", 7),
    ("temperature", "0.7", 0.7),
    ("seed", "0", 0),
    ("law", "posterior", "posterior"),
    ("kv_bits", "4", 4),
    ("kv_group_size", "32", 32),
    ("boundary", "sentence, paragraph", ("sentence", "paragraph")),
    ("boundary", '["paragraph"]', ("paragraph",)),
    ("boundary", "", ()),
    ("stop", "###", ("###",)),
    ("stop", "a, b", ("a, b",)),
    ("stop", "[", ("[",)),
    ("stop", '["a", ","]', ("a", ",")),
    ("stop", '[ "a" ]', ("a",)),
    ("stop", "[]", ()),
    ("stop", "[1]", ("[1]",)),
    ("stop", "[END]", ("[END]",)),
    ("stop", "[ ", ("[ ",)),
    ("stop", "[]:", ("[]:",)),
    ("stop", " a\n", (" a\n",)),
    ("logit_bias", '{"5": -1.5}', {5: -1.5}),
    ("logit_bias", "5=-1.5,6=2", {5: -1.5, 6: 2.0}),
    ("scorers", "rag=0.5,length", {"rag": 0.5, "length": 1.0}),
    ("scorers", '{"length": 0.1}', {"length": 0.1}),
    ("vote_guard", "off", None),
    ("vote_guard", "None", None),
    ("vote_guard", "0.5", 0.5),
    ("repetition_penalty", " OFF ", None),
    ("kv_bits", "off", None),
    ("logit_bias", "off", None),
    ("seed", "off", None),
]

REFUSED = [
    ("k", "0", "`k`"),
    ("k", "10000", "`k`"),
    ("k", "two", "`k`"),
    ("temperature", "-1", "`temperature`"),
    ("temperature", "nan", "`temperature`"),
    ("temperature", "inf", "`temperature`"),
    ("law", "democracy", "'paper', 'mean' or 'posterior'"),
    ("preset", "fast", "'default' or 'paper'"),
    ("kv_bits", "7", "2, 3, 4, 5, 6 or 8"),
    ("logit_bias", "{", "is not JSON"),
    ("logit_bias", "word=1", "`logit_bias.word"),
    ("scorers", "length=heavy", "`scorers.length`"),
    ("scorer_options", "length", "is not JSON"),
    ("stop", '["a"', "is not JSON"),
    ("stop", ' [ "a", ', "is not JSON"),
    ("k", "off", "`k`"),
    ("vote_guard", "offf", "`vote_guard`: input should be a valid number"),
    ("vote_guard", "-1", "`vote_guard`: input should be greater than or equal to 0"),
    ("temprature", "1", "did you mean 'temperature'?"),
    ("nonsense", "1", "unknown option 'nonsense'"),
]

REFUSED_TOGETHER = [
    ({"stop": ""}, "stop string is empty"),
    ({"logit_bias": '{"1": 1e9}'}, "`logit_bias`"),
    ({"scorer_options": '{"rag": {}}'}, "scorers that are not active"),
    ({"language": "english"}, "`language`: must be a language code such as en or pt-BR"),
    ({"language": "12"}, "`language`"),
    ({"language": "en\n"}, "`language`"),
    ({"kv_bits": "4", "max_kv_size": "64"}, "cannot be used together"),
]


def test_every_engine_option_is_there_and_unset_by_default():
    assert set(Options.model_fields) == {*DecodeConfig.model_fields, "preset", *SURFACE}
    assert not set(SURFACE) & set(DecodeConfig.model_fields)
    assert all(value is None for _, value in Options())


def test_no_option_collides_with_an_argument_of_llm():
    reserved = {
        *("prompt", "fragments", "attachments", "system", "schema", "tools", "tool_results"),
        *("system_fragments", "messages", "stream", "key", "options", "hide_reasoning"),
    }
    assert not reserved & set(Options.model_fields)


@pytest.mark.parametrize(("name", "text", "value"), TYPED)
def test_strings_become_values_and_survive_a_second_validation(name, text, value):
    once = Options(**{name: text})
    twice = Options(**{name: given for name, given in once if given is not None})
    assert getattr(decode_config(twice), name) == value


# An option, what its JSON says, and what `Options` makes of it.
LISTS_AND_MAPS = [
    ("boundary", ["paragraph"], ("paragraph",)),
    ("stop", ["a", "["], ("a", "[")),
    ("stop", [], ()),
    ("docs", ["[ab]*.md", "b"], ("[ab]*.md", "b")),
    ("logit_bias", {"5": -1.5}, {5: -1.5}),
    ("scorers", {"length": 0.1}, {"length": 0.1}),
    ("scorer_options", {"rag": {"mode": "x"}}, {"rag": {"mode": "x"}}),
]


@pytest.mark.parametrize("space", ["", " ", "\n\t ", "\u00a0"])
@pytest.mark.parametrize(("name", "content", "value"), LISTS_AND_MAPS)
def test_json_may_stand_among_white_space(name, content, value, space):
    """Around it, and within it where JSON has any."""
    indent = space if space.isascii() else None
    text = space + json.dumps(content, indent=indent) + space
    assert getattr(Options(**{name: text}), name) == value


def test_no_list_or_map_is_left_out():
    numbers = {"kv_bits", "kv_group_size"}
    assert {name for name, *_ in LISTS_AND_MAPS} == set(PARSERS) - numbers


def test_a_pattern_of_documents_may_begin_with_a_bracket():
    assert Options(docs="[ab]*.md, [c].txt").docs == ("[ab]*.md", "[c].txt")


@pytest.mark.parametrize(("name", "text", "value"), TYPED)
def test_logged_options_can_be_read_back(name, text, value):
    logged = json.dumps({n: v for n, v in dict(Options(**{name: text})).items() if v is not None})
    assert getattr(decode_config(Options(**json.loads(logged))), name) == value


@pytest.mark.parametrize(("name", "text", "said"), REFUSED)
def test_a_bad_value_is_one_line_with_the_option_and_the_value(name, text, said):
    with pytest.raises(OptionError) as caught:
        Options(**{name: text})
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert isinstance(caught.value, click.ClickException)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(("values", "said"), REFUSED_TOGETHER)
def test_a_bad_combination_is_one_line(values, said):
    with pytest.raises(ConfigError) as caught:
        decode_config(Options(**values))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_off_is_not_the_same_as_not_given():
    assert decode_config(Options(vote_guard="off")).vote_guard is None
    assert decode_config(Options()).vote_guard is not None
    assert decode_config(Options(preset="paper")).vote_guard is None


def test_off_can_be_stored_and_is_in_the_list_of_options(llm_cli):
    llm_cli("models", "options", "set", "msi", "vote_guard", "off")
    assert "off" in llm_cli("models", "options", "show", "msi").out
    listed = " ".join(llm_cli("models", "--options", "-m", "msi").out.split())
    assert re.search(r"vote_guard: float [^:]*:[^:]*; or off\)", listed)


@pytest.mark.parametrize("name", DecodeConfig.model_fields)
def test_off_is_offered_where_it_is_taken(name):
    offered = "or off)" in Options.model_fields[name].description
    try:
        taken = getattr(decode_config(Options(**{name: "off"})), name) is None
    except OptionError:
        taken = False
    assert offered == taken


def test_options_with_off_are_written_without_a_complaint(recwarn):
    given = Options(vote_guard="off", kv_bits="off", seed=0).model_dump(mode="json")
    assert {name: value for name, value in given.items() if value is not None} == {
        "vote_guard": "off", "kv_bits": "off", "seed": 0,
    }  # fmt: skip
    assert not recwarn.list


def test_nothing_given_is_the_default_preset():
    assert decode_config(Options()) == DecodeConfig()


@pytest.mark.parametrize("name", PRESETS)
def test_a_given_value_wins_over_the_preset(name):
    config = decode_config(Options(preset=name, law="posterior", k="3"))
    assert config == DecodeConfig.preset(name, law="posterior", k=3)


def test_every_kind_of_embedder_is_offered():
    assert all(kind in Options.model_fields["embedder"].description for kind in ("onnx:", "llm:"))


def test_trace_is_a_switch_and_no_option_of_the_engine():
    assert wants_trace(Options(trace="1"))
    assert not wants_trace(Options(trace="0"))
    assert not wants_trace(Options())
    assert decode_config(Options(trace="1")) == DecodeConfig()


@pytest.mark.parametrize("name", DecodeConfig.model_fields)
def test_descriptions_end_with_default_bounds_and_choices(name):
    info = DecodeConfig.model_fields[name]
    text = Options.model_fields[name].description
    assert text.startswith(info.description)
    assert "(default " in text
    assert text.endswith(")")
    assert bounds(info) in text
    for part in (info.annotation, *typing.get_args(info.annotation)):
        if typing.get_origin(part) is typing.Literal:
            assert all(str(choice) in text for choice in typing.get_args(part))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("k", "1 to 64"),
        ("majority", "above 0 to 1"),
        ("seed", f"0 to {2**63 - 1}"),
        ("max_kv_size", "8 or more"),
        ("law", ""),
    ],
)
def test_bounds_in_words(name, words):
    assert bounds(DecodeConfig.model_fields[name]) == words
