from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from msi_scorers.words import last_words, split_at_word, words

TEXT = st.text(st.sampled_from("ab c'\u2019_.\n9é潮は"), max_size=30)


def test_words_have_no_case_and_keep_their_apostrophes():
    assert words("Don't — the TIDE's 3.14 'so'") == ["don't", "the", "tide's", "3", "14", "so"]


def test_where_words_are_not_spaced_each_character_is_one():
    assert words("潮はくる sea") == ["潮", "は", "く", "る", "sea"]


@given(TEXT, TEXT)
@example("9'a9", "9")  # "9'a" and "99", but "9" and "a99" if it is divided at the apostrophe
def test_no_word_lies_across_the_division(committed, segment):
    before, after = split_at_word(committed, segment)
    assert before + after == committed + segment
    assert words(before) + words(after) == words(committed + segment)
    assert len(before) <= len(committed)


@given(TEXT, st.integers(1, 6))
def test_last_words_is_an_end_of_the_text_with_so_many_words(text, count):
    end = last_words(text, count)
    assert text.endswith(end)
    assert end.split() == text.split()[-count:]
