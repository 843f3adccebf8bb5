"""Self-consistency: of N answers to one question, the one that most of them agree with.

The step after generation in section 5 of the MSI preprint. `MajorityVote` and `MinimumBayesRisk`
take N generations of any runnable; `self_consistency` also makes them (see `samples`).
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import Runnable, RunnableConfig, RunnableSerializable
from pydantic import ConfigDict

from langchain_msi.candidates import text_of, with_note
from langchain_msi.samples import Samples
from msi_engine.collapse import chrf_similarity, minimum_bayes_risk
from msi_engine.errors import ConfigError
from msi_engine.vectors import unit

# Sign (none within a word or a range such as 10-12), whole part with or without commas, fraction.
_NUMBER = re.compile(
    r"((?<!\w)[-\u2212])?([0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.([0-9]+))?"
)


@dataclass(frozen=True, slots=True)
class Vote:
    """What a number of candidates agree on.

    Attributes:
        key: What they have in common, by the key function.
        count: How many they are.
        indices: Which, in the order in which they came.
    """

    key: Hashable
    count: int
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A choice among candidates.

    Attributes:
        answer: The chosen candidate, as it came.
        index: Its position among the candidates.
        votes: By a majority: what was voted for, most votes first; of equals, the first given.
            Candidates without a key have no part in it. Empty for another way of choosing.
        scores: By minimum Bayes risk: mean similarity of each candidate to the others. Else empty.
    """

    answer: Any
    index: int
    votes: tuple[Vote, ...] = ()
    scores: tuple[float, ...] = ()


class _Choice(RunnableSerializable[Sequence[Any], Any]):
    """Candidates in, one of them out."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    @abstractmethod
    def verdict(self, candidates: Sequence[Any]) -> Verdict:
        """Choose, and say how.

        Raises:
            ConfigError: If there is nothing to choose from.
        """

    async def averdict(self, candidates: Sequence[Any]) -> Verdict:
        """`verdict` for an event loop."""
        return self.verdict(candidates)

    def invoke(
        self, input: Sequence[Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> Any:
        """The chosen candidate; a message has the votes in ``response_metadata["consistency"]``."""
        return self._call_with_config(lambda x: _noted(self.verdict(x)), input, config)

    async def ainvoke(
        self, input: Sequence[Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> Any:
        """`invoke` for an event loop."""

        async def choose(candidates: Sequence[Any]) -> Any:
            return _noted(await self.averdict(candidates))

        return await self._acall_with_config(choose, input, config)


def last_number(candidate: Any) -> str | None:
    """The last number that a candidate names, in one spelling; None if it names none.

    ``1,000.50`` and ``1000.5`` are the same. What follows the number is not looked at, so units
    and signs of currency do not matter.
    """
    found = _NUMBER.findall(text_of(candidate))
    if not found:
        return None
    sign, whole, fraction = found[-1]
    whole, fraction = whole.replace(",", "").lstrip("0") or "0", fraction.rstrip("0")
    number = f"{whole}.{fraction}" if fraction else whole
    return f"-{number}" if sign and number != "0" else number


def normalized_text(candidate: Any) -> str | None:
    """A candidate's text without case, outer punctuation and superfluous space; None if empty."""
    words = " ".join(text_of(candidate).casefold().split())
    return words.strip(" .,;:!?\"'") or None


class MajorityVote(_Choice):
    """The answer that most candidates give. Of equals, the one that was given first.

    Of the candidates that give it, the first is chosen.

    Example:
        .. code-block:: python

            vote = MajorityVote(key=last_number)
            vote.invoke(["It is 12.", "I get 13", "So: 12"])  # "It is 12."
            vote.verdict([...]).votes  # 12: two votes, 13: one
    """

    key: Callable[[Any], Hashable | None] = normalized_text
    """From a candidate to what it votes for; None abstains. `last_number` is another."""

    def verdict(self, candidates: Sequence[Any]) -> Verdict:
        """Count the votes.

        Raises:
            ConfigError: If there are no candidates, or all of them abstain.
        """
        ballots: dict[Hashable, list[int]] = {}
        for index, candidate in enumerate(_listed(candidates)):
            key = self.key(candidate)
            if key is not None:
                ballots.setdefault(key, []).append(index)
        if not ballots:
            name = getattr(self.key, "__name__", repr(self.key))
            raise ConfigError(
                f"a majority needs an answer to vote for, and {name} finds none in any of the "
                f"{len(candidates)} candidates; use another key function"
            )
        # A stable sort: of equals, the first given.
        ranked = sorted(ballots.items(), key=lambda item: -len(item[1]))
        votes = tuple(Vote(key, len(indices), tuple(indices)) for key, indices in ranked)
        first = votes[0].indices[0]
        return Verdict(candidates[first], first, votes=votes)


class MinimumBayesRisk(_Choice):
    """The candidate most similar to all the others. Of equals, the one that was given first.

    For answers in sentences, where no two are alike and a majority means little.

    References:
        Kumar & Byrne (2004); Eikema & Aziz (2022), arXiv:2108.04718.
    """

    similarity: Embeddings | Callable[[Sequence[str]], np.ndarray] = chrf_similarity
    """Texts to pairwise similarities, shape ``(n, n)``, row = candidate; or LangChain embeddings,
    whose cosines are taken. The default is chrF, on characters."""

    def verdict(self, candidates: Sequence[Any]) -> Verdict:
        """Compare every candidate with every other.

        Raises:
            ConfigError: If there are no candidates, or the similarities have the wrong shape.
        """
        texts = [text_of(candidate) for candidate in _listed(candidates)]
        if isinstance(self.similarity, Embeddings):
            return _least_risk(candidates, _cosines(self.similarity.embed_documents(texts)))
        return _least_risk(candidates, self.similarity(texts))

    async def averdict(self, candidates: Sequence[Any]) -> Verdict:
        """`verdict` for an event loop."""
        if not isinstance(self.similarity, Embeddings):
            return self.verdict(candidates)
        texts = [text_of(candidate) for candidate in _listed(candidates)]
        return _least_risk(candidates, _cosines(await self.similarity.aembed_documents(texts)))


def self_consistency(
    runnable: Runnable[Any, Any],
    *,
    n: int = 5,
    choose: Runnable[Any, Any] | None = None,
    seed: int = 0,
) -> Runnable[Any, Any]:
    """Ask a runnable N times and take the answer that most of its answers agree with.

    Args:
        runnable: A chat model, a chain, anything that samples. See `Samples` for its seeds.
        n: Answers, at least 1.
        choose: From N answers to one; None is `MajorityVote` on the normalised text.
        seed: Root of the answers' seeds. The same seed gives the same answers.

    Returns:
        A runnable of the same input. Its output is one of the runnable's own outputs.

    Raises:
        ValueError: If `n` or `seed` is out of bounds.
    """
    return Samples(runnable=runnable, n=n, seed=seed) | (choose or MajorityVote())


def _listed(candidates: Sequence[Any]) -> Sequence[Any]:
    if isinstance(candidates, str) or not isinstance(candidates, Sequence):
        kind = type(candidates).__name__
        raise ConfigError(f"candidates must be a list of generations, got {kind}")
    if not candidates:
        raise ConfigError("there are no candidates to choose from; give at least one")
    return candidates


def _noted(verdict: Verdict) -> Any:
    """The answer with how it was chosen, as far as it can carry that."""
    note: dict[str, Any] = {"index": verdict.index}
    if verdict.votes:
        note["votes"] = [{"key": str(v.key), "count": v.count} for v in verdict.votes]
    if verdict.scores:
        note["scores"] = list(verdict.scores)
    return with_note(verdict.answer, {"consistency": note})


def _least_risk(candidates: Sequence[Any], similarities: np.ndarray) -> Verdict:
    n = len(candidates)
    matrix = np.array(similarities, dtype=np.float64)
    if matrix.shape != (n, n) or not np.isfinite(matrix).all():
        raise ConfigError(
            f"similarities of {n} candidates must be finite and of shape {(n, n)}, "
            f"got shape {matrix.shape}"
        )
    texts = [text_of(candidate) for candidate in candidates]
    index = minimum_bayes_risk(texts, np.full(n, 1 / n), lambda _: matrix.copy())
    np.fill_diagonal(matrix, 0.0)
    scores = tuple(float(s) for s in matrix.sum(axis=1) / max(n - 1, 1))
    return Verdict(candidates[index], index, scores=scores)


def _cosines(vectors: list[list[float]]) -> np.ndarray:
    rows = unit(np.asarray(vectors, dtype=np.float64))
    return np.asarray(rows @ rows.T)
