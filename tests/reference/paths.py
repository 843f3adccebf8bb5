"""A path, and how paths are weighed: every signal and every sum anew."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msi_engine import DecodeConfig
from msi_engine.path import PathView
from tests.reference.models import State
from tests.reference.texts import Texts
from tests.reference.weights import credences, log_weight


@dataclass
class Path:
    index: int
    state: State
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    status: str = "live"
    boundary: str | None = None


class Scale:
    """Weighs paths by the law of ``config``; ``scorers`` by name, their weights in ``config``."""

    def __init__(
        self, config: DecodeConfig, scorers: Mapping[str, Any], texts: Texts, prompt_text: str
    ) -> None:
        self._config, self._scorers = config, scorers
        self._texts, self._prompt_text = texts, prompt_text

    def shares(
        self, paths: Sequence[Path], num_spawned: int, committed: Sequence[int]
    ) -> list[float]:
        """Credences of ``paths``, which follow the tokens ``committed``."""
        return credences(
            [
                log_weight(
                    self._config,
                    num_spawned,
                    path.logprobs,
                    [0.0] * len(path.tokens),
                    self._signals(path, committed),
                )
                for path in paths
            ]
        )

    def _signals(self, path: Path, committed: Sequence[int]) -> list[float]:
        before = self._texts.of([], committed)
        texts = self._texts.after_each(committed, path.tokens)
        views = [self._view(path, before, text, t + 1) for t, text in enumerate(texts)]
        return [
            sum(
                weight * self._scorers[name].score([view])[0]
                for name, weight in self._config.scorers.items()
            )
            for view in views
        ]

    def _view(self, path: Path, committed: str, segment: str, t: int) -> PathView:
        return PathView(
            index=path.index,
            prompt=self._prompt_text,
            committed=committed,
            segment=segment,
            tokens=tuple(path.tokens[:t]),
            logprob=math.fsum(path.logprobs[:t]),
            finished=path.status == "waiting" and t == len(path.tokens),
        )
