import pytest
from msi_scorer_example import PlainWordsOptions, PlainWordsScorer, make_scorer

from msi_engine import DecodeConfig, PathView
from msi_engine.errors import ConfigError
from msi_engine.plugins import find_scorers
from msi_engine.scorer import ScoreContext
from msi_engine.testing import ToyModel, ToyTokenizer, check_scorer, run_toy


def test_long_words_cost():
    scorer = PlainWordsScorer(PlainWordsOptions(longest=4))
    texts = ["the tide", "the current", "", "12"]
    views = [PathView(i, "", "", text, (), 0.0, False) for i, text in enumerate(texts)]
    assert scorer.score(views) == [0.0, -0.5, 0.0, 0.0]


def test_it_keeps_the_contract():
    check_scorer(make_scorer, options={"longest": 5})


def test_msi_finds_it_and_checks_its_options():
    factory = find_scorers(["plain-words"], {})["plain-words"]
    with pytest.raises(ConfigError, match="options of scorer 'plain-words'"):
        factory(ScoreContext(options={"longest": 0}))


def test_it_steers_a_generation():
    tokenizer = ToyTokenizer((" tide", " circulation", ".", "</s>"))
    model = ToyModel.from_table({(): [0.0, 0.1, -9.0, -9.0], (0,): [-9, -9, 0, -9],
                                 (1,): [-9, -9, 0, -9], (2,): [-9, -9, -9, 0]})  # fmt: skip
    config = DecodeConfig(k=2, max_tokens=4, majority=1.0, scorers={"plain-words": 5.0})
    text = "".join(getattr(e, "text", "") for e in run_toy(config, model, tokenizer, prompt=[3])
                   if type(e).__name__ == "Committed")  # fmt: skip
    assert text == " tide."
