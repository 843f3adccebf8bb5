"""Scores do not depend on when they are asked for: `score_every` changes nothing."""

from __future__ import annotations

import pytest

from msi_engine import DecodeConfig, PathView
from msi_engine.events import Collapsed, Finished, Stepped
from msi_engine.testing import ToyModel, ToyTokenizer, run_toy

PIECES = (
    " the", " tide", " sea", " shall", " you", " now", " moon", " said", " don", "'t",
    " free", " results", " moon,", "潮", " go", "ing", "!", ".", "</s>",
)  # fmt: skip
TOKENIZER = ToyTokenizer(PIECES)

SCORERS = {
    "agreement": {},
    "archetype": {"target": "bloom"},
    "length": {"target": 40},
    "regex": {"pattern": "tide|moon", "count": 3},
    "register": {"target": "casual"},
    "repetition": {"n": 1},
}


def run(score_every, scorers, model=0, **options):
    config = DecodeConfig(
        k=4,
        max_tokens=40,
        segment_length=12,
        boundary=("sentence",),
        temperature=1.0,
        spawn_min_p=0.0,
        score_every=score_every,
        scorers=dict.fromkeys(scorers, 3.0),
        scorer_options={name: SCORERS[name] for name in scorers if SCORERS.get(name)},
        **options,
    )
    toy = ToyModel.seeded(TOKENIZER.size, model, scale=1.0)
    return list(run_toy(config, toy, TOKENIZER, seed=7))


def collapses(events):
    """Text, and of every path that counted its weight and signals."""
    return [
        (c.text, c.winner, [(p.index, p.text) for p in c.paths if p.status != "dropped"])
        for c in events
        if isinstance(c, Collapsed)
    ]


def numbers(events):
    found = []
    for event in events:
        if isinstance(event, Collapsed):
            for path in event.paths:
                if path.status != "dropped":
                    found += [path.log_weight, path.credence, *path.signals.values()]
        elif isinstance(event, Stepped):
            found += [event.segment, event.step, event.entropy, *event.credences]
    return found


SETTINGS = [
    {"law": "mean", "short_circuit": 1.0},
    {"law": "mean", "short_circuit": 1.0, "majority": 1.0, "dedup_tokens": 1},
    {"law": "paper", "short_circuit": 0.9},
    {"law": "posterior", "short_circuit": 0.6},
]


@pytest.mark.parametrize("scorers", [*([name] for name in SCORERS), list(SCORERS)], ids=",".join)
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: f"{s['law']}-{s['short_circuit']}")
def test_the_same_signals_and_text_at_once_late_and_at_the_boundary(scorers, settings):
    for model in range(3):
        at_once = run(1, scorers, model, **settings)
        assert collapses(at_once)
        for score_every in (4, 4096):
            late = run(score_every, scorers, model, **settings)
            assert collapses(late) == collapses(at_once)
            assert numbers(late) == pytest.approx(numbers(at_once), abs=1e-6)


@pytest.mark.parametrize("name", SCORERS)
def test_deferral_defers(name):
    """The comparison above would be idle if everything were asked at once anyway."""
    calls = {}
    for score_every in (1, 4096):
        [*_, finished] = run(score_every, [name], short_circuit=1.0)
        assert isinstance(finished, Finished)
        calls[score_every] = finished.stats.scorer_calls[name]
    assert calls[4096] < calls[1]


def test_the_signals_differ_between_paths():
    """Nor would it show anything if all signals were alike."""
    for name in SCORERS:
        values = {
            value
            for model in range(3)
            for c in run(1, [name], model)
            if isinstance(c, Collapsed)
            for path in c.paths
            for value in path.signals.values()
        }
        assert len(values) > 3, name


class Witness:
    """Keeps what it is shown."""

    def __init__(self):
        self.views: list[PathView] = []

    def score(self, paths):
        self.views += paths
        # Of the others alone, so that whatever is wrong with them shows in the weights.
        return [-float(sum(map(len, path.others))) for path in paths]


def witnessed(score_every, **options):
    witness = Witness()
    config = DecodeConfig(
        k=3, max_tokens=30, segment_length=10, temperature=1.0, spawn_min_p=0.0,
        score_every=score_every, scorers={"witness": 0.2}, **options,
    )  # fmt: skip
    toy = ToyModel.seeded(TOKENIZER.size, 5, scale=1.0)
    factories = {"witness": lambda context: witness}
    events = list(run_toy(config, toy, TOKENIZER, seed=3, scorers=factories))
    seen = {
        (v.committed, v.index, len(v.tokens)): v.others for v in witness.views if len(v.others) == 2
    }
    return events, witness.views, seen


def test_the_others_are_the_other_paths_at_the_same_moment():
    _, views, _ = witnessed(1, short_circuit=1.0)
    whole = {}  # (committed, index) -> texts after each token
    for view in views:
        whole.setdefault((view.committed, view.index), []).append(view.segment)
    compared = 0
    for view in views:
        moment = len(view.tokens)
        others = [
            texts[min(moment, len(texts)) - 1]
            for (committed, index), texts in sorted(whole.items())
            if committed == view.committed and index != view.index
        ]
        if len(view.others) == len(others):  # none was dropped as a duplicate
            assert list(view.others) == others
            compared += 1
    assert compared > 20


@pytest.mark.parametrize("short_circuit", [1.0, 0.6])
def test_what_a_scorer_sees_of_the_others_does_not_depend_on_when_it_is_asked(short_circuit):
    # Under this law every token's signal stays in the weight to the end.
    options = {"law": "paper", "short_circuit": short_circuit}
    at_once, _, seen = witnessed(1, **options)
    late, _, seen_late = witnessed(4096, **options)
    assert collapses(late) == collapses(at_once)
    assert numbers(late) == pytest.approx(numbers(at_once), abs=1e-6)
    assert all(seen_late[key] == others for key, others in seen.items())
    dropped = any("short circuit" in (c.note or "") for c in at_once if isinstance(c, Collapsed))
    assert dropped == (short_circuit < 1)
