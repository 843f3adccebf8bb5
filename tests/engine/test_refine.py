"""Refinement on toy models: what the target's word does to the text, whatever the draft wrote."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest
from scipy.stats import chisquare

from msi_engine import DecodeConfig, refine
from msi_engine.errors import ConfigError
from msi_engine.events import Collapsed, Committed, Event, Finished, RolledBack, Verified
from msi_engine.refine import MOST_DRAFTED, accept_or_redraw
from msi_engine.testing import ToyModel, ToyTokenizer, run_toy

PIECES = (" a", " b", " c", ".", "\n", "</s>")
EOS = 5
PROMPT = (0,)


def noisy(model: ToyModel, seed: int, scale: float = 1.0) -> ToyModel:
    """A model of the same mind, but for noise that depends on the last two tokens."""

    def rule(history: tuple[int, ...]) -> np.ndarray:
        rng = np.random.default_rng([seed, 7, *history[-2:]])
        return model.logits(history) + rng.normal(0.0, scale, model.vocab_size)

    return ToyModel(model.vocab_size, rule)


def pair(seed: int, scale: float = 1.0, *, end: float = 0.0) -> tuple[ToyModel, ToyModel]:
    """Draft and target; ``end`` is added to the logit of end-of-sequence."""
    draft = ToyModel.seeded(6, seed)

    def lifted(model: ToyModel) -> ToyModel:
        lift = np.eye(6)[EOS] * end
        return ToyModel(6, lambda history: model.logits(history) + lift)

    return lifted(draft), lifted(noisy(draft, seed, scale))


def greedy(
    model: ToyModel, num: int, process: Callable[[list[int], np.ndarray], np.ndarray] | None = None
) -> list[int]:
    """Ordinary greedy decoding, token by token."""
    history = list(PROMPT)
    while len(history) < num + len(PROMPT) and history[-1] != EOS:
        logits = model.logits(history)
        history.append(int((logits if process is None else process(history, logits)).argmax()))
    return history[len(PROMPT) :]


def tokens_of(events: Iterable[Event]) -> list[int]:
    return [token for e in events if isinstance(e, Collapsed) for token in e.tokens]


def text_of(events: Iterable[Event]) -> str:
    return "".join(e.text for e in events if isinstance(e, Committed))


def finished(events: Sequence[Event]) -> Finished:
    last = events[-1]
    assert isinstance(last, Finished)
    return last


# verify, K = 1, temperature 0


@pytest.mark.parametrize("window", [1, 4, 16, 64])
def test_verified_greedy_text_is_the_targets_own(window: int) -> None:
    rollbacks = 0
    for seed in range(100):
        draft, target = pair(seed, scale=(0.3, 1.0, 4.0)[seed % 3], end=-1.0)
        config = DecodeConfig(k=1, refine="verify", window=window, max_tokens=40)
        events = list(run_toy(config, draft, target=target))
        assert tokens_of(events) == greedy(target, 40)
        assert text_of(events) == ToyTokenizer(PIECES).decode(tokens_of(events))
        rollbacks += finished(events).stats.refinement.rollbacks
    assert rollbacks > 100


def test_verified_greedy_text_is_the_targets_own_under_logits_processors() -> None:
    def once_costs(history: list[int], logits: np.ndarray) -> np.ndarray:
        for token in history[-4:]:
            logits[token] -= 1.5
        return logits

    for seed in range(60):
        draft, target = pair(seed)
        config = DecodeConfig(k=1, refine="verify", window=5, max_tokens=30)
        events = list(run_toy(config, draft, target=target, processors=[once_costs]))
        assert tokens_of(events) == greedy(target, 30, once_costs)


def test_what_is_drafted_is_bounded_and_the_text_stays_the_targets() -> None:
    """A draft that is never right: every window is lost but for one token of the target's."""
    wrong = ToyModel(6, lambda h: np.eye(6)[(len(h) + 1) % 3] * 9)
    target = ToyModel(6, lambda h: np.eye(6)[len(h) % 3] * 9)
    config = DecodeConfig(k=1, refine="verify", window=64, max_tokens=50)
    events = list(run_toy(config, wrong, target=target))
    stats = finished(events).stats.refinement
    assert tokens_of(events) == greedy(target, 50)
    assert stats.accepted == 0
    assert stats.rollbacks == 50
    assert MOST_DRAFTED * 50 - 5 <= stats.drafted <= MOST_DRAFTED * 50


# verify, K = 1, sampled


def joint(target: ToyModel, num: int) -> dict[tuple[int, ...], float]:
    """Probability of every sequence of ``num`` tokens, or fewer that end, by enumeration."""
    whole: dict[tuple[int, ...], float] = {}
    open_: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(num):
        longer = {
            (*h, t): p * float(np.exp(target.logprobs([*PROMPT, *h])[t]))
            for h, p in open_.items()
            for t in range(target.vocab_size)
        }
        whole |= {h: p for h, p in longer.items() if h[-1] == EOS}
        open_ = {h: p for h, p in longer.items() if h[-1] != EOS}
    return whole | open_


def fit(window: int, draws: int) -> float:
    """Chi-square p-value: 3 verified tokens against the target's joint distribution."""
    draft, target = pair(11, scale=1.5)
    config = DecodeConfig(k=1, refine="verify", temperature=1.0, max_tokens=3, window=window)
    counts: Counter[tuple[int, ...]] = Counter(
        tuple(tokens_of(run_toy(config, draft, target=target, seed=seed))) for seed in range(draws)
    )
    wanted = joint(target, 3)
    assert counts.keys() <= wanted.keys()
    rare = [h for h, p in wanted.items() if p * draws < 8]
    cells = [h for h in wanted if h not in rare]
    observed = [counts[h] for h in cells] + [sum(counts[h] for h in rare)]
    expected = [wanted[h] * draws for h in cells] + [sum(wanted[h] for h in rare) * draws]
    return float(chisquare(observed, expected, sum_check=False).pvalue)


@pytest.mark.parametrize(("window", "draws"), [(3, 20_000), (2, 4_000), (1, 4_000)])
def test_verified_samples_are_distributed_as_the_targets(window: int, draws: int) -> None:
    assert fit(window, draws) > 0.001


def test_the_fit_would_show_a_redraw_from_the_wrong_distribution(monkeypatch) -> None:
    """Without the residual: what was rejected is drawn anew from the target itself."""

    def careless(token: int, wanted: np.ndarray, had: np.ndarray, rng) -> int:
        if rng.random() * had[token] < wanted[token]:
            return token
        return int(rng.choice(len(wanted), p=wanted))

    monkeypatch.setattr(refine, "accept_or_redraw", careless)
    assert fit(3, 4_000) < 1e-9


def test_accepting_or_redrawing_turns_one_distribution_into_the_other() -> None:
    rng = np.random.default_rng(0)
    for size in (3, 5, 9):
        had, wanted = rng.dirichlet(np.ones(size)), rng.dirichlet(np.ones(size))
        wanted[0] = 0.0
        wanted /= wanted.sum()
        draws = [
            accept_or_redraw(int(rng.choice(size, p=had)), wanted, had, rng) for _ in range(20_000)
        ]
        observed = np.bincount(draws, minlength=size)
        assert observed[0] == 0
        assert chisquare(observed[1:], wanted[1:] * len(draws)).pvalue > 0.001


def test_a_filter_on_the_samples_holds_for_what_the_target_redraws() -> None:
    for seed in range(40):
        draft, target = pair(seed, scale=3.0, end=-9.0)
        config = DecodeConfig(k=1, refine="verify", temperature=1.0, top_k=2, max_tokens=20)
        history = list(PROMPT)
        for token in tokens_of(run_toy(config, draft, target=target, seed=seed)):
            assert token in np.argsort(-target.logits(history))[:2]
            history.append(token)


# margin


@pytest.mark.parametrize("window", [1, 4, 16])
@pytest.mark.parametrize("tau", [0.0, 0.5, 1.5, 1000.0])
def test_margin_asks_the_target_where_the_draft_was_unsure_and_nowhere_else(
    window: int, tau: float
) -> None:
    for seed in range(40):
        draft, target = pair(seed)
        config = DecodeConfig(k=1, refine="margin", tau=tau, window=window, max_tokens=30)
        events = list(run_toy(config, draft, target=target))
        history = list(PROMPT)
        asked = 0
        while len(history) < 31 and history[-1] != EOS:
            logits = draft.logits(history)
            first, second = np.sort(logits)[[-1, -2]]
            token = int(logits.argmax())
            if first - second < tau or token == EOS:
                asked += 1
                token = int(target.logits(history).argmax())
            history.append(token)
        assert tokens_of(events) == history[1:]
        assert finished(events).stats.refinement.deferred >= asked


def test_a_window_that_nobody_doubts_costs_no_sweep() -> None:
    sure = ToyModel(6, lambda h: np.eye(6)[len(h) % 3] * 9)
    config = DecodeConfig(k=1, refine="margin", tau=1.0, window=4, max_tokens=20)
    events = list(run_toy(config, sure, target=sure))
    stats = finished(events).stats.refinement
    assert (stats.sweeps, stats.deferred, stats.accepted) == (0, 0, 20)


# K > 1


def test_every_verified_token_of_many_paths_is_one_the_target_would_have_drawn() -> None:
    rollbacks = 0
    for seed in range(120):
        rng = random.Random(seed)
        draft, target = pair(seed, scale=rng.choice((0.5, 2.0)), end=-1.0)
        config = DecodeConfig(
            k=rng.choice((2, 3, 5)),
            refine="verify",
            law=rng.choice(("mean", "paper", "posterior")),
            collapse=rng.choice(("argmax", "sample", "token_vote", "mbr")),
            short_circuit=rng.choice((1.0, 0.7)),
            majority=rng.choice((0.3, 0.5, 1.0)),
            segment_length=rng.choice((3, 8, 32)),
            score_every=rng.choice((1, 3)),
            spawn_min_p=rng.choice((0.0, 0.1)),
            max_tokens=40,
            stop=(" c.",) if seed % 3 == 0 else (),
        )
        events = list(run_toy(config, draft, target=target, seed=seed))
        rollbacks += sum(isinstance(e, RolledBack) for e in events)
        history = list(PROMPT)
        for e in events:
            if not isinstance(e, Collapsed):
                continue
            for place, token in enumerate(e.tokens):
                logits = target.logits(history)
                if place == 0 and len(e.paths) > 0:
                    probs = np.exp(logits - logits.max())
                    best = np.argsort(-logits, kind="stable")[: config.k]
                    assert token in [t for t in best if probs[t] >= config.spawn_min_p * 0.9999]
                else:
                    assert token == logits.argmax()
                history.append(token)
        tokens = tokens_of(events)
        text = ToyTokenizer(PIECES).decode(tokens)
        assert text_of(events) == (text.split(" c.")[0] if config.stop else text)
    assert rollbacks > 50


def test_rescored_winners_are_those_of_the_targets_logprobs() -> None:
    """Against a computation from the paths' tokens alone."""
    other = 0
    for seed in range(80):
        draft, target = pair(seed, scale=2.0, end=-1.0)
        config = DecodeConfig(k=4, refine="rescore", collapse="argmax", max_tokens=40)
        events = list(run_toy(config, draft, target=target))
        history = list(PROMPT)
        for e in events:
            if not isinstance(e, Collapsed):
                continue
            means = [
                {
                    name: np.mean(
                        [
                            model.logprobs([*history, *p.tokens[:i]])[t]
                            for i, t in enumerate(p.tokens)
                        ]
                    )
                    for name, model in (("draft", draft), ("target", target))
                }
                for p in e.paths
                if p.status != "dropped"
            ]
            candidates = [p.index for p in e.paths if p.status != "dropped"]
            best = candidates[int(np.argmax([m["target"] for m in means]))]
            assert e.winner == best
            other += best != candidates[int(np.argmax([m["draft"] for m in means]))]
            history += e.tokens
    assert other > 20  # the draft would have chosen otherwise


def test_a_rescored_vote_is_weighed_by_the_target_on_both_sides() -> None:
    refused = kept = 0
    for seed in range(150):
        draft, target = pair(seed, scale=2.0, end=-2.0)
        config = DecodeConfig(
            k=5, refine="rescore", collapse="token_vote", vote_guard=0.2, majority=1.0
        ).replace(spawn_min_p=0.0, max_tokens=24, segment_length=6)
        history = list(PROMPT)
        for e in run_toy(config, draft, target=target):
            if not isinstance(e, Collapsed):
                continue
            if e.note and "refused" in e.note:
                refused += 1
                said = float(e.note.split("against ")[1].split(" ")[0])
                costs = [
                    target.logprobs([*history, *e.tokens[:i]])[t] for i, t in enumerate(e.tokens)
                ]
                assert said == pytest.approx(np.mean(costs), abs=0.006)
            kept += e.mode == "token_vote" and e.winner is None
            history += e.tokens
    assert refused > 5
    assert kept > 5


@pytest.mark.parametrize("mode", ["verify", "margin", "rescore"])
def test_a_window_that_keeps_its_first_tokens_is_refused(mode: str) -> None:
    with pytest.raises(ConfigError, match="`refine` and max_kv_size cannot be used together"):
        DecodeConfig(refine=mode, max_kv_size=64)
    assert DecodeConfig(max_kv_size=64).max_kv_size == 64


def test_one_path_cannot_be_rescored() -> None:
    with pytest.raises(ConfigError, match="rescore chooses among paths and k is 1"):
        DecodeConfig(k=1, refine="rescore")


# Ends, stops and characters


def scripted(*tokens: int) -> ToyModel:
    """A model that says these tokens, then the last of them for ever."""
    return ToyModel(
        6, lambda h: np.eye(6)[tokens[min(len(h) - len(PROMPT), len(tokens) - 1)]] * 9.0
    )


def run(
    draft: ToyModel, target: ToyModel, pieces: Sequence[str | bytes] = PIECES, **options
) -> list[Event]:
    config = DecodeConfig(**{"k": 1, "refine": "verify", "window": 4, "max_tokens": 8, **options})
    return list(run_toy(config, draft, ToyTokenizer(pieces), target=target))


@pytest.mark.parametrize("mode", ["verify", "margin"])
@pytest.mark.parametrize("k", [1, 3])
def test_the_target_vetoes_a_stop(mode: str, k: int) -> None:
    """The draft is sure of its end; whether to end is checked all the same."""
    events = run(
        scripted(1, EOS), scripted(1, 2, 0, EOS), refine=mode, k=k, tau=0.1, spawn_min_p=0.5
    )
    if mode == "verify":
        assert tokens_of(events) == [1, 2, 0, EOS]
    else:  # after the veto the draft goes on alone: its next end is vetoed, and so on
        assert tokens_of(events)[:2] == [1, 2]
    assert any(isinstance(e, RolledBack) and e.discarded == (EOS,) for e in events)


def test_the_target_stops_what_the_draft_would_go_on_with() -> None:
    events = run(scripted(1, 2, 0), scripted(1, EOS))
    assert tokens_of(events) == [1, EOS]
    assert text_of(events) == " b"
    assert finished(events).reason == "eos"


@pytest.mark.parametrize("window", [3, 5, 8, 16])
def test_the_budget_ends_inside_a_window_and_is_filled(window: int) -> None:
    target = scripted(1, 2, 0, 1, 2, 2, 0, 1, 1, 1)
    events = run(scripted(1, 2, 0, 0, 2, 1, 0), target, window=window, max_tokens=7)
    assert tokens_of(events) == [1, 2, 0, 1, 2, 2, 0]
    assert finished(events).reason == "length"
    assert finished(events).stats.output_tokens == 7


def test_a_stop_string_of_the_draft_alone_stops_nothing() -> None:
    events = run(scripted(1, 2, 3), scripted(1, 2, 0, 1, 2, EOS), stop=(" c.",))
    assert text_of(events) == " b c a b c"
    assert finished(events).reason == "eos"


def test_a_stop_string_that_the_targets_token_completes_ends_the_answer() -> None:
    events = run(scripted(1, 2, 0, 1), scripted(1, 2, 3, 0), stop=(" c.",), window=8)
    assert tokens_of(events) == [1, 2, 3]
    assert text_of(events) == " b"
    assert finished(events).reason == "stop"


def test_the_beginning_of_a_stop_string_is_held_back_across_a_rollback() -> None:
    events = run(scripted(1, 2, 0), scripted(1, 2, 1, 2, 3), stop=(" c.",), window=2)
    assert text_of(events) == " b c b"
    assert finished(events).reason == "stop"


BYTES = ("x", b"\xa9", b"\xa8", b"\xc3", ".", "</s>")


@pytest.mark.parametrize("window", [1, 2, 3, 8])
def test_a_character_is_completed_by_the_targets_byte(window: int) -> None:
    """The draft writes one letter, the target another; they share their first byte."""
    events = run(scripted(0, 3, 1, 0), scripted(0, 3, 2, 4, EOS), pieces=BYTES, window=window)
    assert text_of(events) == "x\N{LATIN SMALL LETTER E WITH GRAVE}."
    assert "\ufffd" not in text_of(events)


def test_nothing_is_handed_out_before_the_target_has_seen_it() -> None:
    for seed in range(60):
        draft, target = pair(seed)
        config = DecodeConfig(k=1 + 2 * (seed % 2), refine="verify", window=6, max_tokens=30)
        tokenizer = ToyTokenizer(PIECES)
        verified: list[int] = []
        handed = ""
        for e in run_toy(config, draft, tokenizer, target=target):
            if isinstance(e, Collapsed):
                verified += e.tokens
            elif isinstance(e, Committed):
                handed += e.text
                assert tokenizer.decode(verified).startswith(handed)


def test_the_counts_agree_with_the_events() -> None:
    for seed, mode in itertools.product(range(30), ("verify", "margin")):
        draft, target = pair(seed)
        config = DecodeConfig(k=1 + seed % 3, refine=mode, window=7, max_tokens=30)
        events = list(run_toy(config, draft, target=target))
        stats = finished(events).stats.refinement
        looked = [e for e in events if isinstance(e, Verified)]
        undone = [e for e in events if isinstance(e, RolledBack)]
        assert stats.sweeps == len(looked)
        assert stats.rollbacks == len(undone)
        assert stats.accepted + len(undone) == len(tokens_of(events))
        assert stats.drafted == stats.accepted + sum(len(e.discarded) for e in undone)
        for e in looked:
            assert e.accepted == e.tokens or e.checked[-1] == e.accepted
        assert 0 <= stats.acceptance_rate <= 1
