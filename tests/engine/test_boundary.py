"""Names of boundaries, paragraphs, stop strings, and what no boundary may do."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msi_engine.boundary import (
    BoundaryContext,
    StopStrings,
    boundary_names,
    make_boundaries,
    register_boundary,
    registry,
)
from msi_engine.errors import ConfigError
from tests.engine.boundary_cases import CASES, MARK

# How long an example takes says nothing on a busy machine.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def context(segment: str, committed: str = "", *, mass: float = 1.0, complete: bool = True):
    return BoundaryContext(committed, segment, 1, complete, lambda: mass)


def paragraphs(text: str) -> list[str]:
    """The segments that a stream of ``text``, character by character, is cut into."""
    (boundary,) = make_boundaries(["paragraph"])
    segments, start = [], 0
    for end in range(1, len(text) + 1):
        if boundary.reached(context(text[start:end], text[:start])):
            segments.append(text[start:end])
            start = end
    return [*segments, text[start:]] if start < len(text) else segments


def test_names_in_order_each_once_and_the_decoders_own_left_out():
    made = make_boundaries(["paragraph", "length", "sentence", "eos", "paragraph", "stop"])
    assert [b.name for b in made] == ["paragraph", "sentence"]


def test_an_unknown_name_is_an_error_that_lists_the_known():
    with pytest.raises(ConfigError, match=r"'verse'.*sentence, paragraph, .*length, eos, stop"):
        make_boundaries(["sentence", "verse"])


def test_third_parties_register_boundaries(monkeypatch):
    monkeypatch.setattr(registry, "_FACTORIES", dict(registry._FACTORIES))

    class Comma:
        name = "comma"

        def __init__(self, language):
            self.language = language

        def reached(self, context):
            return context.segment.endswith(",")

    register_boundary("comma", Comma)
    assert "comma" in boundary_names()
    (comma,) = make_boundaries(["comma"], language="fr")
    assert comma.language == "fr"
    assert comma.reached(context("So,"))
    for taken in ("comma", "sentence", "eos"):
        with pytest.raises(ConfigError, match=taken):
            register_boundary(taken, Comma)


@pytest.mark.parametrize("name", ["sentence", "paragraph"])
@pytest.mark.parametrize("segment", ["", "Done.", "すごい。", "Done.\n"])
def test_an_incomplete_character_is_never_a_boundary(name, segment):
    (boundary,) = make_boundaries([name])
    assert not boundary.reached(context(segment, complete=False))


def test_white_space_after_a_stop_settles_it_without_the_model():
    (sentence,) = make_boundaries(["sentence"])
    assert sentence.reached(context("Done. ", mass=0.0))
    assert not sentence.reached(context("Done.", mass=0.1))
    assert sentence.reached(context("Done.", mass=0.9))


def test_the_model_is_not_asked_in_the_common_step():
    (sentence,) = make_boundaries(["sentence"])

    def refuse() -> float:
        raise AssertionError("asked")

    for segment in ["Hello", "Hello ", "Hello,", "I met Dr.", "1.", "Wait..."]:
        assert not sentence.reached(BoundaryContext("", segment, 1, True, refuse))


def test_a_segment_of_closing_marks_alone_is_no_sentence():
    (sentence,) = make_boundaries(["sentence"])
    for segment in ['"', ")", " ", "\n", ".", "..", "”", "**", "😀"]:
        assert not sentence.reached(context(segment, 'He said, "Stop.'))


@pytest.mark.parametrize("language", ["EN", "en-US", "en_GB", "xx", "deu"])
def test_any_language_tag_is_accepted(language):
    (sentence,) = make_boundaries(["sentence"], language=language)
    assert sentence.reached(context("It is done."))


@UNHURRIED
@given(committed=st.text(max_size=60), segment=st.text(max_size=60), mass=st.floats(0, 1))
def test_no_text_makes_a_boundary_fail_and_answers_repeat(committed, segment, mass):
    for boundary in make_boundaries(["sentence", "paragraph"]):
        first = boundary.reached(context(segment, committed, mass=mass))
        boundary.reached(context("Other text.\n```\n", "Other"))  # a boundary keeps no state
        assert boundary.reached(context(segment, committed, mass=mass)) == first
        if first:
            assert segment.strip()


@UNHURRIED
@given(case=st.sampled_from(CASES), data=st.data())
def test_the_answer_does_not_depend_on_text_long_gone(case, data):
    language, _, marked = case
    text = marked.replace(MARK, "")
    end = data.draw(st.integers(1, len(text)))
    (sentence,) = make_boundaries(["sentence"], language=language)
    before = "Some words of an earlier paragraph stand here.\n\n" * 20
    assert sentence.reached(context(text[:end], before)) == sentence.reached(context(text[:end]))


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("One.\n\nTwo.", ["One.\n", "\nTwo."]),
        ("One\nTwo\n", ["One\n", "Two\n"]),
        ("\n\nOne", ["\n\nOne"]),
        ("- a\n- b\n\nc", ["- a\n", "- b\n", "\nc"]),
        ("# Head\nText", ["# Head\n", "Text"]),
        ("No newline. At all.", ["No newline. At all."]),
        ("A:\n```py\nx = 1\n\ny = 2\n```\nB", ["A:\n", "```py\nx = 1\n\ny = 2\n```\n", "B"]),
        ("~~~~\na\n~~~\nb\n~~~~\nB\n", ["~~~~\na\n~~~\nb\n~~~~\n", "B\n"]),
        ("- x\n  ```\n  a\n  ```\nB", ["- x\n", "  ```\n  a\n  ```\n", "B"]),
        ("Use ```a``` here\nB", ["Use ```a``` here\n", "B"]),
        ("```a``` is code\nB", ["```a``` is code\n", "B"]),
        ("```\nnever closed\n", ["```\nnever closed\n"]),
        ("One \r\nTwo", ["One \r\n", "Two"]),
    ],
)
def test_paragraphs(text, segments):
    assert paragraphs(text) == segments


def test_a_fence_opened_in_committed_text_holds_in_the_segment():
    sentence, paragraph = make_boundaries(["sentence", "paragraph"])
    for committed in ["```\ncode\n", "```\nco", "text\n``"]:
        rest = "`\nIt is. \n" if committed.endswith("``") else "It is. \n"
        assert not paragraph.reached(context(rest, committed))
        assert not sentence.reached(context(rest, committed))
    closed = "```\ncode\n```\n"
    assert sentence.reached(context("It is.", closed))
    assert paragraph.reached(context("It is.\n", closed))


WORDS = st.text(alphabet="ab", min_size=1, max_size=4)


@UNHURRIED
@given(text=st.text(alphabet="ab", max_size=30), strings=st.lists(WORDS, min_size=1, max_size=4))
def test_find_is_the_earliest_of_all(text, strings):
    expected = min((i for s in strings if (i := text.find(s)) >= 0), default=None)
    assert StopStrings(strings).find(text) == expected


@UNHURRIED
@given(chunks=st.lists(st.text(alphabet="ab", max_size=4), max_size=12), strings=st.lists(WORDS))
def test_a_stream_emits_all_before_the_stop_string_and_nothing_of_it(chunks, strings):
    stops, text, emitted, seen = StopStrings(strings), "", "", 0
    for chunk in chunks:
        text += chunk
        at = stops.find(text, seen)
        if at is not None:
            emitted = text[:at]
            break
        seen = len(text)
        safe = text[: len(text) - stops.hold_back(text)]
        assert safe.startswith(emitted)  # nothing is taken back
        emitted = safe
    else:
        emitted = text
    whole = "".join(chunks)
    first = min((i for s in strings if (i := text.find(s)) >= 0), default=None)
    assert emitted == (whole if first is None else text[:first])


@UNHURRIED
@given(text=st.text(alphabet="ab", max_size=12), strings=st.lists(WORDS, min_size=1, max_size=3))
def test_hold_back_is_the_least_that_is_safe(text, strings):
    held = StopStrings(strings).hold_back(text)
    ends = [
        n
        for n in range(len(text) + 1)
        if any(s.startswith(text[len(text) - n :]) and len(s) > n for s in strings)
    ]
    assert held == max(ends)


def test_an_empty_stop_string_is_an_error():
    with pytest.raises(ConfigError, match="empty"):
        StopStrings(["a", ""])
    assert not StopStrings([])
    assert StopStrings(["a"])
