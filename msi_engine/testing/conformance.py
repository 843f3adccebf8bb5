"""The scorer conformance kit: does a scorer keep the contract of `msi_engine.Scorer`?

Knows nothing of what a good score is, only what every scorer owes the engine: one finite number
for each text, the same for the same text, whatever stands beside it in the batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

from msi_engine.evidence import Embedder, as_evidence
from msi_engine.path import PathView
from msi_engine.scorer import ScoreContext, Scorer, ScorerFactory

PROMPT = "Where does the tide come from?"

TEXTS = (
    "",
    " ",
    "\n\n",
    "The",
    " The tide comes from the Moon",
    " The tide comes from the Moon, which pulls at the sea.",
    "The tide comes from the wind.",
    "the the the the the the the the",
    "3.14 and e.g. https://example.org/a?b=1",
    "def f(x):\n    return {'a': [x]}\n",
    "Die Flut kommt vom Mond, größtenteils. 潮は月から来る。المد من القمر 🌊👍🏽",
    "e\u0301 \u200b\u202e\x00",
    "A long one. " * 200,
)
"""Segments on which scorers are tried: empty, short, repeated, long, and of several scripts."""


class ConformanceError(AssertionError):
    """A scorer breaks the contract; the message says which part, on which text, and how."""


def check_scorer(
    factory: ScorerFactory,
    *,
    options: Mapping[str, Any] | None = None,
    prompt: str = PROMPT,
    evidence: Sequence[Any] = (),
    embedder: Embedder | None = None,
    texts: Sequence[str] = TEXTS,
    tolerance: float = 1e-5,
) -> None:
    """Check that the scorers of a factory keep the contract.

    In this order: the factory gives a scorer; a batch of many texts, of K = 1 and of the empty
    text alone gives one finite number each; asking again, of the same scorer or of a new one,
    gives the same; no text's score depends on its place in the batch, on what else is in it, on
    the index of its path, or on another generation that runs at the same time.

    Args:
        factory: As it is registered.
        options: As the scorer would find them in ``ScoreContext.options``.
        prompt: The prompt.
        evidence: Passages, for a scorer that needs them.
        embedder: An embedder, for a scorer that needs one, such as `ToyEmbedder`.
        texts: Segments to try. Each is tried after two different committed texts.
        tolerance: Most that a score may differ between batches (rounding of a model's batch).

    Raises:
        ConformanceError: At the first part of the contract that is broken.
    """
    if not texts:
        raise ValueError("there are no texts to try; give at least one")
    context = ScoreContext(
        prompt=prompt,
        options=dict(options or {}),
        question=prompt,
        evidence=as_evidence(evidence),
        embedder=embedder,
    )
    scorer = _make(factory, context)
    views = _views(prompt, texts)
    scores = _score(scorer, views)
    _score(scorer, _views(prompt, ("",)))
    _same("a second call", views, scores, _score(scorer, views))
    _same("a new scorer", views, scores, _score(_make(factory, context), views))
    alone = [_score(scorer, [view])[0] for view in views]
    _same("K = 1 against a batch", views, scores, alone, tolerance)
    backwards = _score(scorer, views[::-1])[::-1]
    _same("the batch in another order", views, scores, backwards, tolerance)
    renumbered = [replace(view, index=len(views) - i) for i, view in enumerate(views)]
    _same("other path indices", views, scores, _score(scorer, renumbered), tolerance)
    _check_isolation(factory, context, views, scores)


def _check_isolation(
    factory: ScorerFactory, context: ScoreContext, views: list[PathView], scores: list[float]
) -> None:
    """Two generations at once: what one's scorer has seen must not show in the other's."""
    scorer = _make(factory, context)
    prompt = f"{context.prompt} And why is the sky blue?"
    other = _make(factory, replace(context, prompt=prompt, question=prompt))
    _score(other, _views(prompt, ("Because of the air.",)))
    _same("another generation at the same time", views, scores, _score(scorer, views))


def _make(factory: ScorerFactory, context: ScoreContext) -> Scorer:
    scorer = factory(context)
    if not isinstance(scorer, Scorer):
        raise ConformanceError(f"the factory returned {scorer!r}, which has no method `score`")
    return scorer


def _score(scorer: Scorer, views: Sequence[PathView]) -> list[float]:
    try:
        given = list(scorer.score(views))
    except Exception as error:
        raise ConformanceError(
            f"scoring {_shown(views)} raised {type(error).__name__}: {error}"
        ) from error
    if len(given) != len(views):
        raise ConformanceError(f"{len(given)} scores for {len(views)} texts: {_shown(views)}")
    for view, value in zip(views, given, strict=True):
        # Scalars of array libraries are no `Real`, but turn into one; text must not.
        if isinstance(value, str) or not (isinstance(value, Real) or hasattr(value, "__float__")):
            raise ConformanceError(f"{view.segment!r} scored {value!r}, which is no number")
        if not math.isfinite(float(value)):
            raise ConformanceError(f"{view.segment!r} scored {value}, which is not finite")
    return [float(value) for value in given]


def _same(
    what: str,
    views: Sequence[PathView],
    expected: Sequence[float],
    given: Sequence[float],
    tolerance: float = 0.0,
) -> None:
    for view, a, b in zip(views, expected, given, strict=True):
        if abs(a - b) > tolerance:
            raise ConformanceError(f"{view.segment[:80]!r} scored {a}, and {b} in {what}")


def _views(prompt: str, texts: Sequence[str]) -> list[PathView]:
    """Each text whole and half, as deferred scoring sends it, after two committed texts."""
    views = []
    for committed in ("", "The sea rises and falls."):
        for index, text in enumerate(texts):
            for segment in dict.fromkeys((text[: len(text) // 2], text)):
                views.append(
                    PathView(
                        index=index,
                        prompt=prompt,
                        committed=committed,
                        segment=segment,
                        tokens=tuple(segment.encode()[:512]),
                        logprob=-0.5 * len(segment),
                        finished=segment == text,
                        others=tuple(texts[-3:]) if index % 2 else (),
                    )
                )
    return views


def _shown(views: Sequence[PathView]) -> str:
    return repr(views[0].segment) if len(views) == 1 else f"a batch of {len(views)}"
