from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msi_scorers.agreement import AgreementScorer

from msi_engine import PathView


def score(segment, *others):
    [value] = AgreementScorer().score([PathView(0, "", "", segment, (), 0.0, False, others)])
    return value


def test_the_worked_example_of_the_docstring():
    assert score("The tide comes back", "The tide comes in", "The tide goes out") == 0.625


@pytest.mark.parametrize(
    ("segment", "others", "expected"),
    [
        ("the tide", (), 0.0),
        ("", ("", ""), 0.0),
        ("the tide", ("",), 0.0),
        ("The tide.", ("the tide",), 1.0),
        ("tide tide tide", ("tide",), 0.5),
    ],
)
def test_edges(segment, others, expected):
    assert score(segment, *others) == expected


SEGMENTS = st.lists(st.sampled_from("abcd"), max_size=8).map(" ".join)


@given(segment=SEGMENTS, others=st.lists(SEGMENTS, min_size=1, max_size=4))
def test_it_is_the_mean_f1_of_the_words(segment, others):
    def f1(a, b):
        common = (Counter(a.split()) & Counter(b.split())).total()
        if not common:
            return 0.0
        precision, recall = common / len(a.split()), common / len(b.split())
        return 2 * precision * recall / (precision + recall)

    expected = sum(f1(segment, other) for other in others) / len(others)
    assert score(segment, *others) == pytest.approx(expected)
