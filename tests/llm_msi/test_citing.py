"""Citations: where they stand, and that nothing of the answer is lost or changed."""

from __future__ import annotations

import re

import pytest

from llm_msi.citing import Citer
from msi_engine import Evidence
from msi_engine.events import Collapsed, Committed, Finished, Stats
from msi_engine.testing import ToyEmbedder

EVIDENCE = (
    Evidence("The tide comes from the Moon.", "sea.txt", "1"),
    Evidence("Bees make honey.", "bees.txt", "2"),
)


def collapsed(text, reason="sentence"):
    return Collapsed(0, reason, "argmax", 0, (1,), text, (), 1.0)


def finished(reason="eos"):
    return Finished(reason, Stats(), 0)


def cited(*events, evidence=EVIDENCE, **options):
    citer = Citer(evidence, ToyEmbedder(), **options)
    return "".join(citer.take(event) for event in events)


def answer(*segments):
    """As the decoder tells it: each segment is collapsed, then handed out."""
    events = []
    for text, reason in segments:
        events += [collapsed(text, reason), Committed(text)]
    return [*events, finished()]


SEGMENTS = [
    ("The tide comes from the Moon.", "sentence"),
    (" Snow is cold.", "sentence"),
    (" Bees make", "length"),
    (" honey", "majority"),
    (".\n\n", "paragraph"),
    ("The Moon, the tide", "eos"),
]
EXPECTED = (
    "The tide comes from the Moon. [1] Snow is cold. Bees make honey. [2]\n\nThe Moon, the tide [1]"
)


def test_each_sentence_ends_with_its_chunk_and_a_distant_one_with_none():
    assert cited(*answer(*SEGMENTS)) == EXPECTED


def test_without_the_numbers_it_is_the_answer():
    text = "".join(text for text, _ in SEGMENTS)
    assert re.sub(r" \[\d\]", "", cited(*answer(*SEGMENTS))) == text


@pytest.mark.parametrize("step", [1, 2, 7])
def test_text_that_comes_before_its_collapse_is_cited_the_same(step):
    """A path that is alone is handed out token by token."""
    events = []
    for text, reason in SEGMENTS:
        events += [Committed(text[i : i + step]) for i in range(0, len(text), step)]
        events.append(collapsed(text, reason))
    assert cited(*events, finished()) == EXPECTED


def test_text_that_a_stop_string_held_back_is_cited_where_its_sentence_ends():
    first, second = "Bees make honey.", " The tide comes."
    events = [
        *(collapsed(first), Committed("Bees make ")),
        *(collapsed(second), Committed("honey. The tide comes.")),
    ]
    assert cited(*events, finished()) == "Bees make honey. [2] The tide comes. [1]"


def test_an_answer_that_was_cut_off_in_a_sentence():
    assert cited(*answer(("Bees make", "budget"))) == "Bees make [2]"


@pytest.mark.parametrize("text", ["", "\n\n", "..."])
def test_what_says_nothing_has_no_source(text):
    assert cited(*answer((text, "sentence"))) == text


def test_white_space_at_the_end_is_not_lost():
    assert cited(*answer(("Bees make honey. \n", "eos"))) == "Bees make honey. [2] \n"


def test_least_is_the_least_cosine():
    sentence = [("Bees sleep.", "sentence")]
    assert cited(*answer(*sentence), least=0.3).endswith("[2]")
    assert cited(*answer(*sentence), least=0.6) == "Bees sleep."


def test_a_long_chunk_is_found_by_its_end():
    long = Evidence("Snow is cold. " * 100 + "Bees make honey. " * 40, "long.txt", "7")
    text = cited(*answer(("Bees make honey.", "eos")), evidence=[EVIDENCE[0], long])
    assert text == "Bees make honey. [7]"
