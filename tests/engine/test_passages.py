"""Which parts of a prompt count as evidence, and when."""

from __future__ import annotations

import pytest

from msi_engine import DecodeConfig, Engine, Evidence
from msi_engine.passages import FEW, evidence_of
from msi_engine.prompt import Chat

STATEMENTS = [
    "The tide rises twice a day.",
    "It comes from the Moon, which pulls at the sea.",
    "Dr. Smith measured 3.14 metres.",
    "Sailors knew it long before that.",
]
PASSAGE = " ".join(STATEMENTS)
QUESTION = "What makes the tide?"


def asked(*contents, role="user"):
    return [{"role": role, "content": content} for content in contents]


def texts(prompt, source="auto", given=()):
    config = DecodeConfig(evidence_from=source)
    return [e.text for e in evidence_of(prompt, config, tuple(map(Evidence, given)))]


@pytest.mark.parametrize(
    "content",
    [
        f"{PASSAGE}\n\n{QUESTION}",
        f"{QUESTION} {PASSAGE}",
        f"{PASSAGE}\n \nSay in one sentence what this is about. Be brief.",
        f"Text:\n\n{PASSAGE}\n\n{QUESTION}",
        PASSAGE.replace(". ", ".\n"),
    ],
)
def test_the_passage_of_a_prompt_is_evidence_and_what_is_asked_is_not(content):
    assert texts(asked(content)) == [PASSAGE]


@pytest.mark.parametrize(
    "content",
    [
        QUESTION,
        "Write a story. It should be long. Be funny.",
        " ".join(STATEMENTS[:FEW]),
        " ".join([QUESTION] * 20),
        "Yes. No. Yes. No. Yes. No.",
        "def f(x):\n    return x\n\nprint(f(1))\n\nfor i in range(9):\n    f(i)\n\nExplain this.",
        "- milk\n- bread\n- a lot of butter\n- flour\n- twelve eggs\n\nWhat can I bake?",
    ],
)
def test_a_prompt_of_a_few_statements_has_none_of_its_own(content):
    assert texts(asked(content)) == []


def test_paragraphs_are_passages_of_their_own_and_each_counts_once():
    first, second = " ".join(STATEMENTS[:2]), " ".join(STATEMENTS[2:])
    messages = asked(f"{first}\n\n{second}\n\n{first}\n\n{QUESTION}")
    assert texts(messages) == [first, second]
    (passage, _) = evidence_of(messages, DecodeConfig(), ())
    assert passage.source == "prompt"


def test_earlier_turns_and_tools_count_and_answers_and_instructions_do_not():
    conversation = [
        {"role": "system", "content": PASSAGE.replace("tide", "style")},
        {"role": "user", "content": PASSAGE},
        {"role": "assistant", "content": PASSAGE.replace("tide", "answer")},
        {"role": "tool", "content": "The harbour has a gauge."},
        {"role": "user", "content": QUESTION},
    ]
    assert texts(conversation) == [PASSAGE, "The harbour has a gauge."]
    tools = [{"type": "function", "function": {"name": "look"}}]
    assert texts(Chat(conversation, tools)) == texts(conversation)
    everything = texts(conversation, "prompt")
    assert everything == [PASSAGE.replace("tide", "style"), PASSAGE, "The harbour has a gauge."]


def test_text_that_is_gone_on_with_and_token_ids_have_none():
    assert texts(PASSAGE) == []
    assert texts([5, 6, 7]) == texts([5, 6, 7], "prompt") == []
    assert texts(f"{PASSAGE}\n\n{QUESTION}", "prompt") == [PASSAGE]


def test_what_is_given_goes_before_the_prompt():
    messages = asked(f"{PASSAGE}\n\n{QUESTION}")
    assert texts(messages, "auto", ["Tea."]) == ["Tea."]
    assert texts(messages, "given", ["Tea."]) == ["Tea."]
    assert texts(messages, "given") == []
    assert texts(messages, "prompt", ["Tea."]) == ["Tea.", PASSAGE]
    assert texts(messages, "prompt", [PASSAGE, "Tea."]) == [PASSAGE, "Tea."]


def test_one_statement_is_enough_where_it_is_asked_for():
    assert texts(asked(f"{STATEMENTS[0]}\n\n{QUESTION}"), "prompt") == [STATEMENTS[0]]
    assert texts(asked(QUESTION), "prompt") == []


def test_other_scripts_have_sentences_too():
    japanese = (
        "潮は一日に二度満ちます。それは月から来ます、海を引きます。"
        "船乗りは知っていました。港には計器があります。"
    )
    config = DecodeConfig(language="ja")
    (passage,) = evidence_of(asked(f"{japanese}\n\nなぜですか？"), config, ())  # noqa: RUF001
    assert "なぜ" not in passage.text
    assert "港には計器があります。" in passage.text


@pytest.mark.real_model
def test_the_engine_hands_them_to_the_scorers():
    contexts = []

    class Silent:
        def score(self, paths):
            return [0.0 for _ in paths]

    def factory(context):
        contexts.append(context)
        return Silent()

    options = {"k": 2, "max_tokens": 2, "scorers": {"mine": 1.0}}
    for source in ("auto", "given"):
        Engine.load("embedded").generate(
            asked(f"{PASSAGE}\n\n{QUESTION}"),
            scorer_factories={"mine": factory},
            evidence_from=source,
            **options,
        )
    assert [c.evidence for c in contexts] == [(Evidence(PASSAGE, "prompt"),), ()]
