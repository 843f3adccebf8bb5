"""The conformance kit passes what is right and refuses each kind of wrong by name."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from msi_engine import PathView, ScoreContext
from msi_engine.plugins import find_scorers, plugin_report
from msi_engine.testing import ConformanceError, ToyEmbedder, check_scorer


class Right:
    """Correct, and a base for those that are wrong in one way."""

    def __init__(self, context: ScoreContext) -> None:
        self.context = context

    def score(self, paths):
        return [self.one(path) for path in paths]

    def one(self, path: PathView) -> float:
        return float(len(path.text.split()) + len(self.context.prompt))


class TooFew(Right):
    def score(self, paths):
        return super().score(paths)[1:]


class OneForAll(Right):
    def score(self, paths):
        return [1.0]


class NotANumberForEmpty(Right):
    def one(self, path):
        return len(path.segment.strip()) / len(path.segment) if path.segment else math.nan


class Infinite(Right):
    def one(self, path):
        return -math.inf if "Moon" in path.segment else 0.0


class Text(Right):
    def one(self, path):
        return "0.5"


class Nothing(Right):
    def one(self, path):
        return None


class RaisesOnEmpty(Right):
    def one(self, path):
        return float(ord(path.segment[0]))


class CountsCalls(Right):
    def __init__(self, context):
        super().__init__(context)
        self.calls = itertools.count()

    def one(self, path):
        return super().one(path) + next(self.calls)


class RandomByInstance(Right):
    def __init__(self, context):
        super().__init__(context)
        self.offset = float(id(self))
        KEPT.append(self)  # so that no address is given out again

    def one(self, path):
        return self.offset


class Relative(Right):
    def score(self, paths):
        scores = np.array(super().score(paths))
        return list(scores - scores.mean())


class ByPlace(Right):
    """Depends on the place in the batch, but not when asked for one."""

    def score(self, paths):
        return [s + 0.001 * i for i, s in enumerate(super().score(paths))]


class FailsAlone(Right):
    def score(self, paths):
        return np.atleast_1d(np.squeeze(np.array([super().score(paths)]))) if len(paths) > 1 else []


class ByIndex(Right):
    def one(self, path):
        return float(path.index)


class ByOthersSeen(Right):
    """Remembers the other paths of the last view that had any."""

    def __init__(self, context):
        super().__init__(context)
        self.seen = ()

    def one(self, path):
        self.seen = path.others or self.seen
        return float(len(self.seen))


class SharedState(Right):
    prompt = ""

    def __init__(self, context):
        type(self).prompt = context.prompt

    def one(self, path):
        return float(len(self.prompt))


KEPT: list[object] = []

WRONG = [
    (lambda context: object(), "no method `score`"),
    (TooFew, "scores for 5"),
    (OneForAll, "1 scores for"),
    (NotANumberForEmpty, "'' scored nan, which is not finite"),
    (Infinite, "Moon.*scored -inf, which is not finite"),
    (Text, "'0.5', which is no number"),
    (Nothing, "None, which is no number"),
    (RaisesOnEmpty, "raised IndexError"),
    (CountsCalls, "in a second call"),
    (RandomByInstance, "in a new scorer"),
    (Relative, "in K = 1 against a batch"),
    (ByPlace, "in K = 1 against a batch"),
    (FailsAlone, "0 scores for 1 texts: ''"),
    (ByIndex, "in other path indices"),
    (ByOthersSeen, "in a second call"),
    (SharedState, "in another generation"),
]


@pytest.mark.parametrize(("factory", "message"), WRONG, ids=[m for _, m in WRONG])
def test_a_wrong_scorer_is_refused_for_what_is_wrong_with_it(factory, message):
    with pytest.raises(ConformanceError, match=message):
        check_scorer(factory)


def test_a_scorer_that_looks_at_its_place_in_pairs_is_refused():
    class Sorted(Right):
        """Right for one text and for the batch as it is; wrong once the order changes."""

        def score(self, paths):
            scores = super().score(paths)
            backwards = len(paths) > 1 and paths[0].committed > paths[-1].committed
            return scores[::-1] if backwards else scores

    with pytest.raises(ConformanceError, match="another order"):
        check_scorer(Sorted)


def test_a_right_scorer_passes():
    check_scorer(Right)


def test_scalars_of_numpy_are_numbers():
    class Half(Right):
        def score(self, paths):
            return np.array(super().score(paths), np.float16)

    check_scorer(Half)


def test_rounding_of_a_batch_is_tolerated_and_more_is_not():
    class Rounds(Right):
        def score(self, paths):
            return [s + (1e-6 if len(paths) == 1 else 0.0) for s in super().score(paths)]

    check_scorer(Rounds)
    with pytest.raises(ConformanceError, match="K = 1"):
        check_scorer(Rounds, tolerance=1e-7)


BUILT_IN = {
    "agreement": [{}],
    "archetype": [{"target": "tide"}, {"target": "bloom", "scope": "segment"}],
    "length": [{}, {"target": 3}, {"target": 1, "unit": "tokens"}],
    "rag": [{}, {"scope": "text", "pool": "softmax"}, {"pool": "mean", "control": "shuffle"}],
    "regex": [
        {"pattern": "[aeiou]", "count": 3},
        {"pattern": " ?The.*", "match": "full", "scope": "text", "ignore_case": True},
    ],
    "register": [
        {"target": "news"},
        {"target": "casual", "scope": "segment", "window": 5},
        {"example": "O wind, o sea!", "control": "shuffle"},
    ],
    "repetition": [{}, {"n": 1}, {"n": 2, "scope": "segment"}],
}


@pytest.mark.parametrize(
    ("name", "options"), [(name, options) for name, many in BUILT_IN.items() for options in many]
)
def test_the_built_in_scorers_keep_the_contract(name, options):
    check_scorer(
        find_scorers([name], {})[name],
        options=options,
        evidence=["The tide comes from the Moon.", "Tea is a drink."],
        embedder=ToyEmbedder(),
    )


def test_every_built_in_scorer_is_tried():
    [own] = [status for status in plugin_report() if status.distribution == "llm-msi"]
    assert own.error is None
    # `entailment` needs a model; its contract is tried in test_entailment.py.
    assert set(own.scorers) == {*BUILT_IN, "entailment"}
