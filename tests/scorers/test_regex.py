from __future__ import annotations

import pytest
from msi_scorers.regex import RegexOptions, RegexScorer

from msi_engine import DecodeConfig, PathView, ScoreContext
from msi_engine.errors import ConfigError, ScorerError
from msi_engine.plugins import find_scorers
from msi_engine.testing import ToyModel, run_toy


def score(segment, committed="", **options):
    path = PathView(0, "", committed, segment, (), 0.0, False)
    [value] = RegexScorer(RegexOptions(**options)).score([path])
    return value


def test_the_worked_examples_of_the_docstring():
    texts = ("In 1969 and 1972", "In 1969", "Then")
    assert [score(t, pattern="[0-9]{4}", count=2) for t in texts] == [1.0, 0.5, 0.0]
    texts = ("Yes", "Y", "Maybe")
    assert [score(t, pattern="Yes|No", match="full") for t in texts] == [1.0, 0.5, 0.0]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"pattern": "tide"}, 0.0),
        ({"pattern": "tide", "scope": "text"}, 1.0),
        ({"pattern": "SEA"}, 0.0),
        ({"pattern": "SEA", "ignore_case": True}, 1.0),
        ({"pattern": "sea", "count": 4}, 0.5),
        ({"pattern": "x*"}, 1.0),
        ({"pattern": "sea", "match": "full"}, 0.0),
        ({"pattern": " the sea, sea!", "match": "full", "partial": 0.25}, 0.25),
        ({"pattern": "The tide: the sea, sea", "match": "full", "scope": "text"}, 1.0),
    ],
)
def test_options(options, expected):
    assert score(" the sea, sea", "The tide:", **options) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "`pattern`: field required"),
        ({"pattern": ""}, "`pattern`: .*at least 1 character"),
        ({"pattern": "(tide"}, r"`pattern`: .*not a pattern \(missing \)"),
        ({"pattern": "a", "match": "whole"}, "`match`"),
        ({"pattern": "a", "count": 0}, "`count`"),
    ],
)
def test_bad_options_are_one_line(options, message):
    with pytest.raises(ConfigError, match=f"options of scorer 'regex': {message}") as caught:
        find_scorers(["regex"], {})["regex"](ScoreContext(options=options))
    assert "\n" not in str(caught.value)


def test_a_pattern_that_explodes_ends_the_generation_with_an_error(monkeypatch):
    monkeypatch.setattr("msi_scorers.regex.TIMEOUT_S", 0.05)
    config = DecodeConfig(
        k=2,
        max_tokens=60,
        segment_length=60,
        boundary=("length",),
        scorers={"regex": 1.0},
        scorer_options={"regex": {"pattern": r"^(( a|a| )*)*$(?<!a)"}},
    )
    no = float("-inf")
    model = ToyModel.from_table({(): [2.0, 1.0, no, no, no, no], (0,): [0.0, no, no, no, no, no]})
    with pytest.raises(ScorerError, match=r"'regex'.*took more than 0.05 s.*nested repetition"):
        for _ in run_toy(config, model):
            pass
