"""The interface of outside signals: what a scorer is given and what it must return.

A scorer is an ordinary object made once for each generation by a factory that a plugin has
registered. It knows text, not tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from msi_engine.evidence import Embedder, Evidence
from msi_engine.path import PathView

SCORER_API = 1


@dataclass(frozen=True, slots=True)
class ScoreContext:
    """What a factory may use to build a scorer for one generation.

    Attributes:
        prompt: The prompt as text.
        options: The user's options for this scorer, from ``scorer_options``.
        question: What the user asks: the last user message, or the whole prompt where there are
            no messages.
        evidence: The passages that the answer is to be held to; none is blank.
        embedder: What embeds texts, if the caller has given one.
    """

    prompt: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    question: str = ""
    evidence: tuple[Evidence, ...] = ()
    embedder: Embedder | None = None


@runtime_checkable
class Scorer(Protocol):
    """An external judgement of partial texts."""

    def score(self, paths: Sequence[PathView]) -> Sequence[float]:
        """Judge every path in one call.

        The same path may appear several times at different lengths, when scoring is deferred.

        Args:
            paths: Pending partial texts, in any order.

        Returns:
            One finite float for each, 0 being neutral. It must be the same for the same text.
        """
        ...


@runtime_checkable
class PreparingScorer(Scorer, Protocol):
    """A scorer that can work while the model does."""

    def prepare(self, paths: Sequence[PathView]) -> None:
        """Begin to judge texts that `score` will be asked about after the model's pass.

        Called before the pass, which it must not hold up: what takes time belongs on another
        thread, and `score` waits for it. Some of the texts may never be asked about. ``finished``
        and ``others`` may be different then.
        """
        ...


ScorerFactory = Callable[[ScoreContext], Scorer]
