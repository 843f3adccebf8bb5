"""What the reference notes down, and how it is compared with the events of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from msi_engine.events import Collapsed, Event, Stepped

CREDENCE = 1e-4  # credences and entropies agree within this


@dataclass(frozen=True)
class Step:
    segment: int
    step: int
    paths: tuple[int, ...]
    credences: tuple[float, ...]
    entropy: float


@dataclass(frozen=True)
class Collapse:
    """All paths are in ``segments`` and ``shares``, dropped ones with a share of 0."""

    segment: int
    reason: str
    mode: str
    winner: int | None
    tokens: tuple[int, ...]
    segments: tuple[tuple[int, ...], ...]
    boundaries: tuple[str | None, ...]
    shares: tuple[float, ...]


Record = Step | Collapse


@dataclass
class Answer:
    """What came out. ``ties`` are (records before it, what) of decisions that rounding may turn."""

    records: list[Record] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    reason: str = ""
    ties: list[tuple[int, str]] = field(default_factory=list)


def records_of(events: Sequence[Event]) -> list[Record]:
    """The engine's events in the reference's form."""
    records: list[Record] = []
    for event in events:
        if isinstance(event, Stepped):
            records.append(
                Step(event.segment, event.step, event.paths, event.credences, event.entropy)
            )
        elif isinstance(event, Collapsed):
            records.append(
                Collapse(
                    event.segment,
                    event.reason,
                    event.mode,
                    event.winner,
                    event.tokens,
                    tuple(p.tokens for p in event.paths),
                    tuple(p.boundary for p in event.paths),
                    tuple(p.credence for p in event.paths),
                )
            )
    return records


def difference(engine: Record, reference: Record) -> str | None:
    """What is different, in words, or None.

    How far a dropped path had come is left out: deferred scoring drops it later, by design.
    """
    if type(engine) is not type(reference):
        return f"{engine} instead of {reference}"
    engine, reference = _without_dropped(engine), _without_dropped(reference)
    for name in reference.__dataclass_fields__:
        ours, theirs = getattr(engine, name), getattr(reference, name)
        if name in ("credences", "shares", "entropy"):
            theirs = pytest.approx(theirs, rel=0, abs=CREDENCE)
        if ours != theirs:
            return f"{name}: {ours} instead of {getattr(reference, name)}, at {reference}"
    return None


def _without_dropped(record: Record) -> Record:
    if isinstance(record, Step):
        return record
    counted = [share > 0 for share in record.shares]
    return replace(
        record,
        segments=tuple(s for s, c in zip(record.segments, counted, strict=True) if c),
        boundaries=tuple(b for b, c in zip(record.boundaries, counted, strict=True) if c),
    )


def compare(events: Sequence[Event], answer: Answer) -> str | None:
    """Compare record by record.

    Returns:
        None if all is the same; the tie, if they part where the reference met one in that segment.

    Raises:
        AssertionError: If they part anywhere else.
    """
    ours, theirs = records_of(events), answer.records
    for at in range(max(len(ours), len(theirs))):
        if at >= len(ours) or at >= len(theirs):
            found: str | None = f"{len(ours)} records instead of {len(theirs)}"
        else:
            found = difference(ours[at], theirs[at])
        if found is None:
            continue
        segment = theirs[min(at, len(theirs) - 1)].segment
        for before, what in answer.ties:
            if before <= at and theirs[min(before, len(theirs) - 1)].segment == segment:
                return what
        raise AssertionError(found)
    return None
