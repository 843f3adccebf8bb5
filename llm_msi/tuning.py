"""Tuning refinement: what each tau and window would check, catch and read. Pure Python.

Everything is told from one reading of the draft along the target's own text: its margin at each
token, and whether it would have written another (a *flip*). What follows a flip that is caught is
undone, so that with everything checked the account is exact, but for drafts that end early. After a
flip that is missed, decoding goes on with another text; the account goes on with this one.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msi_engine.refine import MOST_DRAFTED

VERIFY = math.inf
"""tau of mode `verify`: everything is checked."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The draft along one answer of the target's own.

    Attributes:
        margins: The draft's margin at each token, nats.
        flips: Whether the draft would have written another token there.
        stops: Whether the draft would have ended the answer there: that is always checked.
        budget: Most tokens that the answer might have had.
    """

    margins: tuple[float, ...]
    flips: tuple[bool, ...]
    stops: tuple[bool, ...]
    budget: int

    def flagged(self, place: int, tau: float) -> bool:
        """Whether the target is asked about a token."""
        return self.margins[place] < tau or self.stops[place]


@dataclass(frozen=True, slots=True)
class Costs:
    """Bytes of weights, as stored, that a pass of either model reads."""

    draft: float
    target: float


@dataclass(slots=True)
class Account:
    """What decoding comes to at one tau and window.

    Attributes:
        tokens: Of output.
        missed: Flips that were not checked.
        drafted: Tokens drafted.
        checked: Those flagged for the target.
        sweeps: Passes of the target.
        rollbacks: Flips caught.
        passes: Passes of the draft, the prompt's last included.
    """

    tokens: int = 0
    missed: int = 0
    drafted: int = 0
    checked: int = 0
    sweeps: int = 0
    rollbacks: int = 0
    passes: int = 0


@dataclass(frozen=True, slots=True)
class Setting:
    """What one tau and window promise.

    Attributes:
        tau: Margin below which tokens are checked, nats; `VERIFY` checks all.
        window: Tokens between two checks.
        checked: Share of the tokens that are checked.
        caught: Share of the flips that are checked; 1 if there is none.
        agreement: Share of the tokens that are the target's own choice after the same text.
        bytes: Bytes read for a token, relative to decoding with the target alone.
    """

    tau: float
    window: int
    checked: float
    caught: float
    agreement: float
    bytes: float


def account(observed: Observed, tau: float, window: int) -> Account:
    """Follow the decoder along one answer."""
    told, size = Account(passes=1), len(observed.flips)
    place = 0
    while place < size:
        flip = next((i for i in range(place, size) if observed.flips[i]), size)
        cap = _cap(observed, told, window)
        # What the draft writes after a flip is not known; it fills the window.
        length = min(cap, size - place if flip == size else observed.budget - place)
        if flip < place + length and observed.stops[flip]:
            length = flip - place + 1
        known = range(place, min(place + length, size))
        flagged = [i for i in known if observed.flagged(i, tau)]
        beyond = length - len(known) if tau == VERIFY else 0
        caught = next((i for i in flagged if observed.flips[i]), None)
        end = known.stop if caught is None else caught + 1
        told.tokens += end - place
        told.missed += sum(
            observed.flips[i] and not observed.flagged(i, tau) for i in range(place, end)
        )
        told.drafted += length
        told.checked += len(flagged) + beyond
        told.sweeps += bool(flagged)
        told.rollbacks += caught is not None
        last = place + length - 1
        ends = last + 1 == observed.budget or (
            last <= flip and last < size and observed.stops[last]
        )
        told.passes += length - ends + (caught is not None and end < size)  # an end is not fed
        place = end
    return told


def _cap(observed: Observed, told: Account, window: int) -> int:
    """As `msi_engine.refine.Refinement.segment_length`."""
    left = observed.budget - told.tokens
    spare = MOST_DRAFTED * observed.budget - told.drafted - left
    return max(1, min(window, spare + 1))


def predict(answers: Sequence[Observed], costs: Costs, tau: float, window: int) -> Setting:
    """What a tau and a window come to over all answers, of which one at least has a token."""
    told = [account(answer, tau, window) for answer in answers]
    flips = [(o, i) for o in answers for i, flips in enumerate(o.flips) if flips]
    caught = sum(o.flagged(i, tau) for o, i in flips)
    size = sum(len(o.flips) for o in answers)
    flagged = sum(o.flagged(i, tau) for o in answers for i in range(len(o.flips)))
    read = costs.draft * sum(a.passes for a in told) + costs.target * sum(a.sweeps for a in told)
    return Setting(
        tau,
        window,
        checked=flagged / size,
        caught=caught / len(flips) if flips else 1.0,
        agreement=1 - (len(flips) - caught) / size,
        bytes=read / sum(a.tokens for a in told) / costs.target,
    )


def recommend(settings: Iterable[Setting], agreement: float) -> Setting:
    """Of those that agree enough, the one that reads least; of equals, the one that checks most.

    Args:
        settings: At least one of them agrees enough, as every one of mode `verify` does.
        agreement: Least share of tokens that are to be the target's, in [0, 1].
    """
    enough = [s for s in settings if s.agreement >= agreement]
    return min(enough, key=lambda s: (s.bytes, -s.checked, s.window))


def area_under_roc(answers: Sequence[Observed]) -> float | None:
    """Probability that a flip has a smaller margin than a token that is none, ties half.

    None if there is no flip, or nothing else.
    """
    pairs = [(m, f) for o in answers for m, f in zip(o.margins, o.flips, strict=True)]
    flipped = sorted(margin for margin, flip in pairs if flip)
    kept = sorted(margin for margin, flip in pairs if not flip)
    if not flipped or not kept:
        return None
    below = sum(_below(kept, margin) for margin in flipped)
    return below / len(flipped) / len(kept)


def _below(kept: Sequence[float], margin: float) -> float:
    low, high = bisect_left(kept, margin), bisect_right(kept, margin)
    return len(kept) - high + (high - low) / 2
