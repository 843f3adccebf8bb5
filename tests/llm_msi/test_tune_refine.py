"""`llm msi tune-refine`: what it prints and draws, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import re
import sys

import pytest

from llm_msi.tradeoff_plot import SUFFIXES, draw
from llm_msi.tune_refine import Measured, Report, Tuning
from llm_msi.tune_refine_page import page
from llm_msi.tuning import VERIFY, Observed, Setting, account, recommend

SETTINGS = (
    Setting(0.5, 4, 0.2, 0.5, 0.9, 0.6),
    Setting(0.5, 8, 0.2, 0.5, 0.9, 0.7),
    Setting(VERIFY, 4, 1.0, 1.0, 1.0, 0.8),
    Setting(VERIFY, 8, 1.0, 1.0, 1.0, 1.2),
)
RUN = Measured(VERIFY, 4, 1.0, 1.0, 3, 1.0, 0.81, 0.25)


def report(wanted=0.99, settings=SETTINGS):
    return Report(3, 60, 12, 0.83, settings, (RUN,), recommend(settings, wanted), wanted)


def test_the_page_has_a_row_for_each_tau_and_stars_what_it_recommends():
    lines = page(report())
    said = " ".join(lines)
    assert "3 prompts, 60 tokens" in said
    assert "12 times (20.0%)" in " ".join(said.split())
    rows = [line.split() for line in lines if line.split()[:1] in (["0.5"], ["all"])]
    assert rows[0] == ["0.5", "20.0%", "50.0%", "90.0%", "0.60", "0.70"]
    assert rows[1] == ["all", "100.0%", "100.0%", "100.0%", "0.80*", "1.20"]
    assert rows[2] == ["all", "4", "100.0%", "100.0%", "3", "of", "3", "100%", "0.81", "0.250"]
    assert "-o k 1 -o refine verify -o window 4 (agreement 100.0%" in " ".join(said.split())


def test_a_lower_agreement_recommends_margin():
    said = " ".join(" ".join(page(report(0.9))).split())
    assert "-o k 1 -o refine margin -o tau 0.5 -o window 4" in said
    assert "no less than the target alone" not in said


def test_a_pair_that_saves_nothing_is_told_so():
    dear = tuple(dataclasses.replace(s, bytes=s.bytes + 0.5) for s in SETTINGS)
    said = " ".join(" ".join(page(report(settings=dear))).split())
    assert "no less than the target alone reads" in said


def test_a_forecast_from_a_few_tokens_says_so():
    few = report()
    assert "So few tokens" in " ".join(" ".join(page(few)).split())
    enough = dataclasses.replace(few, tokens=600, flips=1)
    said = " ".join(" ".join(page(enough)).split())
    assert "So few tokens" not in said
    assert "another token 1 time (0.2%)" in said


def test_json_has_null_where_everything_is_checked():
    told = json.loads(json.dumps(report().as_dict(), allow_nan=False))
    assert [(s["mode"], s["tau"]) for s in told["settings"][1:3]] == [
        ("margin", 0.5),
        ("verify", None),
    ]
    assert told["recommended"]["window"] == 4


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_plot_is_drawn_as_its_name_says(tmp_path, suffix):
    path = tmp_path / f"plot{suffix}"
    draw(report(), path)
    begins = {".svg": b"<svg", ".png": b"\x89PNG", ".html": b"<!DOCTYPE html>"}[suffix]
    assert path.read_bytes().lstrip().startswith(begins)


@pytest.mark.parametrize(
    ("lowest", "labels"),
    [
        (0.9, {"90%", "95%", "100%"}),
        (0.99, {"99%", "99.5%", "100%"}),
        (0.999, {"99.9%", "99.95%", "100%"}),
    ],
)
def test_shares_have_the_decimals_that_they_need_and_no_more(tmp_path, lowest, labels):
    settings = (Setting(0.5, 4, 0.2, 0.5, lowest, 0.6), Setting(VERIFY, 4, 1.0, 1.0, 1.0, 0.8))
    path = tmp_path / "plot.svg"
    draw(report(lowest, settings), path)
    shown = re.findall(r">([\d.]+%)<", path.read_text(encoding="utf-8"))
    assert labels <= set(shown)
    assert len(set(shown)) == len(shown)
    assert not [label for label in shown if re.search(r"\.\d*0%", label)]


def test_points_in_one_place_share_a_label(tmp_path):
    same = (Setting(4.0, 4, 0.9, 1.0, 1.0, 0.8), *SETTINGS)
    path = tmp_path / "plot.svg"
    draw(report(settings=same), path)
    assert "4, all" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no prompt is given; write some, or give a file of them with -f"),
        (("Hi", "--taus", "1,x"), "--taus takes numbers like 1,2,4, got '1,x'"),
        (("Hi", "--taus", "-1"), "--taus takes numbers from 0.0 to 1000.0, got '-1'"),
        (("Hi", "--windows", "0"), "--windows takes numbers from 1 to 4096, got '0'"),
        (("Hi", "--windows", "4.5"), "--windows takes numbers like 1,2,4, got '4.5'"),
        (("Hi", "--out", "plot.gif"), "a plot ends in .svg, .png, .html, got 'plot.gif'"),
        (("Hi", "--out", "none/such/plot.svg"), "there is no folder none/such"),
        (("Hi", "-m", "no-such-model"), "no model 'no-such-model'"),
    ],
)
def test_what_cannot_be_is_said_in_one_line_before_any_work(llm_cli, arguments, said):
    error = llm_cli("msi", "tune-refine", *arguments, code=1).err
    assert error.startswith(f"Error: {said}"), error
    assert len(error.splitlines()) == 1


def test_a_plot_without_its_packages_says_what_to_install(llm_cli, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    error = llm_cli("msi", "tune-refine", "Hi", "--out", str(tmp_path / "p.svg"), code=1).err
    assert 'pip install "llm-msi[plot]"' in error
    assert len(error.splitlines()) == 1


def test_prompts_come_from_the_command_line_and_from_a_file(tmp_path):
    from llm_msi.tune_refine_command import asked

    (tmp_path / "prompts.txt").write_text("two\n\n  \nthree\n", encoding="utf-8")
    assert asked(("one",), tmp_path / "prompts.txt") == ["one", "two", "three"]


@pytest.mark.real_model
def test_a_pair_is_tuned_on_a_prompt(llm_cli, store, monkeypatch, tmp_path):
    monkeypatch.setenv("MSI_HOME", str(store))
    (tmp_path / "p.txt").write_text("What is tea?\n", encoding="utf-8")
    arguments = ("-f", str(tmp_path / "p.txt"), "--tokens", "8", "--taus", "1", "--windows", "4")
    told = json.loads(llm_cli("msi", "tune-refine", *arguments, "--agreement", "0.5", "--json").out)
    assert told["prompts"] == 1
    assert 0 < told["tokens"] <= 8
    forecast = {s["mode"]: s for s in told["settings"]}
    measured = {m["mode"]: m for m in told["measured"]}
    assert measured["verify"]["identical"] == 1
    assert measured["verify"]["bytes"] == pytest.approx(forecast["verify"]["bytes"])
    assert 0.5 <= forecast["margin"]["agreement"] <= 1
    assert forecast["margin"]["checked"] <= forecast["verify"]["checked"] == 1


def test_a_token_that_ends_an_answer_for_the_target_alone_is_forecast():
    """The draft knows of no such end, and yet it is checked like any other."""
    from tests.engine.tiny_pair import PROMPT, engine_of, models

    draft, target = models("llama", off=0.0)  # no flips: the forecast is exact
    options = {"k": 1, "refine": "verify", "max_tokens": 16}
    end = engine_of(draft, target).generate(PROMPT, **options).tokens[4]
    engine = engine_of(draft, target)
    key, pair = engine._held._pair
    model = dataclasses.replace(pair.target.model, eos_token_ids=frozenset([end]))
    ended = dataclasses.replace(pair, target=dataclasses.replace(pair.target, model=model))
    engine._held._pair = (key, ended)

    tuning = Tuning(engine, [], [0.0], [4], max_tokens=16, wanted=0.5)
    told = account(tuning._observe(PROMPT), 0.0, 4)
    done = engine.generate(PROMPT, tuning._with(0.0, 4))
    assert done.finish_reason == "eos"
    cost = done.stats.refinement
    assert (told.drafted, told.checked, told.sweeps) == (cost.drafted, cost.deferred, cost.sweeps)
    assert told.checked > 0


def test_a_budget_that_the_context_makes_smaller_is_forecast():
    from tests.engine.tiny_pair import PROMPT, engine_of, models

    engine = engine_of(*models("llama", 0.3))
    key, pair = engine._held._pair
    loaded = dataclasses.replace(pair.draft, context_length=len(PROMPT) + 10)
    engine._held.loaded = loaded
    engine._held._pair = (key, dataclasses.replace(pair, draft=loaded))

    tuning = Tuning(engine, [], [0.0], [4], max_tokens=16, wanted=0.5)
    told = account(tuning._observe(PROMPT), VERIFY, 4)
    done = engine.generate(PROMPT, tuning._with(VERIFY, 4))
    cost = done.stats.refinement
    assert len(done.tokens) == 10
    assert cost.rollbacks > 0
    assert (told.drafted, told.checked, told.sweeps) == (cost.drafted, cost.deferred, cost.sweeps)
    assert told.passes == done.stats.forward_passes + 1


def test_a_draft_along_an_answer():
    from llm_msi.tune_refine import observed
    from msi_engine.opinions import Opinion

    draft = [Opinion(7, 0.5), Opinion(2, 1.5), Opinion(9, 2.5)]
    told = observed(draft, [7, 8, 9], ends=[2], budget=5)
    assert told == Observed((0.5, 1.5, 2.5), (False, True, False), (False, True, False), 5)
