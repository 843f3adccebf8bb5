from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from msi_engine import DecodeConfig
from msi_engine.boundary import BoundaryContext, make_boundaries
from msi_engine.errors import ConfigError
from msi_engine.events import Collapsed
from msi_engine.plugins import load_boundaries
from msi_engine.testing import ToyModel, ToyTokenizer, run_toy

HELD_OUT = tomllib.loads((Path(__file__).parent / "held_out.toml").read_text(encoding="utf-8"))


@pytest.fixture
def boundary():
    load_boundaries(["register"])
    [made] = make_boundaries(["register"])
    return made


def reached(boundary, committed, segment, *, complete=True, end_mass=1.0):
    words = len(segment.split())
    return boundary.reached(BoundaryContext(committed, segment, words, complete, lambda: end_mass))


def ends(boundary, committed, text):
    """Words after which the boundary is reached while ``text`` grows word by word."""
    found, segment = [], ""
    for number, word in enumerate(re.findall(r"\S+\s*", text), start=1):
        segment += word
        if reached(boundary, committed, segment):
            found.append(number)
            committed, segment = committed + segment, ""
    return found


def test_it_is_reached_once_when_the_register_changes(boundary):
    first, second = HELD_OUT["legal"][0] + "\n", HELD_OUT["casual"][1]
    [end] = ends(boundary, first, second)
    assert 5 < end < 40


def test_it_is_found_on_held_out_texts_and_rarely_where_it_is_not(boundary):
    """Was 0.94 of the changes, and 0.07 of the texts without one."""
    names = list(HELD_OUT)
    changes = [
        bool(ends(boundary, HELD_OUT[a][0] + "\n", HELD_OUT[b][0]))
        for a in names
        for b in names
        if a != b
    ]
    same = [
        bool(ends(boundary, texts[i] + "\n", texts[i + 1]))
        for texts in HELD_OUT.values()
        for i in range(0, 8, 2)
    ]
    assert sum(changes) / len(changes) >= 0.85
    assert sum(same) / len(same) <= 0.15


CHANGED = HELD_OUT["legal"][0] + "\n", HELD_OUT["casual"][1]


def test_it_waits_for_the_end_of_a_word_and_of_a_character(boundary):
    committed, segment = CHANGED
    assert reached(boundary, committed, segment)
    assert reached(boundary, committed, segment + " ", end_mass=0.0)
    assert not reached(boundary, committed, segment, end_mass=0.4)
    assert not reached(boundary, committed, segment, complete=False)


@pytest.mark.parametrize("text", ["", " ", "Too short to say.", "1 2 3 " * 100])
def test_where_there_is_no_register_there_is_no_boundary(boundary, text):
    assert not reached(boundary, "", text)
    assert not reached(boundary, text, "")


def test_span_and_threshold_stand_in_the_users_file(tmp_path, monkeypatch):
    from msi_scorers import register_boundary

    shipped = Path(register_boundary.__file__).with_name("registers.toml").read_text()
    monkeypatch.setenv("MSI_HOME", str(tmp_path))
    (tmp_path / "registers.toml").write_text(re.sub(r"threshold = \S+", "threshold = 2", shipped))
    make = register_boundary.RegisterBoundary.of
    assert not reached(make("en"), *CHANGED)
    (tmp_path / "registers.toml").write_text(shipped.replace("span = ", "span = 10000 #"))
    with pytest.raises(ConfigError, match=r"boundary\.span"):
        make("en")


def test_it_ends_a_segment_in_the_decoder():
    """A model that can only say one text, word by word: the paths collapse where it turns."""
    words = re.findall(r"\s*\S+", " " + " ".join(CHANGED))
    tokenizer = ToyTokenizer((*dict.fromkeys(words), "</s>"))
    text = [tokenizer.encode(word)[0] for word in words] + [tokenizer.size - 1]

    def rule(history):
        logits = [float("-inf")] * tokenizer.size
        logits[text[len(history) - 1]] = 0.0
        return logits

    config = DecodeConfig(k=2, max_tokens=500, segment_length=256, boundary=("register",), stop=())
    events = run_toy(config, ToyModel(tokenizer.size, rule), tokenizer, prompt=[text[-1]])
    collapses = [e for e in events if isinstance(e, Collapsed)]
    assert [c.reason for c in collapses] == ["register", "eos"]
    assert len(CHANGED[0].split()) < len(collapses[0].text.split()) < len(words)
