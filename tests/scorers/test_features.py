"""The register feature space: each feature moves where it should, and others can be added."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from msi_scorers.features import feature_space
from msi_scorers.features.lexicon import LEXICON
from msi_scorers.features.register import NAMES

from msi_engine.errors import ConfigError

DOCS = (Path(__file__).parents[2] / "docs" / "scorers.md").read_text(encoding="utf-8")


def features(text):
    [row] = feature_space("register").measure([text])
    return dict(zip(NAMES, row.tolist(), strict=True))


def rate(count, words):
    return math.sqrt(100 * count / words)


# Each feature that is a count: a text, how often it is there, and of how many words.
COUNTS = {
    "first_singular": ("I said it to myself and it was mine", 3, 9),
    "first_plural": ("We lost our way, didn\u2019t we?", 3, 6),
    "second_person": ("You\u2019re late, are you", 2, 4),
    "third_person": ("They saw him by themselves", 3, 5),
    "demonstratives": ("This or that, these or those", 3, 6),
    "modals_possible": ("It can be, it might be, it cannot be", 3, 9),
    "modals_necessary": ("You must go; they shall", 2, 5),
    "modals_future": ("It will or it wouldn't", 2, 5),
    "hedges": ("Perhaps it seems likely", 3, 4),
    "boosters": ("It is very, very true", 2, 5),
    "private_verbs": ("I think you know", 2, 4),
    "reporting_verbs": ("He said, she told and they announced", 3, 7),
    "prepositions": ("Of the cat in the hat under it", 3, 8),
    "articles": ("The cat and a hat", 2, 5),
    "universals": ("Any person and all of each", 3, 6),
    "coordinators": ("Bread and milk or tea", 2, 5),
    "conditionals": ("If so, provided it fits unless not", 3, 7),
    "subordinators": ("The man who left because I came", 2, 7),
    "connectives": ("However, it is thus", 2, 4),
    "negations": ("Not now, never, no", 3, 4),
    "interjections": ("Hey, yeah, lol", 3, 3),
    "everyday": ("Got some stuff tonight", 3, 4),
    "legal_terms": ("The tenant and the landlord, a breach of clause nine", 4, 10),
    "research_terms": ("Our results show a significant effect", 4, 6),
    "news_terms": ("Police told the mayor of the election", 3, 7),
    "selling_terms": ("Shop now, save and enjoy", 4, 5),
    "imagery": ("The moon on the river at night", 3, 7),
    "feelings": ("My grief and your joy ache", 3, 6),
    "calendar": ("On Monday in June", 2, 4),
    "contractions": ("I don\u2019t, you can't, he's", 3, 5),
    "nominalisations": ("The statement of the situation and kindness", 3, 7),
    "ly_adverbs": ("Slowly and quietly they fly", 2, 5),
    "fronted_compounds": ("Herein and thereof, hereinafter", 3, 4),
    "past_tense": ("He went and walked and sees", 2, 6),
    "long_words": ("An elephant remembers me", 2, 4),
    "passives": ("It was quickly eaten, they are paid, it is good", 2, 10),
    "numerals": ("In 1969 and 3.5 or 1,000 it is", 3, 5),
    "percent_and_money": ("5% and 6 percent and $7 of p < 0.1", 4, 5),
    "enumerations": ("(a) and (ii) in section 3 or § 5", 4, 6),
    "citations": ("Known [3], and so say Li et al. (Roe 2001)", 3, 8),
    "brackets": ("One (two) [three]", 2, 3),
    "quotations": ('\u201cYes\u201d and "no"', 4, 3),
    "semicolons_and_colons": ("One: two; three", 2, 3),
    "commas": ("One, two, three", 2, 3),
    "dashes": ("One \u2013 two\u2014three", 2, 3),
    "ellipses": ("Well... so\u2026", 2, 2),
    "exclamations": ("Go! Now!", 2, 2),
    "questions": ("Who? Me?", 2, 2),
    "emoji": ("Nice :) very \u2764 nice \U0001f600", 3, 3),
    "stretched_words": ("Sooo good!! Nooo", 3, 3),
    "similes": ("Like a stone, as cold as ice, as if dead", 3, 10),
    "names": ("He met Ann Lee in Rome. Then he left", 3, 9),
    "line_breaks": ("one\ntwo\n\nthree", 2, 3),
    "alliteration": ("Wild winds wander over seas", 2, 5),
}

OTHERS = {
    "imperatives": ("Get it. He runs. Shop now.", 2 / 3),
    "small_starts": ('yes. No. "maybe" so.', 2 / 3),
    "word_length": ("a bb ccc", 2.0),
    "syllables": ("water is hmm", 4 / 3),
    "sentence_length": ("One two three. Four five six.", math.log(4)),
    "type_token_ratio": ("the tide the sea", 3 / 4),
    "formality": ("The statement of law, I hope", 100 * (1 + 1 + 1 - 1) / 6),
    "line_rhymes": ("under the moon\nsome words\na sailing spoon", 2 / 3),
    "anaphora": ("Here it is. Here we are. And so on.", 2 / 3),
}


def test_every_feature_is_tried_and_documented():
    assert set(COUNTS) | set(OTHERS) == set(NAMES)
    assert [n for n in re.findall(r"^\| `(\w+)` \|", DOCS, re.MULTILINE) if n in NAMES] == [*NAMES]


@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_square_roots_of_rates(name):
    text, count, words = COUNTS[name]
    assert features(text)[name] == pytest.approx(rate(count, words))
    assert features("It is so")[name] == pytest.approx(rate(name == "boosters", 3))


@pytest.mark.parametrize("name", OTHERS)
def test_other_features(name):
    text, expected = OTHERS[name]
    assert features(text)[name] == pytest.approx(expected)


def test_lines_rhyme_on_three_letters_with_another_word():
    assert features("a stone\nalone\nthe sea\nby me")["line_rhymes"] == 2 / 4
    assert features("a stone\nthe stone")["line_rhymes"] == 0.0


@pytest.mark.parametrize("text", ["", " \n", "3.14!", "\u6f6e"])
def test_every_text_has_a_row(text):
    row = feature_space("register").measure([text])
    assert row.shape == (1, len(NAMES))
    assert np.isnan(row).all() == (not any(c.isalpha() for c in text))


def test_no_texts_are_no_rows():
    assert feature_space("register").measure([]).shape == (0, len(NAMES))


def test_words_of_the_lists_can_occur():
    plain = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")
    assert [w for words in LEXICON.values() for w in words if not plain.fullmatch(w)] == []


SPACE = """
    import numpy as np

    class Vowels:
        names = ("a", "o")

        def measure(self, texts):
            return np.array([[text.count(c) for c in self.names] for text in texts], float)
"""


@pytest.fixture
def installed(tmp_path):
    """Runs a script where a package with the feature space ``vowels`` is installed."""
    (tmp_path / "acme.py").write_text(textwrap.dedent(SPACE))
    for name, entries in {
        "acme": "vowels = acme:Vowels\nbroken = acme:Nothing",
        "other": "twice = acme:Vowels",
        "third": "twice = acme:Vowels",
    }.items():
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[msi.features]\n{entries}\n")

    def run(script, **environment):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            env={**os.environ, "PYTHONPATH": str(tmp_path), **environment},
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=60,
        )
        return done.stdout.strip() or done.stderr.strip().splitlines()[-1]

    return run


LOOK_UP = "from msi_scorers.features import feature_space; print(feature_space({!r}).names)"


def test_an_installed_package_can_bring_a_feature_space(installed):
    assert installed(LOOK_UP.format("vowels")) == "('a', 'o')"
    message = installed(LOOK_UP.format("vowel"))
    assert message.endswith("no feature space 'vowel'; there are register, broken, vowels, twice")


@pytest.mark.parametrize(
    ("name", "environment", "message"),
    [
        ("broken", {}, r"'broken' \(of acme 1.0\) could not be made: AttributeError"),
        ("twice", {}, "'twice' is provided by other 1.0 and third 1.0; disable one"),
        ("vowels", {"MSI_DISABLE_PLUGINS": "acme"}, "no feature space 'vowels'"),
    ],
)
def test_a_feature_space_that_cannot_be_had_is_one_line(installed, name, environment, message):
    assert re.search(f"ConfigError: .*{message}", installed(LOOK_UP.format(name), **environment))


def test_registers_can_live_in_another_space(installed, tmp_path):
    (tmp_path / "vowels.toml").write_text(
        'space = "vowels"\n'
        '[[register]]\nname = "aa"\nexemplars = ["banana", "cat"]\n'
        '[[register]]\nname = "oo"\nexemplars = ["moon", "dog"]\n'
    )
    scores = installed(
        """
        from msi_engine import PathView, ScoreContext
        from msi_engine.plugins import find_scorers

        options = {"target": "oo", "file": "vowels.toml"}
        scorer = find_scorers(["register"], {})["register"](ScoreContext(options=options))
        views = [PathView(0, "", "", text, (), 0.0, False) for text in ("salsa", "solo", "")]
        print([round(value, 3) for value in scorer.score(views)])
        """
    )
    aa, oo, none = eval(scores)
    assert aa < 0 < oo
    # The features of an empty text are counts of 0 here, not missing.
    assert none != 0.0


def test_a_misspelt_space_is_an_error():
    with pytest.raises(ConfigError, match="no feature space 'registers'; there are register"):
        feature_space("registers")
