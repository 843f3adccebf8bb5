"""The forecast of `tune-refine` against what the decoder does."""

from __future__ import annotations

import numpy as np
import pytest

from llm_msi.tuning import VERIFY, Costs, Observed, account, area_under_roc, predict, recommend
from msi_engine import DecodeConfig
from msi_engine.events import Collapsed, Finished
from msi_engine.testing import ToyModel, run_toy

EOS = 5
PROMPT = (0,)


def pair(seed, noise=1.5, end=-3.0):
    """Draft and target of one mind but for noise; both seldom stop."""
    base = ToyModel.seeded(6, seed)
    lift = np.eye(6)[EOS] * end

    def rule(history):
        rng = np.random.default_rng([seed, 7, *history[-2:]])
        return base.logits(history) + lift + rng.normal(0.0, noise, 6)

    return ToyModel(6, lambda history: base.logits(history) + lift), ToyModel(6, rule)


def observed(draft, target, budget):
    """The draft along the target's greedy text, both asked directly."""
    history, rows = list(PROMPT), []
    while len(rows) < budget and history[-1] != EOS:
        logits = np.sort(draft.logits(history))
        guess, token = int(draft.logits(history).argmax()), int(target.logits(history).argmax())
        rows.append((float(logits[-1] - logits[-2]), guess != token, guess == EOS))
        history.append(token)
    margins, flips, stops = zip(*rows, strict=True)
    return Observed(margins, flips, stops, budget)


def decoded(draft, target, **options):
    config = DecodeConfig(k=1, **options)
    events = list(run_toy(config, draft, target=target, prompt=PROMPT))
    assert isinstance(events[-1], Finished)
    drafts_that_ended = [
        e for e in events if isinstance(e, Collapsed) and e.reason == "rollback"
        and EOS in e.paths[0].tokens
    ]  # fmt: skip
    return events[-1].stats, drafts_that_ended


@pytest.mark.parametrize("window", [1, 4, 16, 64])
def test_with_everything_checked_the_forecast_is_what_happens(window):
    compared = 0
    for seed in range(60):
        draft, target = pair(seed)
        stats, ended = decoded(draft, target, refine="verify", window=window, max_tokens=40)
        if ended:  # after a flip the draft stopped early: nobody could know
            continue
        told = account(observed(draft, target, 40), VERIFY, window)
        cost = stats.refinement
        assert (told.tokens, told.drafted, told.checked, told.sweeps, told.rollbacks) == (
            stats.output_tokens, cost.drafted, cost.deferred, cost.sweeps, cost.rollbacks
        )  # fmt: skip
        assert told.passes == stats.forward_passes + 1
        assert told.missed == 0
        compared += 1
    assert compared > 20


def test_where_every_flip_is_flagged_and_nothing_else_is_missed_margin_is_forecast_too():
    compared = 0
    for seed in range(60):
        draft, target = pair(seed, noise=0.5)
        answer = observed(draft, target, 40)
        told = account(answer, 3.0, 1)  # window 1: no drafted token lies beyond a flip
        if told.missed:
            continue
        stats, _ = decoded(draft, target, refine="margin", tau=3.0, window=1, max_tokens=40)
        cost = stats.refinement
        assert (told.tokens, told.checked, told.sweeps, told.rollbacks) == (
            stats.output_tokens, cost.deferred, cost.sweeps, cost.rollbacks
        )  # fmt: skip
        compared += 1
    assert compared > 20


ANSWER = Observed((5.0, 0.2, 3.0, 0.5), (False, True, False, False), (False,) * 4, 4)
COSTS = Costs(1.0, 2.0)


def test_shares_are_of_the_tokens_and_of_the_flips():
    few = predict([ANSWER], COSTS, 0.1, 4)
    assert (few.checked, few.caught, few.agreement) == (0.0, 0.0, 0.75)
    some = predict([ANSWER], COSTS, 0.4, 4)
    assert (some.checked, some.caught, some.agreement) == (0.25, 1.0, 1.0)
    assert predict([ANSWER], COSTS, VERIFY, 4).checked == 1.0


def test_bytes_are_those_of_all_passes_by_token_of_output():
    # four passes of the draft but for the last token's, one for the prompt; nothing swept
    assert predict([ANSWER], COSTS, 0.1, 4).bytes == 4 * 1.0 / 4 / 2.0
    # a sweep takes back the second token: fed again, then two more, one of them fed
    assert predict([ANSWER], COSTS, 0.4, 4).bytes == (6 * 1.0 + 1 * 2.0) / 4 / 2.0


def test_the_cheapest_that_agrees_enough_is_recommended():
    settings = [predict([ANSWER], COSTS, tau, 4) for tau in (0.1, 0.4, VERIFY)]
    assert recommend(settings, 0.7).tau == 0.1
    assert recommend(settings, 0.9).tau == 0.4
    with pytest.raises(ValueError, match="empty"):
        recommend(settings, 1.1)


def test_area_under_roc_is_the_share_of_pairs_in_the_right_order():
    assert area_under_roc([ANSWER]) == 1.0
    worst = Observed((1.0, 9.0), (False, True), (False, False), 2)
    assert area_under_roc([worst]) == 0.0
    even = Observed((1.0, 1.0), (False, True), (False, False), 2)
    assert area_under_roc([even]) == 0.5
    assert area_under_roc([worst, even]) == 0.25  # of four pairs two are ties
    assert area_under_roc([Observed((1.0,), (False,), (False,), 1)]) is None
