"""Evidence in the forms that callers have it, and what the engine hands on to the scorers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from msi_engine import Embedder, Engine, Evidence
from msi_engine.errors import ConfigError
from msi_engine.evidence import as_evidence
from msi_engine.prompt import last_question
from msi_engine.testing import ToyEmbedder


def document(text, **fields):
    """As LangChain's: text and metadata, perhaps an id."""
    return SimpleNamespace(page_content=text, **fields)


def test_every_form_becomes_the_same():
    given = [
        "Tea.",
        Evidence("Milk.", "milk.md", "2"),
        document("Sugar.", metadata={"source": "sugar.md", "page": 3}, id="7"),
        document("Honey.", metadata={}, id=None),
    ]
    assert as_evidence(given) == (
        Evidence("Tea."),
        Evidence("Milk.", "milk.md", "2"),
        Evidence("Sugar.", "sugar.md", "7"),
        Evidence("Honey."),
    )


@pytest.mark.parametrize("single", ["Tea.", Evidence("Tea."), document("Tea.", metadata={})])
def test_one_passage_needs_no_list(single):
    assert as_evidence(single) == (Evidence("Tea."),)


def test_blank_passages_are_left_out():
    assert as_evidence(["", " \n", "Tea.", document("\t", metadata={})]) == (Evidence("Tea."),)
    assert as_evidence(None) == as_evidence([]) == ()


@pytest.mark.parametrize("wrong", [3, [3], [b"Tea."], [None], [document(None)]])
def test_anything_else_is_refused_in_one_line(wrong):
    with pytest.raises(ConfigError, match="evidence must be") as caught:
        as_evidence(wrong)
    assert "\n" not in str(caught.value)


def test_the_question_is_the_last_user_message_or_the_whole_prompt():
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "What is tea?"},
        {"role": "assistant", "content": "Tea is"},
    ]
    assert last_question(messages, "rendered") == "What is tea?"
    assert last_question("What is tea?", "What is tea?") == "What is tea?"
    assert last_question([5, 6], "decoded") == "decoded"


def test_the_toy_embedder_is_an_embedder():
    assert isinstance(ToyEmbedder(), Embedder)
    first, second, third = ToyEmbedder().embed(["the tea", "Tea!", "rain"])
    assert first @ second > 0
    assert first @ third == 0


class Recorder:
    def __init__(self, context):
        self.context = context

    def score(self, paths):
        return [0.0 for _ in paths]


@pytest.mark.real_model
def test_the_engine_hands_them_to_the_scorers():
    engine, embedder, contexts = Engine.load("embedded"), ToyEmbedder(), []

    def factory(context):
        contexts.append(context)
        return Recorder(context)

    options = {"k": 2, "max_tokens": 3, "scorers": {"mine": 1.0}}
    given = {"evidence": ["Tea is a drink."], "embedder": embedder}
    question = [{"role": "user", "content": "What is tea?"}]
    engine.generate(question, scorer_factories={"mine": factory}, **given, **options)
    list(engine.stream(question, scorer_factories={"mine": factory}, **given, **options))
    assert len(contexts) == 2
    for context in contexts:
        assert context.evidence == (Evidence("Tea is a drink."),)
        assert context.embedder is embedder
        assert context.question == "What is tea?"
        assert "<|im_start|>" in context.prompt
    engine.generate("Tea", scorer_factories={"mine": factory}, **options)
    assert contexts[-1].evidence == ()
    assert contexts[-1].embedder is None


def test_wrong_evidence_is_refused_before_anything_runs():
    class NoEngine(Engine):
        model_name = "none"

        def __init__(self):
            pass

    with pytest.raises(ConfigError, match="evidence must be"):
        NoEngine().stream("Tea", evidence=[3])
