"""The bundle: the K paths of one segment, weighed.

Weights of past steps can be settled late. Scorers may answer for several tokens at once, and what
follows from the weights (entropies, the short circuit) is then worked out step by step as if they
had answered each time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from msi_engine import credence
from msi_engine.config import DecodeConfig
from msi_engine.events import PathReport, Stepped
from msi_engine.panel import ScorerPanel
from msi_engine.path import PathState, PathStatus

ENDINGS = frozenset({"eos", "stop", "budget"})
"""Boundaries after which nothing can follow."""


@dataclass(frozen=True, slots=True)
class _Step:
    """Who counted at a step, and with how many tokens each."""

    number: int
    lengths: tuple[tuple[PathState, int], ...]


class Bundle:
    """Paths that started together from the committed text.

    Args:
        config: Law, short circuit, duplicates, deferral.
        panel: The scorers.
        paths: The spawned paths, each with its first token.
        segment: Number of the segment, from 0.
        prompt: The prompt as text, for the scorers.
        committed: Text committed before this segment.
    """

    def __init__(
        self,
        config: DecodeConfig,
        panel: ScorerPanel,
        paths: list[PathState],
        *,
        segment: int,
        prompt: str = "",
        committed: str = "",
    ) -> None:
        self.config = config
        self.paths = paths
        self.segment = segment
        self._panel = panel
        self._law = credence.make_law(config, len(paths))
        self._texts = (prompt, committed)
        self._unsettled: list[_Step] = []
        self.short_circuited = False

    @property
    def live(self) -> list[PathState]:
        """Paths that still take tokens."""
        return [p for p in self.paths if p.status is PathStatus.LIVE]

    @property
    def waiting(self) -> list[PathState]:
        """Paths that have reached a boundary."""
        return [p for p in self.paths if p.status is PathStatus.WAITING]

    @property
    def counted(self) -> list[PathState]:
        """Paths that share the credence: live and waiting, by index."""
        return [p for p in self.paths if p.status is not PathStatus.DROPPED]

    def prepare(self) -> None:
        """Let scorers begin with the texts that are due once the model has run its pass."""
        if self._panel.prepares and (
            self.waiting or len(self._unsettled) + 1 >= self.config.score_every
        ):
            self._panel.prepare_pending(self.counted, *self._texts)

    def record_step(self, number: int) -> list[Stepped]:
        """Note that every live path has its token ``number``; settle if anything depends on it.

        Nothing does unless a scoring call is due, a path waits (the majority is counted) or
        drops must show in the next draw (the diversity penalty counts the paths that are left).
        """
        self._unsettled.append(_Step(number, tuple((p, len(p)) for p in self.counted)))
        due = len(self._unsettled) >= self.config.score_every
        drops_matter = self.config.diversity > 0 and self.config.short_circuit < 1
        if due or drops_matter or self.waiting or not self._panel:
            return self.settle()
        return []

    def settle(self) -> list[Stepped]:
        """Score what is pending and work out every unsettled step, oldest first."""
        if not self._unsettled:
            return []
        self._panel.score_pending(self.counted, *self._texts)
        events = [self._settle_step(step) for step in self._unsettled]
        self._unsettled.clear()
        return events

    def _settle_step(self, step: _Step) -> Stepped:
        counted = [(p, n) for p, n in step.lengths if p.status is not PathStatus.DROPPED]
        credences = credence.normalize([self._law(p, n) for p, n in counted])
        if self.config.short_circuit < 1 and len(counted) > 1:
            best = int(credences.argmax())
            if credences[best] > self.config.short_circuit:
                self._keep_only(*counted[best])
        return Stepped(
            segment=self.segment,
            step=step.number,
            paths=tuple(p.index for p, _ in counted),
            credences=tuple(credences.tolist()),
            entropy=credence.entropy(credences),
        )

    def _keep_only(self, survivor: PathState, num_tokens: int) -> None:
        """Drop all others, as of the step at which the survivor had ``num_tokens`` tokens."""
        self.short_circuited = True
        for path in self.paths:
            if path is not survivor:
                path.status = PathStatus.DROPPED
        if num_tokens < len(survivor):  # since then it was judged beside paths that were gone
            survivor.forget_scores(num_tokens)
            self._panel.score_pending([survivor], *self._texts)

    def drop_duplicates(self) -> list[Stepped]:
        """Of paths with equal text, keep the one with the most credence.

        Paths are compared from ``dedup_tokens`` tokens on, or from their boundary if that comes
        first. Text is equal when it is so but for white space and case.
        """
        if self.config.dedup_tokens == 0 or len(self.counted) < 2 or not self._duplicates():
            return []
        events = self.settle()  # who is dropped depends on the credences
        for group in self._duplicates():
            credences = self._credences(group)
            keep = group[int(credences.argmax())]
            for path in group:
                if path is not keep:
                    path.status = PathStatus.DROPPED
        return events

    def _duplicates(self) -> list[list[PathState]]:
        """Groups of two or more comparable paths with the same text.

        A path that ends the answer is no duplicate of one that goes on, nor is one whose last
        character is still incomplete.
        """
        groups: dict[tuple[str, bool], list[PathState]] = {}
        for path in self.counted:
            settled = path.status is PathStatus.WAITING
            if path.complete and (settled or len(path) >= self.config.dedup_tokens):
                text = " ".join(path.text.split()).casefold()
                groups.setdefault((text, path.boundary in ENDINGS), []).append(path)
        return [group for group in groups.values() if len(group) > 1]

    def credences(self) -> np.ndarray:
        """Credences of `counted`, as they stand; everything must be settled."""
        return self._credences(self.counted)

    def _credences(self, paths: list[PathState]) -> np.ndarray:
        return credence.normalize([self._law(p, len(p)) for p in paths])

    def credences_without(self, scorer: str) -> np.ndarray:
        """Credences of `counted` had a scorer been silent."""
        return self._credences([self._panel.without(scorer, p) for p in self.counted])

    def majority_waits(self) -> bool:
        """True when the waiting paths hold the majority, or everybody waits."""
        if not self.live:
            return True
        if not self.waiting or self.config.majority == 1:
            return False
        shares = self.credences()
        waiting = [p.status is PathStatus.WAITING for p in self.counted]
        return float(shares[waiting].sum()) >= self.config.majority

    def reports(self) -> tuple[PathReport, ...]:
        """Every path of the segment, dropped ones included."""
        shares = {p.index: float(c) for p, c in zip(self.counted, self.credences(), strict=True)}
        return tuple(self._report(path, shares.get(path.index, 0.0)) for path in self.paths)

    def _report(self, path: PathState, share: float) -> PathReport:
        scored = len(path.signals)
        return PathReport(
            index=path.index,
            text=path.text,
            tokens=path.tokens,
            credence=share,
            log_weight=self._law(path, scored) if scored else float("-inf"),
            logprob=path.logprob_at(len(path)),
            signals={name: values[-1] for name, values in path.scores.items()},
            status=str(path.status),
            boundary=path.boundary,
        )
