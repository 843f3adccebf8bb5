"""The loop on a toy model: what may not depend on how it is run, and how answers end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from msi_engine import DecodeConfig
from msi_engine.errors import DecodeError
from msi_engine.events import Collapsed, Committed, Event, Finished, Spawned, Stepped
from msi_engine.path import PathView
from msi_engine.testing import ToyModel, ToyTokenizer, run_toy

INF = float("inf")


def text_of(events: Sequence[Event]) -> str:
    return "".join(e.text for e in events if isinstance(e, Committed))


def of_type(events: Sequence[Event], kind: type) -> list[Any]:
    return [e for e in events if isinstance(e, kind)]


# Stop strings

STOP_PIECES = (" a", "a", "b", "ab", "ba", " ", ".", "</s>")


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("seed", range(40))
def test_no_part_of_a_stop_string_is_ever_emitted(k: int, seed: int) -> None:
    """A path left alone offered its text after the stop: the first "a" of a stop "aa" leaked."""
    stop = (("aa",), ("aba", "b."), ("a a", " a."), ("ab",))[seed % 4]
    config = DecodeConfig(
        k=k, max_tokens=40, stop=stop, segment_length=1 + seed % 5, boundary=(), collapse="argmax"
    )
    model = ToyModel.seeded(len(STOP_PIECES), seed, scale=1.0)
    tokenizer = ToyTokenizer(STOP_PIECES)
    events = list(run_toy(config, model, tokenizer))
    text = text_of(events)
    tokens = [t for e in of_type(events, Collapsed) for t in e.tokens]
    whole = tokenizer.decode(tokens)
    places = [whole.find(s) for s in stop if s in whole]
    assert text == whole[: min(places, default=len(whole))]
    assert (of_type(events, Finished)[0].reason == "stop") == bool(places)
    # What is emitted before the end must not have to be taken back.
    for n in range(len(events)):
        assert text.startswith(text_of(events[:n]))


def test_a_stop_string_across_two_segments_is_found_and_cut() -> None:
    """Every segment is one token: "b." lies across the border of two."""
    model = ToyModel.from_table({(): [9, 0, 0, -9], (0,): [0, 9, 0, -9], (1,): [0, 0, 9, -9]})
    tokenizer = ToyTokenizer(("a", "b", ".", "</s>"))
    config = DecodeConfig(k=2, max_tokens=9, stop=("b.",), segment_length=1, boundary=())
    events = list(run_toy(config, model, tokenizer, prompt=(2,)))
    assert text_of(events) == "a"
    assert of_type(events, Finished)[0].reason == "stop"
    assert of_type(events, Collapsed)[-1].reason == "stop"


# Deferred scoring


class Wit:
    def score(self, paths: Sequence[PathView]) -> list[float]:
        return [0.4 * len(p.segment) + p.segment.count("a") - 0.1 * len(p.committed) for p in paths]


def weighed(events: Sequence[Event]) -> list[Any]:
    """What weights decide: steps, winners, the log-weights of all paths that counted."""
    found: list[Any] = of_type(events, Stepped)
    for e in of_type(events, Collapsed):
        paths = [(p.index, p.tokens, p.log_weight, p.credence) for p in e.paths if p.credence > 0]
        found.append((e.segment, e.reason, e.mode, e.winner, e.tokens, e.text, paths))
    return found


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"short_circuit": 0.6},
        {"short_circuit": 0.6, "diversity": 2.0},
        {"short_circuit": 0.5, "temperature": 1.0, "spawn_temperature": 1.0, "law": "posterior"},
        {"law": "paper", "short_circuit": 0.8, "dedup_tokens": 1},
    ],
    ids=str,
)
def test_deferred_scoring_changes_nothing_but_the_calls(seed: int, options: dict[str, Any]) -> None:
    calls, results = [], []
    for score_every in (1, 3, 7):
        config = DecodeConfig(
            **{"k": 4, "max_tokens": 24, "scorers": {"wit": 0.5}, "score_every": score_every},
            **{"boundary": ("sentence", "paragraph"), "segment_length": 9, **options},
        )
        model = ToyModel.seeded(6, seed, scale=1.5)
        events = list(run_toy(config, model, scorers={"wit": lambda c: Wit()}, seed=seed))
        results.append((text_of(events), weighed(events)))
        calls.append(of_type(events, Finished)[0].stats.scorer_calls["wit"])
    assert results[0] == results[1] == results[2]
    assert calls[2] <= calls[1] <= calls[0]


def test_deferred_scoring_does_save_calls() -> None:
    calls = {}
    for score_every in (1, 4):
        config = DecodeConfig(
            k=3, max_tokens=32, scorers={"wit": 0.1}, score_every=score_every, boundary=(),
            segment_length=16, dedup_tokens=0,
        )  # fmt: skip
        events = list(
            run_toy(config, ToyModel.seeded(5, 1), ToyTokenizer("abcde", eos=()),
                    scorers={"wit": lambda c: Wit()})
        )  # fmt: skip
        calls[score_every] = of_type(events, Finished)[0].stats.scorer_calls["wit"]
    assert calls == {1: 32, 4: 8}


# Seeds

SAMPLED = {"temperature": 1.0, "spawn_temperature": 1.0, "max_tokens": 20, "spawn_min_p": 0.0}


@pytest.mark.parametrize("k", [1, 4])
def test_a_seed_repeats_and_another_differs(k: int) -> None:
    config = DecodeConfig(k=k, **SAMPLED)
    model = ToyModel.seeded(6, 2, scale=1.0)
    runs = [list(run_toy(config, model, seed=seed)) for seed in (0, 0, 1, 2, 3)]
    assert weighed(runs[0]) == weighed(runs[1])
    assert len({text_of(run) for run in runs}) > 1


@pytest.mark.parametrize("collapse", ["argmax", "mbr", "token_vote"])
def test_temperature_zero_ignores_the_seed(collapse: str) -> None:
    config = DecodeConfig(k=4, max_tokens=30, collapse=collapse)
    model = ToyModel.seeded(6, 2, scale=1.0)
    runs = [weighed(list(run_toy(config, model, seed=seed))) for seed in (0, 1, 2**40)]
    assert runs[0] == runs[1] == runs[2]


def test_seed_zero_is_a_seed() -> None:
    model = ToyModel.seeded(6, 2, scale=1.0)
    given = list(run_toy(DecodeConfig(k=4, seed=0, **SAMPLED), model, seed=5))
    assert of_type(given, Finished)[0].seed == 0
    assert weighed(given) == weighed(list(run_toy(DecodeConfig(k=4, **SAMPLED), model, seed=0)))


def test_what_a_path_draws_does_not_depend_on_how_many_there_are() -> None:
    model = ToyModel.seeded(6, 4, scale=1.0)
    first = {}
    for k in (2, 4):
        config = DecodeConfig(
            k=k, temperature=1.0, majority=1.0, boundary=(), segment_length=8, dedup_tokens=0,
            spawn_min_p=0.0,
        )  # fmt: skip
        events = run_toy(config, model, ToyTokenizer("abcdef", eos=()), seed=3)
        first[k] = next(e for e in events if isinstance(e, Collapsed)).paths
    assert [p.tokens for p in first[2]] == [p.tokens for p in first[4]][:2]


def test_a_sampled_collapse_takes_each_path_as_often_as_its_credence_says() -> None:
    config = DecodeConfig(k=3, max_tokens=2, collapse="sample", law="posterior", dedup_tokens=0)
    model = ToyModel.from_table({(): [1.0, 0.5, 0.0]})
    tokenizer, num = ToyTokenizer("abc", eos=()), 3000
    counts = np.zeros(3)
    for seed in range(num):
        (collapse,) = of_type(list(run_toy(config, model, tokenizer, seed=seed)), Collapsed)
        counts[collapse.winner] += 1
    credences = np.array([p.credence for p in collapse.paths])
    errors = np.sqrt(credences * (1 - credences) / num)
    assert (np.abs(counts / num - credences) < 4 * errors).all()


# How answers end


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("max_tokens", [1, 2, 7, 20])
@pytest.mark.parametrize("segment_length", [1, 3, 32])
def test_the_budget_is_filled_exactly(k: int, max_tokens: int, segment_length: int) -> None:
    config = DecodeConfig(k=k, max_tokens=max_tokens, segment_length=segment_length)
    events = list(run_toy(config, ToyModel.seeded(5, 3), ToyTokenizer("ab. c", eos=())))
    finished = of_type(events, Finished)[0]
    assert sum(len(e.tokens) for e in of_type(events, Collapsed)) == max_tokens
    assert (finished.reason, finished.stats.output_tokens) == ("length", max_tokens)


@pytest.mark.parametrize("k", [1, 3])
def test_end_of_sequence_ends_the_answer_is_counted_and_has_no_text(k: int) -> None:
    model = ToyModel.from_table({(): [2.0, 1.0, 1.5, -5.0], (2, 0): [0, 0, 0, 9.0]})
    tokenizer = ToyTokenizer(("a", "b", "c", "</s>"))
    config = DecodeConfig(k=k, max_tokens=50, boundary=(), collapse="argmax")
    events = list(run_toy(config, model, tokenizer, prompt=(2,)))
    last = of_type(events, Collapsed)[-1]
    assert last.tokens[-1] == 3
    assert (last.reason, of_type(events, Finished)[0].reason) == ("eos", "eos")
    assert text_of(events) == "a"
    assert of_type(events, Finished)[0].stats.output_tokens == 2


def test_an_answer_may_be_nothing_but_its_end() -> None:
    model = ToyModel.from_table({(): [0.0, 0.0, 9.0]})
    for k in (1, 4):
        events = list(run_toy(DecodeConfig(k=k), model, ToyTokenizer(("a", "b", "</s>"))))
        assert text_of(events) == ""
        assert of_type(events, Finished)[0].reason == "eos"


@pytest.mark.parametrize("k", [1, 4])
def test_logits_that_are_masked_whole_fail_the_generation(k: int) -> None:
    config = DecodeConfig(k=k, max_tokens=10)

    def after(n: int) -> Any:
        return lambda history, logits: logits if len(history) <= n else np.full(6, -INF, np.float32)

    for n in (0, 3):
        with pytest.raises(DecodeError, match="mask every token"):
            list(run_toy(config, ToyModel.seeded(6, 1), processors=[after(n)]))


def test_masked_tokens_are_never_spawned() -> None:
    model = ToyModel.from_table({(): [0.0, -INF, 0.0, -INF]})
    for temperature in (0.0, 1.0):
        config = DecodeConfig(
            k=4, max_tokens=1, spawn_min_p=0.0, spawn_temperature=temperature, dedup_tokens=0
        )
        events = list(run_toy(config, model, ToyTokenizer("abcd", eos=())))
        assert sorted(of_type(events, Spawned)[0].tokens) == [0, 2]


# Emission


@pytest.mark.parametrize("k", [1, 4])
def test_a_path_alone_streams_token_by_token(k: int) -> None:
    """K = 1, or a model that is certain: text comes before the collapse."""
    cycle = {(): [9.0, 0, 0], (0,): [0, 9.0, 0], (1,): [0, 0, 9.0], (2,): [9.0, 0, 0]}
    config = DecodeConfig(k=k, max_tokens=12, boundary=(), segment_length=6)
    events = list(run_toy(config, ToyModel.from_table(cycle), ToyTokenizer("xyz", eos=())))
    assert [e.text for e in of_type(events, Committed)] == list("yzxyzxyzxyzx")


def test_several_paths_are_silent_until_the_collapse() -> None:
    config = DecodeConfig(k=3, max_tokens=12, boundary=(), segment_length=4, dedup_tokens=0)
    events = list(run_toy(config, ToyModel.seeded(4, 1, scale=0.3), ToyTokenizer("wxyz", eos=())))
    kinds = [type(e) for e in events if isinstance(e, Collapsed | Committed)]
    assert kinds == [Collapsed, Committed] * 3


@pytest.mark.parametrize("segment_length", [1, 2, 5])
@pytest.mark.parametrize("k", [1, 3])
def test_a_character_cut_by_a_collapse_comes_out_whole(k: int, segment_length: int) -> None:
    pieces = ("a", "é".encode()[:1], "é".encode()[1:], "😀".encode()[:3], "😀".encode()[3:])
    order = [0, 1, 2, 3, 4, 0, 3, 4, 1, 2]
    rule = {t: [0.0] * 5 for t in range(5)}

    def logits(history: tuple[int, ...]) -> list[float]:
        row = list(rule[0])
        row[order[(len(history) - 1) % len(order)]] = 9.0
        return row

    config = DecodeConfig(
        k=k, max_tokens=10, boundary=(), segment_length=segment_length, spawn_min_p=0.0,
        collapse="argmax", law="posterior", majority=1.0,
    )  # fmt: skip
    events = list(run_toy(config, ToyModel(5, logits), ToyTokenizer(pieces, eos=())))
    assert text_of(events) == "aé😀a😀é"
    assert all("\ufffd" not in e.text for e in of_type(events, Committed))


def test_a_character_that_is_never_completed_is_left_out() -> None:
    tokenizer = ToyTokenizer(("a", "é".encode()[:1], "b"), eos=())
    model = ToyModel.from_table({(): [9.0, 0.0, 0.0], (0,): [0.0, 9.0, 0.0]})
    for k in (1, 2):
        config = DecodeConfig(k=k, max_tokens=2, collapse="argmax")
        assert text_of(list(run_toy(config, model, tokenizer, prompt=(2,)))) == "a"


# Votes


def vote_model(last: dict[int, int]) -> ToyModel:
    """Three first tokens 0, 1, 2, about equally likely; then ``last`` of each, for sure."""
    table: dict[tuple[int, ...], list[float]] = {(): [0.2, 0.1, 0.0, -9.0, -9.0]}
    for first, second in last.items():
        table[9, first] = [0.0, 0.0, 0.0, 0.0, 0.0]
        table[9, first][second] = 8.0
    return ToyModel.from_table(table)


VOTE = {"k": 3, "max_tokens": 2, "collapse": "token_vote", "boundary": (), "dedup_tokens": 0}


def vote(model: ToyModel, **options: Any) -> Collapsed:
    tokenizer = ToyTokenizer("abcdefghij", eos=())
    events = list(run_toy(DecodeConfig(**VOTE, **options), model, tokenizer, prompt=(9,)))
    (collapse,) = of_type(events, Collapsed)
    assert text_of(events) == collapse.text
    return collapse


def test_a_vote_for_one_of_the_paths_is_that_path() -> None:
    collapse = vote(vote_model({0: 3, 1: 3, 2: 4}))
    assert (collapse.winner, collapse.tokens, collapse.mode) == (0, (0, 3), "token_vote")
    assert collapse.note is None


def test_a_vote_for_none_of_the_paths_is_refused_where_the_model_finds_it_unlikely() -> None:
    model = vote_model({0: 3, 1: 4, 2: 4})  # the vote is (0, 4); the model says (0, 3)
    refused = vote(model, vote_guard=1.0)
    assert (refused.winner, refused.tokens, refused.mode) == (0, (0, 3), "argmax")
    assert "vote refused" in (refused.note or "")


@pytest.mark.parametrize("guard", [None, 5.0])
def test_a_vote_for_none_of_the_paths_is_taken_otherwise(guard: float | None) -> None:
    voted = vote(vote_model({0: 3, 1: 4, 2: 4}), vote_guard=guard)
    assert (voted.winner, voted.tokens, voted.mode) == (None, (0, 4), "token_vote")


# What is dropped costs nothing


def test_after_a_short_circuit_only_the_survivor_is_fed() -> None:
    config = DecodeConfig(
        k=4, max_tokens=12, short_circuit=0.6, boundary=(), segment_length=12, law="posterior",
        dedup_tokens=0,
    )  # fmt: skip
    # Path 0 goes on surely, the others pay for every token.
    model = ToyModel.from_table({(): [0.0] * 5, (0,): [9.0, 0, 0, 0, 0]})
    events = list(run_toy(config, model, ToyTokenizer("abcde", eos=()), prompt=(1,)))
    steps = of_type(events, Stepped)
    assert len(steps[1].paths) == 4
    assert steps[-1].paths == (0,)
    stats = of_type(events, Finished)[0].stats
    alone = sum(len(s.paths) == 1 for s in steps)
    assert stats.path_tokens <= 4 * (len(steps) - alone) + alone
    assert len([e for e in events if isinstance(e, Committed)]) > 1  # it streams from there


@pytest.mark.parametrize("align_steps", [0, 2, 5])
def test_stragglers_get_no_more_tokens_than_they_are_given(align_steps: int) -> None:
    """Path 0 is at its boundary after two tokens; the others never are."""
    onward = [-9.0, -9.0, -9.0, -9.0, 9.0]
    model = ToyModel.from_table(
        {(): [0.3, 0, 0.1, -9, -9], (0,): [-9, -9, -9, 9, -9]} | {(t,): onward for t in (1, 2, 4)}
    )
    tokenizer = ToyTokenizer(("Yes", " b", " c", ".", " e"), eos=())
    config = DecodeConfig(
        k=3,
        max_tokens=40,
        align_steps=align_steps,
        majority=0.3,
        law="paper",
        dedup_tokens=0,
        segment_length=30,
    )

    class Period:
        name = "period"

        def reached(self, context: Any) -> bool:
            return bool(context.segment.endswith("."))

    events = list(run_toy(config, model, tokenizer, prompt=(3,), boundaries=[Period()]))
    first = of_type(events, Collapsed)[0]
    assert [p.boundary for p in first.paths] == ["period", None, None]
    assert [len(p.tokens) for p in first.paths] == [2, 2 + align_steps, 2 + align_steps]
