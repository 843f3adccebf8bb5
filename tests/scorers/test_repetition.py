from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msi_scorers.repetition import RepetitionOptions, RepetitionScorer

from msi_engine import PathView


def score(segment, committed="", **options):
    path = PathView(0, "the tide the tide", committed, segment, (), -1.0, False)
    [value] = RepetitionScorer(RepetitionOptions(**options)).score([path])
    return value


def test_the_worked_example_of_the_docstring():
    assert score("the tide and the tide again", n=2) == pytest.approx(-0.2)


def test_what_is_committed_counts_unless_only_the_segment_does():
    committed, segment = "The tide goes out. ", "The tide goes out again."
    assert score(segment, committed, n=3) == pytest.approx(-2 / 5)  # of 5 with "goes out the"
    assert score(segment, committed, n=3, scope="segment") == 0.0


def test_a_word_is_one_even_if_a_collapse_cuts_it():
    assert score("er goes out", "the wat", n=2) == score("water goes out", "the ", n=2)


@pytest.mark.parametrize("segment", ["", " ", "one", "one two"])
def test_a_text_too_short_for_an_ngram_is_neutral(segment):
    assert score(segment) == 0.0


WORDS = st.lists(st.sampled_from("abc"), max_size=12)


@given(committed=WORDS, segment=WORDS, n=st.integers(1, 4))
def test_it_is_the_share_that_occurs_earlier(committed, segment, n):
    """Against a count by definition: every n-gram that ends in the segment, looked for before."""
    all_words = committed + segment
    ends = [e for e in range(len(committed) + 1, len(all_words) + 1) if e >= n]
    repeated = sum(
        any(all_words[e - n : e] == all_words[d - n : d] for d in range(n, e)) for e in ends
    )
    value = score(" ".join(segment), "".join(w + " " for w in committed), n=n)
    assert value == pytest.approx(-repeated / len(ends) if ends else 0.0)
    assert -1.0 <= value <= 0.0
