"""What the grounding benchmark says of cost, against the decoder's own account."""

from __future__ import annotations

import json

import pytest

from benchmarks.grounding import recorded
from benchmarks.grounding_arms import WHOLE, cut_off, fitting, forwarded
from benchmarks.grounding_questions import Question, RareWords, best_f1, contained, grounded
from msi_engine import DecodeConfig
from msi_engine.events import Collapsed, Finished
from msi_engine.testing import ToyEmbedder, ToyModel, ToyTokenizer, run_toy

TOKENIZER = ToyTokenizer()


def run(model, **options):
    config = DecodeConfig(k=4, max_tokens=40, **options)
    toy = ToyModel.seeded(TOKENIZER.size, model, scale=1.0)
    events = list(run_toy(config, toy, TOKENIZER, seed=3))
    return [e for e in events if isinstance(e, Collapsed)], events[-1]


ARMS = [{"spawn_min_p": 0.0, "temperature": 1.0}, {"majority": 1.0}, {}, {**WHOLE, "seed": 1}]


@pytest.mark.parametrize("options", ARMS)
def test_tokens_of_the_segments_add_up_to_those_that_went_through_the_model(options):
    several = 0
    for model in range(8):
        collapses, finished = run(model, **options)
        assert isinstance(finished, Finished)
        assert sum(map(forwarded, collapses)) == finished.stats.forward_tokens
        several += len(collapses) > 1
    assert several or "boundary" in options


def test_whole_answers_are_one_segment_with_every_path_kept():
    for model in range(8):
        (collapse,), _ = run(model, **WHOLE)
        assert len(collapse.paths) == 4
        assert all(path.boundary in ("eos", "budget") for path in collapse.paths)


def test_an_answer_is_cut_where_the_tokens_are_spent():
    collapses, finished = run(2, spawn_min_p=0.0, temperature=1.0)
    whole = [token for collapse in collapses for token in collapse.tokens]
    lengths = []
    for budget in range(finished.stats.forward_tokens + 1):
        cut = cut_off(collapses, budget)
        assert cut == whole[: len(cut)]
        lengths.append(len(cut))
    assert lengths == sorted(lengths)
    assert lengths[0] == 0
    assert lengths[-1] == len(whole)
    assert cut_off(collapses, forwarded(collapses[0])) == list(collapses[0].tokens)


@pytest.mark.parametrize(("budget", "length"), [(0, 0), (2, 0), (3, 1), (5, 1), (8, 3), (99, 5)])
def test_paths_of_several_lengths_share_what_is_left(budget, length):
    assert fitting([(1,) * 5, (2,) * 2, (3,) * 3], budget) == length


def test_a_line_that_was_broken_off_is_asked_again(tmp_path):
    out = tmp_path / "answers.jsonl"
    assert recorded(out) == []
    out.write_text(json.dumps({"number": 3}) + "\n" + '{"number": 5, "qu')
    assert recorded(out) == [{"number": 3}]


QUESTION = Question(
    "Where does the tide come from?",
    "The tide comes from the Moon.",
    ("The tide comes from the Moon.",),
    ("Bees make honey of nectar.", "Tea is a drink."),
    ("the Moon", "moon's gravity"),
)


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("The Moon makes the tide.", 1.0),
        ("The Moon makes the tide. Bees like tea and honey of nectar.", 0.5),
        ("Bees make honey!\nHoney is made of nectar. The tide comes.", 1 / 3),
        ("", 0.0),
        (" ... ", 0.0),
    ],
)
def test_a_sentence_is_grounded_whose_nearest_chunk_is_of_the_passage(text, share):
    paragraphs = [*QUESTION.gold, *QUESTION.others]
    assert grounded(text, QUESTION, RareWords(paragraphs)) == pytest.approx(share)
    assert grounded(text, QUESTION, ToyEmbedder(4096)) == pytest.approx(share)


def test_answers_are_compared_as_squad_does():
    assert contained("It is the MOON, of course.", QUESTION) == 1.0
    assert contained("It is the moonlight.", QUESTION) == 0.0
    # Of "moon pulls" and "moon": one word in common, of two and one.
    assert best_f1("The moon pulls!", QUESTION) == pytest.approx(2 / 3)
    assert best_f1("Bees.", QUESTION) == 0.0
