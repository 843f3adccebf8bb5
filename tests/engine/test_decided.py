"""Which scorers decided a collapse, recomputed from what the event tells of its paths."""

import numpy as np
import pytest

from msi_engine import DecodeConfig
from msi_engine.events import Collapsed, Finished
from msi_engine.testing import ToyModel, ToyTokenizer, run_toy

TOKENIZER = ToyTokenizer([" a", " b", " c", " d", " e", "</s>"])
WEIGHTS = {"loud": 3.0, "soft": 0.2, "idle": 1.0}


class Letters:
    """The share of a letter in the segment."""

    def __init__(self, letter):
        self.letter = letter

    def score(self, paths):
        return [p.segment.count(self.letter) / max(len(p.segment), 1) for p in paths]


FACTORIES = {
    "loud": lambda context: Letters("c"),
    "soft": lambda context: Letters("a"),
    "idle": lambda context: Letters("z"),
}


def events_of(seed, **options):
    config = DecodeConfig(
        k=4, max_tokens=40, segment_length=4, spawn_min_p=0, scorers=WEIGHTS, **options
    )
    return list(run_toy(config, ToyModel.seeded(6, seed), TOKENIZER, scorers=FACTORIES))


def winner_without(collapse, scorer):
    """Law `mean` and `argmax`: a path's last signal is all that a scorer adds."""
    candidates = [p for p in collapse.paths if p.status != "dropped"]
    weights = [
        p.log_weight - (WEIGHTS[scorer] * p.signals[scorer] if scorer else 0.0) for p in candidates
    ]
    return candidates[int(np.argmax(weights))].index


@pytest.mark.parametrize("score_every", [1, 3])
def test_a_scorer_decided_where_the_winner_is_another_without_it(score_every):
    seen = {name: 0 for name in WEIGHTS}
    for seed in range(12):
        events = events_of(seed, score_every=score_every)
        told = {name: 0 for name in WEIGHTS}
        for collapse in (e for e in events if isinstance(e, Collapsed)):
            assert collapse.winner == winner_without(collapse, None)
            expected = [n for n in WEIGHTS if winner_without(collapse, n) != collapse.winner]
            assert list(collapse.decided) == expected
            for name in expected:
                told[name] += 1
        (finished,) = (e for e in events if isinstance(e, Finished))
        assert finished.stats.decided == told
        seen = {name: seen[name] + told[name] for name in seen}
    assert seen["loud"] > seen["soft"] > 0
    assert seen["idle"] == 0


@pytest.mark.parametrize("collapse", ["sample", "token_vote", "mbr"])
@pytest.mark.parametrize("law", ["paper", "posterior"])
def test_a_silent_scorer_decides_nothing_in_any_mode(collapse, law):
    for seed in range(4):
        events = events_of(seed, collapse=collapse, law=law)
        assert all("idle" not in e.decided for e in events if isinstance(e, Collapsed))
