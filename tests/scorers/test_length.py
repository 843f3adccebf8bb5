from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msi_scorers.length import LengthOptions, LengthScorer

from msi_engine import DecodeConfig, PathView, ScoreContext
from msi_engine.errors import ConfigError
from msi_engine.events import Collapsed
from msi_engine.plugins import find_scorers
from msi_engine.testing import ToyModel, ToyTokenizer, run_toy


def view(segment="", tokens=(), committed=""):
    return PathView(0, "prompt", committed, segment, tuple(tokens), -1.0, False)


def score(segment="", tokens=(), committed="", **options):
    [value] = LengthScorer(LengthOptions(**options)).score([view(segment, tokens, committed)])
    return value


def test_the_worked_example_of_the_docstring():
    assert [score("x" * n) for n in (40, 80, 160)] == [-1 / 3, 0.0, -1 / 3]


def test_tokens_and_characters_are_what_they_say():
    assert score("é" * 5, range(9), target=5) == 0.0
    assert score("é" * 5, range(9), target=9, unit="tokens") == 0.0
    assert score("x" * 5, committed="y" * 100, target=5) == 0.0


@given(n=st.integers(0, 10**4), target=st.integers(1, 10**4))
def test_it_is_minus_tanh_of_half_the_log_ratio(n, target):
    value = score(tokens=range(n), target=target, unit="tokens")
    assert -1.0 <= value <= 0.0
    assert (value == 0.0) == (n == target)
    expected = -math.tanh(abs(math.log(n / target)) / 2) if n else -1.0
    assert math.isclose(value, expected, abs_tol=1e-12)


@given(target=st.integers(1, 1000), a=st.integers(0, 1000), b=st.integers(0, 1000))
def test_on_one_side_of_the_target_nearer_is_better(target, a, b):
    if a != b and (a <= target) == (b <= target):
        nearer, farther = sorted((a, b), key=lambda n: abs(n - target))
        near, far = (
            score(tokens=range(n), target=target, unit="tokens") for n in (nearer, farther)
        )
        assert near > far


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": 0}, "`target`: input should be greater than or equal to 1, got 0"),
        ({"unit": "words"}, "`unit`: .*'words'"),
        ({"traget": 5}, "unknown option 'traget'"),
    ],
)
def test_bad_options_are_one_line(options, message):
    factory = find_scorers(["length"], {})["length"]
    with pytest.raises(ConfigError, match=f"options of scorer 'length': {message}") as caught:
        factory(ScoreContext(options=options))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("target", "text"), [(2, " tide."), (4, " sea sea sea.")])
def test_with_a_great_weight_it_decides_which_path_is_committed(target, text):
    tokenizer = ToyTokenizer((" tide", " sea", ".", "</s>"))
    no = -math.inf
    model = ToyModel.from_table(
        {
            (): [1.0, 1.0, no, no],
            (0,): [no, no, 0.0, no],
            (1,): [no, 0.0, no, no],
            (1, 1, 1): [no, no, 0.0, no],
            (2,): [no, no, no, 0.0],
        }
    )
    config = DecodeConfig(
        k=2,
        max_tokens=20,
        majority=1.0,
        scorers={"length": 50.0},
        scorer_options={"length": {"target": target, "unit": "tokens"}},
    )
    events = run_toy(config, model, tokenizer, prompt=[3])
    first = next(e for e in events if isinstance(e, Collapsed))
    assert first.text == text
    signals = {path.text: path.signals for path in first.paths}
    assert signals == {
        " tide.": {"length": -abs(2 - target) / (2 + target)},
        " sea sea sea.": {"length": -abs(4 - target) / (4 + target)},
    }
