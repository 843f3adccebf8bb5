"""The ways of choosing that `benchmarks.grounding` compares, and what each of them spends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.grounding_questions import Question
from msi_engine import Embedder, Engine
from msi_engine.bundle import ENDINGS
from msi_engine.collapse import chrf_similarity, minimum_bayes_risk
from msi_engine.events import Collapsed, PathReport
from msi_engine.generation import Generation
from msi_engine.vectors import unit_vectors

EVERY = {"score_every": 8}  # the same scores in fewer calls
RAG = {"scorers": {"rag": 10.0}, **EVERY}
GREEDY = "greedy"
SEGMENTS: Mapping[str, dict[str, Any]] = {  # K = 4
    "default, no scorer": {},
    "rag": RAG,
    "rag, control": RAG,
    "best of 4 by rag": {"scorers": {"rag": 1000.0}, "majority": 1.0, **EVERY},
}
WHOLE = {  # four whole answers, drawn independently but for their first tokens, which differ
    "boundary": (),
    "segment_length": 4096,
    "majority": 1.0,
    "dedup_tokens": 0,
    "spawn_min_p": 0.0,
    "spawn_temperature": 0.8,
    "temperature": 0.8,
    "seed": 0,
}
ANSWERS = ("4 answers, by rag", "4 answers, by mbr", "4 answers, by logprob")
ARMS = (GREEDY, *SEGMENTS, *ANSWERS)


@dataclass(frozen=True)
class Outcome:
    """An answer of one arm.

    Attributes:
        text: The answer.
        spent: Tokens that went through the model.
        equal: As much of it as there was when the cheapest arm with four paths was done.
    """

    text: str
    spent: int
    equal: str


def run_arms(
    engine: Engine, question: Question, other: Question, embedder: Embedder, tokens: int
) -> dict[str, dict[str, Any]]:
    """The `Outcome` of every arm for one question, as plain values.

    Args:
        engine: The model.
        question: What is asked.
        other: Whose evidence is the control's.
        embedder: That of the loop.
        tokens: Most tokens of an answer.
    """
    content = f"{question.passage}\n\n{question.text}"
    evidence = [*question.gold, *question.others]

    def generate(**options: Any) -> Generation:
        return engine.generate(
            [{"role": "user", "content": content}],
            max_tokens=tokens,
            evidence=evidence,
            # Without a scorer it would be the embedder that says which paths agree.
            embedder=embedder if "scorers" in options else None,
            **options,
        )

    greedy = generate(k=1)
    control = {"control": "shuffle", "control_evidence": [*other.gold, *other.others]}
    segments = {
        arm: generate(
            **options, **({"scorer_options": {"rag": control}} if "control" in arm else {})
        )
        for arm, options in SEGMENTS.items()
    }
    whole = generate(**WHOLE)
    decode = engine.tokenizer.decode
    least = min(answer.stats.forward_tokens for answer in [*segments.values(), whole])
    outcomes = {GREEDY: Outcome(greedy.text, greedy.stats.forward_tokens, greedy.text)}
    for arm, answer in segments.items():
        cut = decode(cut_off(answer.trace.collapses, least), skip_special_tokens=True)
        outcomes[arm] = Outcome(answer.text, answer.stats.forward_tokens, cut)
    paths = whole.trace.collapses[0].paths
    shared = fitting([p.tokens for p in paths], least)
    texts = [decode(list(p.tokens), skip_special_tokens=True) for p in paths]
    cuts = [decode(list(p.tokens[:shared]), skip_special_tokens=True) for p in paths]
    for arm, choose in choosers(evidence, embedder, paths).items():
        outcomes[arm] = Outcome(
            texts[choose(texts)], whole.stats.forward_tokens, cuts[choose(cuts)]
        )
    return {arm: asdict(outcome) for arm, outcome in outcomes.items()}


def choosers(
    evidence: Sequence[str], embedder: Embedder, paths: Sequence[PathReport]
) -> dict[str, Callable[[Sequence[str]], int]]:
    """How one of several whole answers is chosen."""
    chunks = unit_vectors(embedder, evidence)

    def nearest(texts: Sequence[str]) -> int:
        return int((unit_vectors(embedder, texts) @ chunks.T).max(axis=1).argmax())

    def agreed(texts: Sequence[str]) -> int:
        return minimum_bayes_risk(texts, np.full(len(texts), 1 / len(texts)), chrf_similarity)

    def probable(texts: Sequence[str]) -> int:
        return int(np.argmax([p.logprob / len(p.tokens) for p in paths]))

    return dict(zip(ANSWERS, (nearest, agreed, probable), strict=True))


def forwarded(collapse: Collapsed) -> int:
    """Tokens of a segment that went through the model: all but the last of a path that ends."""
    return sum(len(p.tokens) - (p.boundary in ENDINGS) for p in collapse.paths)


def cut_off(collapses: Sequence[Collapsed], budget: int) -> list[int]:
    """The tokens of an answer as it stood when ``budget`` tokens had gone through the model.

    In the segment under way it is the winner's, as far as it had come.
    """
    tokens: list[int] = []
    for collapse in collapses:
        if forwarded(collapse) <= budget:
            budget -= forwarded(collapse)
            tokens += collapse.tokens
            continue
        return tokens + list(collapse.tokens[: fitting([p.tokens for p in collapse.paths], budget)])
    return tokens


def fitting(paths: Sequence[Sequence[int]], budget: int) -> int:
    """How long all paths may get so that together they have at most ``budget`` tokens."""
    longest = max(map(len, paths))
    fits = (n for n in range(longest, -1, -1) if sum(min(len(p), n) for p in paths) <= budget)
    return next(fits, 0)
