"""`llm msi tune-refine`: what checking costs and gives on the user's own prompts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llm_msi.tuning import VERIFY, Costs, Observed, Setting, area_under_roc, predict, recommend
from msi_engine import DecodeConfig, Engine
from msi_engine.events import RefineStats

if TYPE_CHECKING:
    from msi_engine import Generation
    from msi_engine.opinions import Opinion

Messages = list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a setting came to when it was run.

    Attributes:
        tau: As in `Setting`.
        window: As in `Setting`.
        checked: Share of the drafted tokens that were checked.
        agreement: Share of the tokens that are the target's own choice after the same text.
        identical: Answers that are the target's own, whole.
        prefix: Mean share of an answer up to which it is the target's own.
        bytes: Bytes read for a token, relative to decoding with the target alone.
        seconds: Time for a token, of writing alone.
    """

    tau: float
    window: int
    checked: float
    agreement: float
    identical: int
    prefix: float
    bytes: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """What was found.

    Attributes:
        prompts: How many.
        tokens: Of the target's own answers, all together.
        flips: Those of them that the draft would have written otherwise.
        roc_area: How well the margin tells flips from other tokens, 0.5 for not at all; None
            without flips.
        settings: What each tau and window promises.
        measured: What some of them came to.
        recommended: The one of ``settings`` to take.
        wanted: The agreement that was asked for.
    """

    prompts: int
    tokens: int
    flips: int
    roc_area: float | None
    settings: tuple[Setting, ...]
    measured: tuple[Measured, ...]
    recommended: Setting
    wanted: float

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON; tau is null where everything is checked."""
        told = dataclasses.asdict(self)
        for row in (*told["settings"], *told["measured"], told["recommended"]):
            row["mode"] = "verify" if row["tau"] == VERIFY else "margin"
            row["tau"] = None if row["tau"] == VERIFY else row["tau"]
        return told


class Tuning:
    """Runs the sweep, answer by answer.

    Args:
        engine: Of a pair, or of a draft whose target ``target`` names.
        prompts: What is asked.
        taus: Margins to try; `VERIFY` is tried besides.
        windows: Windows to try.
        max_tokens: Most tokens of an answer.
        wanted: Least agreement, in [0, 1].
        target: Model that checks; None is the pair's own.
    """

    def __init__(
        self,
        engine: Engine,
        prompts: Sequence[str],
        taus: Iterable[float],
        windows: Iterable[int],
        *,
        max_tokens: int,
        wanted: float,
        target: str | None = None,
    ) -> None:
        self._engine = engine
        self._prompts = [[{"role": "user", "content": prompt}] for prompt in prompts]
        self._taus = (*sorted(set(taus)), VERIFY)
        self._windows = tuple(sorted(set(windows)))
        self._wanted = wanted
        self._config = DecodeConfig(
            k=1, refine="verify", window=self._windows[0], max_tokens=max_tokens, target=target
        )
        self._own: list[Generation] = []  # the target's own answers

    def run(self, tell: Callable[[str, int, int], None]) -> Report:
        """Do it.

        Args:
            tell: Called after each answer with what it is for, how many there are, and how many
                there will be.
        """
        count = len(self._prompts)
        answers = []
        for done, prompt in enumerate(self._prompts, start=1):
            answers.append(self._observe(prompt))
            tell("Writing the target's own answers", done, count)
        costs = _costs(self._own)
        settings = tuple(
            predict(answers, costs, tau, window) for tau in self._taus for window in self._windows
        )
        best = recommend(settings, self._wanted)
        measured = [self._measured(VERIFY, self._windows[0], self._own)]
        if (best.tau, best.window) != (VERIFY, self._windows[0]):
            measured.append(self._tried(best, tell))
        return Report(
            prompts=count,
            tokens=sum(len(o.flips) for o in answers),
            flips=sum(sum(o.flips) for o in answers),
            roc_area=area_under_roc(answers),
            settings=settings,
            measured=tuple(measured),
            recommended=best,
            wanted=self._wanted,
        )

    def _tried(self, setting: Setting, tell: Callable[[str, int, int], None]) -> Measured:
        config = self._with(setting.tau, setting.window)
        answers = []
        for done, prompt in enumerate(self._prompts, start=1):
            answers.append(self._engine.generate(prompt, config))
            tell("Trying what is recommended", done, len(self._prompts))
        return self._measured(setting.tau, setting.window, answers)

    def _with(self, tau: float, window: int) -> DecodeConfig:
        if tau == VERIFY:
            return self._config.replace(window=window)
        return self._config.replace(refine="margin", tau=tau, window=window)

    def _observe(self, prompt: Messages) -> Observed:
        """The target's own answer, which is what verified text is, and the draft along it."""
        answer = self._engine.generate(prompt, self._config)
        self._own.append(answer)
        draft = self._engine.opinions(prompt, answer.tokens, self._config, of="draft")
        ends = self._engine.ends(self._config)
        # One that was cut off has filled its budget, which a short context may have made less.
        cut = answer.finish_reason == "length"
        budget = len(answer.tokens) if cut else self._config.max_tokens
        return observed(draft, answer.tokens, ends, budget)

    def _measured(self, tau: float, window: int, answers: Sequence[Generation]) -> Measured:
        costs = [cost for a in answers if (cost := a.stats.refinement) is not None]
        tokens = sum(len(a.tokens) for a in answers)
        agreed = tokens if tau == VERIFY else sum(map(self._agreed, self._prompts, answers))
        pairs = list(zip(answers, self._own, strict=True))
        return Measured(
            tau,
            window,
            checked=sum(c.deferred for c in costs) / sum(c.drafted for c in costs),
            agreement=agreed / tokens,
            identical=sum(a.tokens == own.tokens for a, own in pairs),
            prefix=sum(_same(a.tokens, own.tokens) for a, own in pairs) / len(pairs),
            bytes=_read(costs) / tokens / costs[0].plain_bytes_per_token,
            seconds=sum(a.stats.decode_s for a in answers) / tokens,
        )

    def _agreed(self, prompt: Messages, answer: Generation) -> int:
        target = self._engine.opinions(prompt, answer.tokens, self._config, of="target")
        pairs = zip(target, answer.tokens, strict=True)
        return sum(opinion.token == token for opinion, token in pairs)


def observed(
    draft: Sequence[Opinion], tokens: Sequence[int], ends: Iterable[int], budget: int
) -> Observed:
    """The draft's opinions along an answer of the target's own.

    Args:
        draft: Before each of the tokens.
        tokens: The answer, at least one token.
        ends: Tokens that end an answer.
        budget: Most tokens that it might have had.
    """
    stop = frozenset(ends)
    return Observed(
        tuple(o.margin for o in draft),
        tuple(o.token != token for o, token in zip(draft, tokens, strict=True)),
        tuple(o.token in stop for o in draft),
        budget,
    )


def _costs(answers: Sequence[Generation]) -> Costs:
    stats = answers[0].stats
    cost = stats.refinement or RefineStats("verify")
    return Costs(cost.draft_bytes / (stats.forward_passes + 1), cost.plain_bytes_per_token)


def _read(costs: Iterable[RefineStats]) -> int:
    return sum(cost.draft_bytes + cost.target_bytes for cost in costs)


def _same(tokens: Sequence[int], own: Sequence[int]) -> float:
    """Share of the target's own answer up to which another is the same."""
    pairs = zip(tokens, own, strict=False)
    parted = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    return (min(len(tokens), len(own)) if parted is None else parted) / len(own)
