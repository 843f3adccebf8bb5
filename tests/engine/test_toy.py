"""The toy model and its driver, against loops and sums written out here."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from msi_engine import DecodeConfig
from msi_engine.errors import CacheError
from msi_engine.events import Collapsed, Committed, Finished
from msi_engine.feed import BRANCH, Branch, Drop, Feed, Fork, Merge, Park, Turn
from msi_engine.testing import ToyModel, ToyRunner, ToyTokenizer, make_toy_decoder, run_toy

TOKENIZER = ToyTokenizer()


def committed(events):
    return [t for e in events if isinstance(e, Collapsed) for t in e.tokens]


def test_the_longest_end_of_the_history_decides():
    model = ToyModel.from_table({(): [0, 0], (1,): [1, 0], (0, 1): [2, 0], (1, 0, 1): [3, 0]})
    first = [model.logits(h)[0] for h in [(), (0,), (1,), (0, 1), (0, 0, 1), (1, 0, 1)]]
    assert first == [0, 0, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("table", "message"), [({(0,): [1.0]}, "no row"), ({(): [1.0], (0,): [1.0, 2.0]}, "differ")]
)
def test_a_table_that_is_no_model_is_refused(table, message):
    with pytest.raises(ValueError, match=message):
        ToyModel.from_table(table)


def test_a_rule_must_give_numbers():
    with pytest.raises(ValueError, match=r"after \(1,\); it must give 2 numbers"):
        ToyModel(2, lambda history: [math.nan, 0.0]).logits([1])
    with pytest.raises(ValueError, match="3 numbers"):
        ToyModel(3, lambda history: [0.0, 0.0]).logits([])


def test_a_seeded_model_depends_on_its_seed_and_its_last_tokens_alone():
    model = ToyModel.seeded(5, seed=3, order=2)
    assert (model.logits([4, 4, 1, 2]) == ToyModel.seeded(5, seed=3).logits([0, 1, 2])).all()
    assert (model.logits([1, 2]) != model.logits([2, 1])).any()
    assert (model.logits([1, 2]) != ToyModel.seeded(5, seed=4).logits([1, 2])).any()
    assert (model.logits([0]) != model.logits([])).any()
    assert model.logits([1]).dtype == np.float32
    assert math.isclose(np.exp(model.logprobs([1, 2])).sum(), 1.0)


def test_logits_may_be_changed_by_whoever_gets_them():
    model = ToyModel.seeded(4)
    before = model.logits([1]).copy()
    model.logits([1])[:] = 0
    assert (model.logits([1]) == before).all()


def test_the_tokenizer_goes_there_and_back():
    tokenizer = ToyTokenizer(("a", "ab", b"\xc3", b"\xa9", "</s>"))
    assert tokenizer.encode("abaé!") == [1, 0, 2, 3]
    assert tokenizer.decode([1, 0, 2, 3, 4]) == "abaé"
    detokenizer = tokenizer.vocabulary.detokenizer()
    assert [detokenizer.push(t) for t in (1, 2, 3, 4)] == ["ab", "", "é", ""]
    assert tokenizer.vocabulary.eos_token_ids == {4}
    with pytest.raises(ValueError, match="two pieces are equal"):
        ToyTokenizer(("a", b"a"))


@pytest.mark.parametrize("seed", range(20))
def test_greedy_decoding_is_the_plain_loop(seed):
    model = ToyModel.seeded(TOKENIZER.size, seed)
    expected, history = [], [0, 2]
    while len(expected) < 15 and (not expected or expected[-1] != 5):
        expected.append(int(model.logits(history).argmax()))
        history.append(expected[-1])
    events = list(run_toy(DecodeConfig(k=1, max_tokens=15), model, TOKENIZER, prompt=[0, 2]))
    assert committed(events) == expected
    text = "".join(e.text for e in events if isinstance(e, Committed))
    assert text == TOKENIZER.decode(expected)


def test_sampled_decoding_draws_from_the_model():
    model = ToyModel.seeded(TOKENIZER.size, 1, scale=1.0)
    config = DecodeConfig(k=1, max_tokens=2, temperature=1.0)
    n = 4000
    drawn = Counter(tuple(committed(run_toy(config, model, TOKENIZER, seed=s))) for s in range(n))
    probs = {(5,): math.exp(model.logprobs([0])[5])}
    for a in range(5):
        for b in range(6):
            logprob = model.logprobs([0])[a] + model.logprobs([0, a])[b]
            probs[a, b] = math.exp(logprob)
    assert math.isclose(sum(probs.values()), 1.0)
    for tokens, prob in probs.items():
        error = math.sqrt(prob * (1 - prob) / n)
        assert abs(drawn[tokens] / n - prob) < 5 * error, tokens


CONFIGS = [
    {"k": 1},
    {"k": 4},
    {"k": 4, "collapse": "token_vote", "law": "paper", "spawn_min_p": 0.0},
    {"k": 3, "collapse": "sample", "temperature": 1.0, "spawn_temperature": 3.0},
    {"k": 3, "short_circuit": 0.6, "temperature": 1.0, "spawn_temperature": 3.0},
]


@pytest.mark.parametrize("options", CONFIGS, ids=str)
def test_what_was_fed_is_what_was_committed(options):
    for seed in range(30):
        model = ToyModel.seeded(TOKENIZER.size, seed)
        config = DecodeConfig(max_tokens=14, **options)
        decoder = make_toy_decoder(config, TOKENIZER, seed=seed)
        runner = ToyRunner(model, [0])
        turn = decoder.start(runner.root())
        events = list(turn.events)
        while turn.feed is not None:
            turn = decoder.advance(runner.run(turn))
            events += turn.events
        runner.run(turn)
        tokens = committed(events)
        assert isinstance(events[-1], Finished)
        assert runner.tails == {}
        # The last token of all may end the answer without having been fed.
        assert [0, *tokens][: len(runner.prefix)] == runner.prefix
        assert len(runner.prefix) in (len(tokens), len(tokens) + 1)


def test_processors_see_every_paths_own_history():
    model = ToyModel.seeded(TOKENIZER.size, 2)
    seen = set()

    def forbid_repeats(history, logits):
        seen.add(tuple(history))
        logits[history[-1]] = -math.inf
        return logits

    config = DecodeConfig(k=4, max_tokens=12, spawn_min_p=0.0)
    events = list(run_toy(config, model, TOKENIZER, processors=[forbid_repeats]))
    done = [0]
    for event in (e for e in events if isinstance(e, Collapsed)):
        for path in event.paths:
            tokens = [*done, *path.tokens]
            assert all(a != b for a, b in itertools.pairwise(tokens))
            assert tuple(tokens[:-1]) in seen
        done += event.tokens


FORK = Fork(2)
WRONG_TURNS = [
    ([Merge(0)], None, "it has no tail"),
    ([FORK, FORK], None, "forked already"),
    ([FORK, Park(0), Park(0)], None, "it is not fed"),
    ([FORK, Drop(0), Drop(0)], None, "it has no tail"),
    ([FORK, Branch(), Branch()], None, "a branch already"),
    ([], Feed((0,), ((1,),)), "the prefix is forked, or is not"),
    ([FORK], Feed((0,), ((1,),), forked=False), "the prefix is forked, or is not"),
    ([FORK], Feed((1, 0), ((1,), (1,))), r"the paths to be fed are \[0, 1\]"),
    ([FORK, Park(0)], Feed((0, 1), ((1,), (1,))), r"the paths to be fed are \[1\]"),
    ([FORK], Feed((0, 1), ((1,),)), "differ in number"),
    ([FORK], Feed((0, 1), ((1,), (1, 2))), "differ in length"),
    ([FORK], Feed((0, 1), ((1,), (1,)), all_positions=True), "several rows"),
]


@pytest.mark.parametrize(("ops", "feed", "message"), WRONG_TURNS)
def test_what_a_real_cache_could_not_do_is_an_error(ops, feed, message):
    with pytest.raises(CacheError, match=message):
        ToyRunner(ToyModel.seeded(4), [0]).run(Turn((), tuple(ops), feed))


def test_a_branch_gives_logits_after_every_token():
    model = ToyModel.seeded(4, order=9)
    runner = ToyRunner(model, [3])
    runner.run(Turn((), (FORK,), Feed((0, 1), ((1,), (2,)))))
    ops = (Drop(1), Park(0), Branch())
    rows = runner.run(Turn((), ops, Feed((BRANCH,), ((2, 0, 1),), all_positions=True)))
    expected = [model.logits([3, *tail]) for tail in ([2], [2, 0], [2, 0, 1])]
    assert [row.raw.tolist() for row in rows] == [e.tolist() for e in expected]
    runner.run(Turn((), (Merge(0),), Feed((0,), ((0,),), forked=False)))
    assert runner.prefix == [3, 1, 0]


def test_the_kit_needs_no_mlx_and_no_test_framework():
    code = (
        "import sys, msi_engine.testing; "
        "print(sorted({'mlx', 'mlx_lm', 'transformers', 'torch', 'pytest'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
