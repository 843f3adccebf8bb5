"""What a user sees of refinement: in the trace, as reasoning, in `explain`, in usage, in errors."""

from __future__ import annotations

import json

import numpy as np
import pytest

from llm_msi.citing import Citer
from llm_msi.explain import explanation
from llm_msi.trace import rolled_back_line, verified_line
from llm_msi.turns import Turn
from msi_engine import DecodeConfig, Evidence
from msi_engine.events import Collapsed, Committed, Finished, RolledBack, Stats, Verified
from msi_engine.testing import ToyEmbedder, ToyModel, run_toy
from msi_engine.trace import Trace

NOISE = 2.0  # nats between draft and target: many flips


def toy_trace(seed=0, noise=NOISE, **options):
    """The trace of a refined toy answer."""
    draft = ToyModel.seeded(6, seed)

    def rule(history):
        rng = np.random.default_rng([seed, 7, *history[-2:]])
        return draft.logits(history) + rng.normal(0.0, noise, 6)

    config = DecodeConfig(**{"refine": "verify", "max_tokens": 40, "window": 4, **options})
    trace = Trace("toy", config)
    for event in run_toy(config, draft, target=ToyModel(6, rule)):
        trace.record(event)
    return trace


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("refine", ["verify", "margin"])
def test_the_trace_tells_at_every_segment_what_the_target_made_of_it(k, refine):
    for seed in range(20):
        told = json.loads(json.dumps(toy_trace(seed, k=k, refine=refine).summary()))
        cost = told["stats"]["refinement"]
        asked = [s["verified"] for s in told["segments"] if s["verified"]]
        assert len(asked) == cost["sweeps"]
        undone = [v for v in asked if "undone" in v]
        assert len(undone) == cost["rollbacks"]
        assert sum(v["tokens"] - v["accepted"] for v in asked) == cost["drafted"] - cost["accepted"]
        assert all(v["accepted"] < v["tokens"] for v in undone)
        assert all(0 < v["checked"] <= v["tokens"] for v in asked)
        assert cost["acceptance_rate"] == pytest.approx(cost["accepted"] / cost["drafted"])


@pytest.mark.parametrize("k", [1, 4])
def test_what_was_undone_and_what_stands_instead_make_the_segments_text(k):
    found = 0
    for seed in range(20):
        for segment in toy_trace(seed, k=k).summary()["segments"]:
            verdict, winner = segment["verified"], segment["winner"]
            if verdict and "undone" in verdict:
                drafted = segment["paths"][winner]["text"]
                assert drafted.endswith(verdict["undone"])
                kept = drafted[: len(drafted) - len(verdict["undone"])]
                assert segment["text"] == kept + verdict["instead"]
                found += 1
    assert found > 20


def test_without_refinement_the_trace_says_nothing_of_a_target():
    told = toy_trace(k=1, refine="off").summary()
    assert told["stats"]["refinement"] is None
    assert {segment["verified"] for segment in told["segments"]} == {None}


def test_a_check_and_a_rollback_are_a_line_each():
    checked = Verified(3, 16, (2, 5, 9), 9)
    assert verified_line(checked) == "[3] target: 3 of 16 tokens checked, the first 9 stand"
    assert (
        verified_line(Verified(3, 16, (2,), 16)) == "[3] target: 1 of 16 tokens checked, all stand"
    )
    assert (
        verified_line(Verified(0, 4, (0,), 0)) == "[0] target: 1 of 4 tokens checked, none stands"
    )
    back = RolledBack(3, 9, (1, 2), 5, " a cat\n", " the")
    assert rolled_back_line(back) == '[3] target: " a cat\\n" taken back, " the" instead'


def test_a_stop_that_is_taken_back_or_put_has_no_text():
    assert '(no text) taken back, " and" instead' in rolled_back_line(
        RolledBack(0, 0, (2,), 5, "", " and")
    )
    assert '" and" taken back, (no text) instead' in rolled_back_line(
        RolledBack(0, 0, (5,), 2, " and", "")
    )


def turn(trace):
    return Turn("01abc", "msi/qwen", "2030-01-02T03:04:05", "Why?", trace)


def segment_of(drafted, **others):
    path = {"text": drafted, "credence": 1.0, "signals": {}, "status": "waiting"}
    return {
        "reason": "length", "mode": "argmax", "winner": 0, "text": drafted, "note": None,
        "effective_sample_size": 1.0, "paths": [path], **others,
    }  # fmt: skip


COST = {
    "mode": "margin", "target_kind": "resident", "drafted": 20, "deferred": 5, "accepted": 15,
    "sweeps": 2, "rollbacks": 1, "draft_s": 1.0, "sweep_s": 0.5, "draft_bytes": 80_000_000,
    "target_bytes": 20_000_000, "bytes_per_token": 5e6, "plain_bytes_per_token": 10_000_000,
    "acceptance_rate": 0.75,
}  # fmt: skip


def test_explain_shows_what_the_target_changed(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    changed = {"tokens": 5, "checked": 2, "accepted": 3, "undone": " two", "instead": " three"}
    segments = [
        segment_of("One two", text="One three", reason="rollback", verified=changed),
        segment_of(" four", verified={"tokens": 4, "checked": 3, "accepted": 4}),
        segment_of(" five", verified=None),
    ]
    trace = {"model": "qwen", "config": {"refine": "margin"}, "seed": 7, "segments": segments,
             "stats": {"refinement": COST}}  # fmt: skip
    lines = [
        line.replace("\x1b[1m", "").replace("\x1b[0m", "") for line in explanation(turn(trace))
    ]
    start = lines.index("1.  argmax at rollback, 1 path, 2 of 5 tokens checked, the first 3 stand")
    assert lines[start + 1 : start + 3] == [
        "  * 1.00   One two",
        '  target   " two" taken back, " three" instead',
    ]
    assert "2.  argmax at length, 1 path, 3 of 4 tokens checked, all stand" in lines
    assert "3.  argmax at length, 1 path, nothing checked" in lines
    said = " ".join(" ".join(lines).split())
    assert (
        "target: margin, resident; checked 5 of 20 drafted tokens in 2 sweeps, 1 rollback, 0.75 "
        "accepted; read 0.50 of the bytes a token that the target alone reads" in said
    )


def test_explain_of_a_trace_without_refinement_says_nothing_of_a_target():
    old = {"model": "qwen", "config": {}, "seed": 7, "segments": [segment_of("One")], "stats": {}}
    assert not [line for line in explanation(turn(old)) if "target" in line or "checked" in line]


def told(*segments):
    """Events of an answer that refinement cuts into pieces."""
    events = []
    for text, reason in segments:
        events += [Verified(0, 1, (0,), 1)]
        events += [Collapsed(0, reason, "argmax", 0, (1,), text, (), 1.0), Committed(text)]
    return [*events, Finished("eos", Stats(), 0)]


def cited(*segments):
    evidence = (
        Evidence("The tide comes from the Moon.", "a", "1"),
        Evidence("Bees hum.", "b", "2"),
    )
    citer = Citer(evidence, ToyEmbedder())
    return "".join(citer.take(event) for event in told(*segments))


def test_a_rollback_inside_a_sentence_puts_no_citation_there():
    text = cited(("The tide comes", "rollback"), (" from the", "choice"), (" Moon.", "eos"))
    assert text == "The tide comes from the Moon. [1]"


def test_sentences_that_end_inside_a_window_are_cited_where_they_end():
    text = cited(("The tide comes from the Moon. Bees", "length"), (" hum. Snow", "rollback"))
    assert text == "The tide comes from the Moon. [1] Bees hum. [2] Snow"


@pytest.mark.real_model
def test_a_refined_answer_and_what_is_told_of_it(msi, llm_cli, logged):
    options = ("-o", "k", "1", "-o", "refine", "verify", "-o", "window", "4", "-o", "trace", "1")
    said = msi("What is tea?", *options)
    assert "[0] target: 4 of 4 tokens checked" in said.err
    entry = logged()[-1]
    cost = entry["response_json"]["stats"]["refinement"]
    details = entry["token_details"]
    details = json.loads(details) if isinstance(details, str) else details
    assert details["sweeps"] == cost["sweeps"] > 0
    assert details["drafted"] == cost["drafted"] == details["checked"]
    assert said.err.count("taken back") == cost["rollbacks"] == details["rollbacks"]
    lines = llm_cli("msi", "explain").out
    assert lines.count("taken back") == cost["rollbacks"]
    assert "target:       verify, resident; checked" in lines

    plain = msi("What is tea?", "-o", "k", "1")  # the embedded pair decodes with its target
    assert plain.out == said.out


@pytest.mark.real_model
def test_a_model_without_a_target_is_refused_before_any_text(store, monkeypatch):
    import llm

    from llm_msi.models import MSI

    monkeypatch.setenv("MSI_HOME", str(store))
    lone = MSI(str(store / "models" / "embedded" / "draft"))
    response = lone.prompt("Hi", refine="verify", k=1, max_tokens=4)
    chunks = []
    with pytest.raises(llm.ModelError, match="has no target to check it") as caught:
        chunks += response
    assert not chunks
    assert len(str(caught.value).splitlines()) == 1
