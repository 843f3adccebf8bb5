"""The panel of scorers of one generation: calls them, checks what they return, counts the cost.

Scorers are asked for everything that is pending in one call each, so that an embedding scorer
encodes one batch; the sum over scorers is taken in the order the user gave.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence

from msi_engine.errors import ScorerError
from msi_engine.path import PathState, PathStatus, PathView
from msi_engine.scorer import PreparingScorer, Scorer

_MOST = 1e100  # nats of one signal; sums of more would not be finite


class ScorerPanel:
    """Weighted scorers and their accounts.

    Args:
        scorers: Name to (scorer, weight lambda in nats per unit of the scorer).

    Attributes:
        calls: Calls of each scorer.
        seconds: Seconds that the generation waited for each scorer.
    """

    def __init__(self, scorers: Mapping[str, tuple[Scorer, float]]) -> None:
        self._scorers = dict(scorers)
        self._preparing = {
            name: scorer
            for name, (scorer, _) in scorers.items()
            if isinstance(scorer, PreparingScorer)
        }
        self.calls = dict.fromkeys(self._scorers, 0)
        self.seconds = dict.fromkeys(self._scorers, 0.0)

    def __bool__(self) -> bool:
        return bool(self._scorers)

    @property
    def names(self) -> tuple[str, ...]:
        """The scorers, in the order the user gave."""
        return tuple(self._scorers)

    def without(self, name: str, path: PathState) -> PathState:
        """The path as it would stand had scorer ``name`` been silent."""
        weight, scores = self._scorers[name][1], path.scores[name]
        signals = [s - weight * v for s, v in zip(path.signals, scores, strict=True)]
        return dataclasses.replace(path, signals=signals)

    @property
    def prepares(self) -> bool:
        """Whether a scorer wants to know of texts before the model's pass."""
        return bool(self._preparing)

    def prepare_pending(self, paths: Sequence[PathState], prompt: str, committed: str) -> None:
        """Tell scorers what `score_pending` would ask them now.

        Raises:
            ScorerError: If a scorer raises.
        """
        views = [
            _view(path, n + 1, prompt, committed, _others(path, n + 1, paths))
            for path, n in _unscored(paths)
        ]
        for name, scorer in self._preparing.items() if views else ():
            try:
                scorer.prepare(views)
            except Exception as error:
                raise ScorerError(name, f"raised {type(error).__name__}: {error}") from error

    def score_pending(self, paths: Sequence[PathState], prompt: str, committed: str) -> None:
        """Bring the signals of every path up to its last token.

        Args:
            paths: The paths that count, by index, with any number of unscored tokens.
            prompt: The prompt as text.
            committed: Text committed so far.

        Raises:
            ScorerError: If a scorer raises, or does not return one finite number per text.
        """
        pending = _unscored(paths)
        if not pending:
            return
        totals = [0.0] * len(pending)
        if self._scorers:
            views = [
                _view(path, n + 1, prompt, committed, _others(path, n + 1, paths))
                for path, n in pending
            ]
            for name, (_, weight) in self._scorers.items():
                values = self._call(name, weight, views)
                totals = [t + weight * v for t, v in zip(totals, values, strict=True)]
                for (path, _), value in zip(pending, values, strict=True):
                    path.scores.setdefault(name, []).append(value)
        for (path, _), total in zip(pending, totals, strict=True):
            path.signals.append(total)

    def _call(self, name: str, weight: float, views: list[PathView]) -> list[float]:
        start = time.perf_counter()
        try:
            values = [float(v) for v in self._scorers[name][0].score(views)]
        except Exception as error:
            raise ScorerError(name, f"raised {type(error).__name__}: {error}") from error
        finally:
            self.calls[name] += 1
            self.seconds[name] += time.perf_counter() - start
        if len(values) != len(views):
            raise ScorerError(name, f"returned {len(values)} scores for {len(views)} texts")
        for view, value in zip(views, values, strict=True):
            if not abs(weight * value) < _MOST:
                raise ScorerError(name, f"returned {value} for {view.segment[-40:]!r}")
        return values


def _unscored(paths: Sequence[PathState]) -> list[tuple[PathState, int]]:
    """Each token without a signal, as its path and its place."""
    return [(path, n) for path in paths for n in range(len(path.signals), len(path))]


def _others(path: PathState, n: int, paths: Sequence[PathState]) -> tuple[str, ...]:
    """The other segments when the live paths had ``n`` tokens: the same however late asked."""
    return tuple(p.texts[min(n, len(p)) - 1] for p in paths if p is not path)


def _view(
    path: PathState, n: int, prompt: str, committed: str, others: tuple[str, ...]
) -> PathView:
    return PathView(
        index=path.index,
        prompt=prompt,
        committed=committed,
        segment=path.texts[n - 1],
        tokens=path.tokens[:n],
        logprob=path.logprob_at(n),
        finished=n == len(path) and path.status is PathStatus.WAITING,
        others=others,
    )
