"""The loop: spawn, feed, boundaries, weigh, collapse, over and over. Nothing is kept but tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from msi_engine import DecodeConfig
from msi_engine.boundary import BoundaryContext
from tests.reference import choice
from tests.reference.models import Model, State
from tests.reference.paths import Path, Scale
from tests.reference.records import Answer, Collapse, Step
from tests.reference.texts import Texts
from tests.reference.weights import entropy, log_softmax

TIE_LOGITS = 1e-3
TIE_CREDENCE = 1e-4
Pick = Callable[[int, Sequence[int], Sequence[float]], int]


class SlowDecoder:
    """Decodes greedily, from the specification.

    ``scorers`` map a name to a scorer; weights are in the options. ``pick`` stands for the draw of
    collapse mode ``sample``: (segment, path indices, credences) -> path index.
    """

    def __init__(
        self,
        model: Model,
        vocabulary: Any,
        boundaries: Sequence[Any],
        config: DecodeConfig,
        scorers: Mapping[str, Any] | None = None,
        pick: Pick | None = None,
    ) -> None:
        if config.temperature or config.spawn_temperature:
            raise ValueError("the reference is greedy")
        self.model, self.vocabulary, self.boundaries = model, vocabulary, boundaries
        self.config, self.scorers, self.pick = config, dict(scorers or {}), pick

    def generate(self, prompt: Sequence[int], prompt_text: str = "") -> Answer:
        self.answer = Answer()
        self.prompt = list(prompt)
        self.texts = Texts(self.vocabulary, prompt, self.config.stop)
        self.scale = Scale(self.config, self.scorers, self.texts, prompt_text)
        root = self.model.start(prompt)
        self.segment = 0
        while not self.answer.reason:
            root = self._segment(root)
            self.segment += 1
        self.answer.text = self.texts.cut(self.answer.tokens)
        return self.answer

    # A segment

    def _segment(self, root: State) -> State:
        self.root, self.paths = root, self._spawn(root)
        self.spawned = len(self.paths)
        aligned: int | None = None
        step = 1
        while True:
            for path in self._in("live"):
                path.state = self.model.feed(path.state, path.tokens[-1])
                self._test_boundaries(path)
            self._weigh(step)
            if aligned is None and self._is_decided():
                aligned = 0
            live = self._in("live")
            if aligned is not None and (not live or aligned >= self.config.align_steps):
                return self._collapse()
            self._draw_all(live, greedy=aligned is not None)
            aligned = None if aligned is None else aligned + 1
            step += 1

    def _spawn(self, root: State) -> list[Path]:
        logits = self.model.processed(root.logits, self._history())
        tokens, lead = choice.spawn(logits, self.config.k, self.config.spawn_min_p)
        self._note("spawn", lead, TIE_LOGITS)
        paths = [Path(i, self.model.fork(root)) for i in range(len(tokens))]
        for path, token in zip(paths, tokens, strict=True):
            self._take(path, token)
        return paths

    def _draw_all(self, live: Sequence[Path], *, greedy: bool) -> None:
        drawn: list[int] = []
        for path in live:
            logits = self.model.processed(path.state.logits, self._history(path)).copy()
            if not greedy:
                for token in drawn:
                    logits[token] -= self.config.diversity
            first, second = np.partition(logits, -2)[-2:][::-1]
            self._note("draw", first - second, TIE_LOGITS)
            drawn.append(int(np.argmax(logits)))
        for path, token in zip(live, drawn, strict=True):
            self._take(path, token)

    def _take(self, path: Path, token: int) -> None:
        """Append a token, and see whether nothing can follow it."""
        path.tokens.append(token)
        path.logprobs.append(float(log_softmax(path.state.logits)[token]))
        if ending := self._ending(path.tokens):
            self._wait(path, ending)

    def _ending(self, tokens: Sequence[int]) -> str | None:
        """Why nothing can follow a segment, if so."""
        if tokens[-1] in self.vocabulary.eos_token_ids:
            return "eos"
        if self.texts.stop_at([*self.answer.tokens, *tokens]) is not None:
            return "stop"
        if len(self.answer.tokens) + len(tokens) >= self.config.max_tokens:
            return "budget"
        return None

    def _test_boundaries(self, path: Path) -> None:
        if self.texts.is_complete(self.answer.tokens, path.tokens):
            context = BoundaryContext(
                self.texts.of([], self.answer.tokens),
                self._text(path),
                len(path.tokens),
                True,
                lambda: self._end_mass(path),
            )
            for boundary in self.boundaries:
                if boundary.reached(context):
                    self._wait(path, boundary.name)
                    return
        if len(path.tokens) >= self.config.segment_length:
            self._wait(path, "length")

    def _end_mass(self, path: Path) -> float:
        probs = np.exp(log_softmax(path.state.logits))
        return float(probs[self.vocabulary.end_mask_for(len(probs))].sum())

    # Weights

    def _weigh(self, step: int) -> None:
        counted = self._counted()
        shares = self._shares(counted)
        self.answer.records.append(
            Step(
                self.segment,
                step,
                tuple(p.index for p in counted),
                tuple(shares),
                entropy(shares),
            )
        )
        limit = self.config.short_circuit
        if limit < 1 and len(counted) > 1:
            self._note("short circuit", abs(max(shares) - limit), TIE_CREDENCE)
            if max(shares) > limit:
                best = counted[choice.argmax(shares)]
                self._drop(p for p in counted if p is not best)
        self._drop_duplicates()

    def _drop_duplicates(self) -> None:
        if not self.config.dedup_tokens:
            return
        counted = self._counted()
        shares = self._shares(counted)
        groups: dict[tuple[str, bool], list[int]] = {}
        for i, path in enumerate(counted):
            if path.status == "live" and len(path.tokens) < self.config.dedup_tokens:
                continue
            if not self.texts.is_complete(self.answer.tokens, path.tokens):
                continue  # its text is not all there
            text = " ".join(self._text(path).split()).casefold()
            ends = path.boundary in ("eos", "stop", "budget")
            groups.setdefault((text, ends), []).append(i)
        for same in groups.values():
            if len(same) > 1:
                self._note("duplicates", choice.gap([shares[i] for i in same]), TIE_CREDENCE)
            best = same[choice.argmax([shares[i] for i in same])]
            self._drop(counted[i] for i in same if i != best)

    def _is_decided(self) -> bool:
        counted = self._counted()
        if not self._in("live"):
            return True
        if self.config.majority == 1 or not self._in("waiting"):
            return False
        pairs = zip(counted, self._shares(counted), strict=True)
        share = math.fsum(c for p, c in pairs if p.status == "waiting")
        self._note("majority", abs(share - self.config.majority), TIE_CREDENCE)
        return share >= self.config.majority

    def _shares(self, paths: Sequence[Path]) -> list[float]:
        return self.scale.shares(paths, self.spawned, self.answer.tokens)

    # Collapse

    def _collapse(self) -> State:
        counted = self._counted()
        shares = self._shares(counted)
        mode = self.config.effective_collapse
        tokens, winner = self._choose(mode, counted, shares)
        if winner is None and not self._guard_allows(tokens, counted, shares):
            mode = "argmax"
            tokens, winner = self._choose(mode, counted, shares)
        if winner is None:
            reason, state = self._ending(tokens) or "vote", self._run(tokens)[1]
        else:
            reason, state = winner.boundary or "majority", winner.state
        self._record(mode, reason, winner, tokens, dict(zip(map(id, counted), shares, strict=True)))
        self.answer.tokens += tokens
        ends = {"eos": "eos", "stop": "stop", "budget": "length"}
        self.answer.reason = ends.get(reason, "")
        return state

    def _choose(
        self, mode: str, counted: Sequence[Path], shares: Sequence[float]
    ) -> tuple[tuple[int, ...], Path | None]:
        if mode == "token_vote":
            tokens, lead = choice.vote([p.tokens for p in counted], shares)
            self._note("vote", lead, TIE_CREDENCE)
            same = [p for p in counted if tuple(p.tokens) == tokens]
            return tokens, same[0] if same else None
        if mode == "sample":
            if self.pick is None:
                raise ValueError("mode `sample` needs a `pick`")
            index = self.pick(self.segment, [p.index for p in counted], shares)
            winner = next(p for p in counted if p.index == index)
            return tuple(winner.tokens), winner
        values = list(shares)
        if mode == "mbr" and len(counted) > 1:
            values = choice.similarities([self._text(p) for p in counted], shares)
        self._note(mode, choice.gap(values), TIE_CREDENCE)
        winner = counted[choice.argmax(values)]
        return tuple(winner.tokens), winner

    def _guard_allows(
        self, tokens: Sequence[int], counted: Sequence[Path], shares: Sequence[float]
    ) -> bool:
        if self.config.vote_guard is None:
            return True
        best = counted[choice.argmax(shares)].logprobs
        voted = self._run(tokens)[0]
        below = math.fsum(best) / len(best) - math.fsum(voted) / len(voted)
        self._note("vote guard", abs(below - self.config.vote_guard), TIE_CREDENCE)
        return below <= self.config.vote_guard

    def _run(self, tokens: Sequence[int]) -> tuple[list[float], State]:
        """A segment that no path has gone through: its logprobs, and the state after it."""
        state, logprobs = self.model.fork(self.root), []
        for token in tokens:
            logprobs.append(float(log_softmax(state.logits)[token]))
            state = self.model.feed(state, token)
        return logprobs, state

    def _record(
        self,
        mode: str,
        reason: str,
        winner: Path | None,
        tokens: tuple[int, ...],
        shares: Mapping[int, float],
    ) -> None:
        self.answer.records.append(
            Collapse(
                self.segment,
                reason,
                mode,
                None if winner is None else winner.index,
                tokens,
                tuple(tuple(p.tokens) for p in self.paths),
                tuple(p.boundary for p in self.paths),
                tuple(shares.get(id(p), 0.0) for p in self.paths),
            )
        )

    # Small things

    def _in(self, status: str) -> list[Path]:
        return [p for p in self.paths if p.status == status]

    def _counted(self) -> list[Path]:
        return [p for p in self.paths if p.status != "dropped"]

    def _wait(self, path: Path, boundary: str) -> None:
        path.status, path.boundary = "waiting", boundary

    def _drop(self, paths: Any) -> None:
        for path in paths:
            path.status = "dropped"

    def _note(self, what: str, distance: float, tolerance: float) -> None:
        if distance < tolerance:
            self.answer.ties.append((len(self.answer.records), what))

    def _history(self, path: Path | None = None) -> list[int]:
        return [*self.prompt, *self.answer.tokens, *(path.tokens if path else [])]

    def _text(self, path: Path) -> str:
        return self.texts.of(self.answer.tokens, path.tokens)
