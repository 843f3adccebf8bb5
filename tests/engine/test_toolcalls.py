"""Tool calls read from an answer: the same pieces however the text is chunked."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx_lm.tool_parsers import (
    function_gemma,
    gemma4,
    glm47,
    json_tools,
    kimi_k2,
    longcat,
    minicpm5,
    minimax_m2,
    mistral,
    pythonic,
    qwen3_coder,
)

from msi_engine.toolcalls import BrokenToolCall, ToolCall, ToolReader

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        },
    },
}
ARGUMENTS = {"city": "Oslo", "days": 2}
# How each model writes the call weather(city="Oslo", days=2).
WRITTEN = {
    json_tools: '{"name": "weather", "arguments": {"city": "Oslo", "days": 2}}',
    qwen3_coder: "<function=weather>\n<parameter=city>\nOslo\n</parameter>\n"
    "<parameter=days>\n2\n</parameter>\n</function>",
    pythonic: '[weather(city="Oslo", days=2)]',
    mistral: 'weather[ARGS]{"city": "Oslo", "days": 2}',
    glm47: "weather<arg_key>city</arg_key><arg_value>Oslo</arg_value>"
    "<arg_key>days</arg_key><arg_value>2</arg_value>",
    function_gemma: "call:weather{city:<escape>Oslo<escape>,days:2}",
    gemma4: 'call:weather{city:<|"|>Oslo<|"|>,days:2}',
    kimi_k2: "<|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"
    '{"city": "Oslo", "days": 2}<|tool_call_end|>',
    longcat: "weather\n<longcat_arg_key>city</longcat_arg_key>\n"
    "<longcat_arg_value>Oslo</longcat_arg_value>\n<longcat_arg_key>days</longcat_arg_key>\n"
    "<longcat_arg_value>2</longcat_arg_value>",
    minimax_m2: '<invoke name="weather">\n<parameter name="city">Oslo</parameter>\n'
    '<parameter name="days">2</parameter>\n</invoke>',
    minicpm5: '"weather"><param name="city">Oslo</param><param name="days">2</param>',
}


def model(module=json_tools, *, thinks=False):
    return SimpleNamespace(
        tool_parser=module.parse_tool_call,
        tool_call_start=module.tool_call_start,
        tool_call_end=module.tool_call_end,
        has_thinking=thinks,
        think_start="<think>" if thinks else None,
        think_end="</think>" if thinks else None,
    )


def read(chunks, tokenizer=None, *, cut=False):
    reader = ToolReader(tokenizer or model(), [WEATHER])
    pieces = [piece for chunk in chunks for piece in reader.push(chunk)]
    return [*pieces, *reader.finish(cut=cut)]


def plain(pieces):
    """Neighbouring texts joined, calls without their ids."""
    result = []
    for piece in pieces:
        if isinstance(piece, str) and result and isinstance(result[-1], str):
            result[-1] += piece
        elif isinstance(piece, ToolCall):
            result.append((piece.name, piece.arguments))
        elif isinstance(piece, BrokenToolCall):
            result.append((piece.text, piece.reason))
        else:
            result.append(piece)
    return result


def call(**arguments):
    return f"<tool_call>{json.dumps({'name': 'weather', 'arguments': arguments})}</tool_call>"


@pytest.mark.parametrize("module", WRITTEN, ids=lambda m: m.__name__.rpartition(".")[2])
def test_every_form_that_mlx_lm_reads(module):
    text = f"Let me see.\n{module.tool_call_start}\n{WRITTEN[module]}\n{module.tool_call_end}"
    assert plain(read(text, model(module))) == ["Let me see.", ("weather", ARGUMENTS)]
    assert plain(read([text], model(module))) == ["Let me see.", ("weather", ARGUMENTS)]


PARTS = st.sampled_from(
    [
        "",
        " ",
        "\n",
        "a",
        "Well, ",
        "<",
        "<tool",
        "<tool_call>",
        "</tool_call>",
        call(days=1),
        call(city="Rom\n"),
        "<think>",
        "</think>",
        "{}",
        "\n\n",
    ]
)


@given(st.lists(PARTS, max_size=8), st.data(), st.booleans(), st.booleans())
def test_the_pieces_do_not_depend_on_the_chunks(parts, data, thinks, cut):
    text = "".join(parts)
    borders = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    chunks = [text[a:b] for a, b in zip([0, *borders], [*borders, len(text)], strict=True)]
    tokenizer = model(thinks=thinks)
    assert plain(read(chunks, tokenizer, cut=cut)) == plain(read([text], tokenizer, cut=cut))


@given(st.lists(PARTS.filter(lambda p: "<tool_call>" not in p), max_size=8), st.data())
def test_an_answer_without_calls_is_its_text(parts, data):
    text = "".join(parts).replace("<tool_call>", "")
    assert "".join(read(text)) == text
    assert "".join(read([text], cut=True)) == text


def test_text_is_told_as_soon_as_it_can_be():
    reader = ToolReader(model(), [WEATHER])
    assert list(reader.push("One moment. ")) == ["One moment."]
    assert list(reader.push("I look")) == [" I look"]
    assert list(reader.push(" it up: <to")) == [" it up:"]
    assert list(reader.push("ast>")) == [" <toast>"]
    assert list(reader.push("\n<tool_call>\n")) == []
    assert list(reader.push(WRITTEN[json_tools])) == []
    [found] = reader.push("</tool_call>\n")
    assert (found.name, found.arguments) == ("weather", ARGUMENTS)
    assert list(reader.finish()) == []


def test_white_space_around_calls_is_no_text():
    text = f"\n{call(days=1)}\n\n{call(days=2)}\n"
    assert plain(read(text)) == [("weather", {"days": 1}), ("weather", {"days": 2})]
    assert plain(read(f"{call(days=1)} So.\n")) == [("weather", {"days": 1}), "So.\n"]


def test_no_call_is_looked_for_in_thoughts():
    text = f"<think>Shall I write {call(days=9)}?</think>\n{call(days=1)}"
    assert plain(read(text, model(thinks=True))) == [
        f"<think>Shall I write {call(days=9)}?</think>",
        ("weather", {"days": 1}),
    ]


def test_each_call_has_an_id_of_its_own():
    ids = [piece.id for piece in read(call(days=1) * 3)]
    assert len(set(ids)) == 3
    assert all(len(i) == 9 and i.isalnum() for i in ids)  # Mistral's templates insist


def test_an_id_of_the_models_own_is_kept():
    written = f"{kimi_k2.tool_call_start}{WRITTEN[kimi_k2]}{kimi_k2.tool_call_end}"
    assert [piece.id for piece in read([written], model(kimi_k2))] == ["functions.weather:0"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{nonsense", "Expecting property name"),
        ('{"arguments": {}}', "names no tool"),
        ('{"name": "", "arguments": {}}', "names no tool"),
        ('{"name": "f", "arguments": [1]}', "no object"),
        ("[]", "names no tool"),
        ("", "Expecting value"),
    ],
)
def test_what_cannot_be_read_is_told_with_the_reason(text, reason):
    [broken] = read(f"<tool_call>{text}</tool_call>")
    assert isinstance(broken, BrokenToolCall)
    assert broken.text == f"<tool_call>{text}</tool_call>"
    assert reason in broken.reason
    assert "\n" not in broken.reason


def test_a_call_that_the_budget_cut_off_is_never_made():
    text = "Yes. " + call(days=12)[: -len("</tool_call>")]
    assert plain(read(text, cut=True)) == [
        "Yes.",
        (text[5:], "the call cannot be read: the answer was cut off within it; raise max_tokens"),
    ]
    assert plain(read(text)) == ["Yes.", ("weather", {"days": 12})]  # the model itself had ended


def test_several_calls_behind_one_mark():
    text = '[TOOL_CALLS]weather[ARGS]{"days": 1}weather[ARGS]{"days": 2}'
    assert plain(read(text, model(mistral))) == [
        ("weather", {"days": 1}),
        ("weather", {"days": 2}),
    ]


def test_a_mark_that_begins_with_its_own_beginning():
    doubled = SimpleNamespace(
        tool_parser=json_tools.parse_tool_call, tool_call_start="<<<call>", tool_call_end="</>"
    )
    text = f"a << b <<<<call>{WRITTEN[json_tools]}</>"
    expected = ["a << b <", ("weather", ARGUMENTS)]
    assert plain(read(text, doubled)) == plain(read([text], doubled)) == expected
