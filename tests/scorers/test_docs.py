"""docs/scorers.md says of each scorer and each option what is so, and its code runs."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import msi_scorers
import pytest
from msi_scorers import entailment

from msi_engine import PathView, ScoreContext
from msi_engine.boundary import boundary_names
from msi_engine.evidence import as_evidence
from msi_engine.registration import Offer
from msi_engine.testing import ToyEmbedder

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "scorers.md").read_text(encoding="utf-8")
OFFER = Offer.of(msi_scorers, "llm-msi")
PYTHON = re.findall(r"^```python\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL)


class FirstLetters:
    """In the place of a cross-encoder: which of two texts comes first in the alphabet."""

    def judge(self, pairs):
        return [float(chunk < text) for chunk, text in pairs]


def section(name):
    return re.search(rf"^### `{name}`\n(.*?)(?=^##)", DOCS, re.MULTILINE | re.DOTALL)[1]


def shown(default):
    if default is None or default == ():
        return "none"
    return f"`{default}`" if isinstance(default, str) else str(default).lower()


@pytest.mark.parametrize("name", OFFER.scorers)
def test_every_option_is_documented_with_its_default(name):
    model = OFFER.scorers[name].options
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", section(name), re.MULTILINE)
    fields = model.model_fields if model else {}
    expected = {
        option: "required" if field.is_required() else shown(field.default)
        for option, field in fields.items()
    }
    assert dict(rows) == expected
    assert len(rows) == len(expected)
    if not fields:
        assert "No options." in section(name)


@pytest.mark.parametrize("name", OFFER.scorers)
def test_every_scorer_has_a_formula_and_stays_in_its_range(name, monkeypatch):
    monkeypatch.setattr(entailment, "find_cross_encoder", lambda *_: FirstLetters())
    assert re.search(r"^    (match=search: )?(phi|p_k)(_i)? = ", section(name), re.MULTILINE)
    low, high = re.search(rf"^\| `{name}` \| .*? \| (-?\d) to (\d) \|", DOCS, re.MULTILINE).groups()
    options = {
        "archetype": {"target": "tide"},
        "entailment": {"model": "any"},
        "regex": {"pattern": "[a-z]", "count": 9},
        "register": {"target": "casual"},
    }
    context = ScoreContext(
        options=options.get(name, {}), evidence=as_evidence("The moon."), embedder=ToyEmbedder()
    )
    scorer = OFFER.scorers[name].make(context)
    texts = ["", "lol no", "The party shall pay. " * 9, "O moon!", "潮" * 30, "no " * 50]
    views = [
        PathView(i, "", committed, text, tuple(range(i)), -1.0, False, tuple(texts[:i]))
        for committed in ("", "The sea. ")
        for i, text in enumerate(texts)
    ]
    scores = scorer.score(views)
    assert all(int(low) <= score <= int(high) for score in scores)
    assert len(set(scores)) > 1


@pytest.mark.parametrize("name", OFFER.boundaries)
def test_every_boundary_is_documented(name):
    assert f"## The boundary `{name}`" in DOCS


def test_the_command_line_is_valid():
    from llm_msi.options import Options

    command = re.search(r"^    (llm -m msi .*?)\n\n", DOCS, re.MULTILINE | re.DOTALL)[1]
    words = shlex.split(command.replace("\\\n", " "))
    options = {words[i + 1]: words[i + 2] for i, word in enumerate(words) if word == "-o"}
    parsed = Options(**options)
    assert json.loads(options["scorer_options"]) == {"register": {"target": "casual"}}
    assert set(options) <= set(type(parsed).model_fields)


def test_the_first_example_makes_a_configuration_that_works():
    names = {}
    exec(PYTHON[0], names)
    config = names["config"]
    for name in config.scorers:
        options = config.scorer_options.get(name, {})
        OFFER.scorers[name].make(ScoreContext(options=options))


@pytest.mark.real_model
def test_the_other_examples_run(store, monkeypatch, capsys):
    monkeypatch.setenv("MSI_HOME", str(store))
    for code in PYTHON[1:]:
        exec(code, {})
    assert capsys.readouterr().out.strip()


def test_links_and_names_lead_somewhere():
    assert (ROOT / "examples" / "msi-scorer-example" / "README.md").is_file()
    assert "register" in boundary_names() or "register" in OFFER.boundaries
