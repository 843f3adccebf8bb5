"""The trace: what a generation leaves behind, as versioned plain JSON.

Numbers are Python numbers, and those that are not finite become null, so that any JSON writer
takes the trace as it is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from msi_engine.config import DecodeConfig
from msi_engine.events import (
    Collapsed,
    Committed,
    Event,
    Finished,
    PathReport,
    RolledBack,
    Stats,
    Stepped,
    Verified,
)

TRACE_VERSION = 1


class Trace:
    """Collects the events of one generation.

    Args:
        model: Name of the model that decodes.
        config: Its options.

    Attributes:
        text: The committed text so far.
        tokens: The committed tokens so far.
        collapses: Every collapse so far.
        finished: The last event, once it has come.
    """

    def __init__(self, model: str, config: DecodeConfig) -> None:
        self.model = model
        self.config = config
        self.text = ""
        self.tokens: list[int] = []
        self.collapses: list[Collapsed] = []
        self.finished: Finished | None = None
        self._entropies: dict[int, list[float]] = {}
        self._verified: dict[int, Verified] = {}
        self._rolled_back: dict[int, RolledBack] = {}

    def record(self, event: Event) -> None:
        """Take note of an event."""
        match event:
            case Committed(text):
                self.text += text
            case Collapsed():
                self.collapses.append(event)
                self.tokens += event.tokens
            case Stepped():
                self._entropies.setdefault(event.segment, []).append(event.entropy)
            case Verified():
                self._verified[event.segment] = event
            case RolledBack():
                self._rolled_back[event.segment] = event
            case Finished():
                self.finished = event

    def as_dict(self) -> dict[str, Any]:
        """Everything: every path of every segment with text, tokens, credence and signals."""
        return self._told(_path_in_full)

    def summary(self) -> dict[str, Any]:
        """The same without tokens, and paths by their share alone: small enough for a log."""
        return self._told(_path_in_short)

    def _told(self, path: Callable[[PathReport], dict[str, Any]]) -> dict[str, Any]:
        segments = [self._segment(c, path) for c in self.collapses]
        return {**_plain(self._head()), "segments": _plain(segments)}

    def _head(self) -> dict[str, Any]:
        head: dict[str, Any] = {
            "version": TRACE_VERSION,
            "model": self.model,
            "config": self.config.model_dump(exclude_defaults=True),
        }
        if self.finished is not None:
            head |= {"finish_reason": self.finished.reason, "seed": self.finished.seed}
            head["stats"] = _accounts(self.finished.stats)
        return head

    def _segment(
        self, collapse: Collapsed, path: Callable[[PathReport], dict[str, Any]]
    ) -> dict[str, Any]:
        return {
            "reason": collapse.reason,
            "mode": collapse.mode,
            "winner": collapse.winner,
            "text": collapse.text,
            "effective_sample_size": collapse.effective_sample_size,
            "entropy": [round(e, 6) for e in self._entropies.get(collapse.segment, [])],
            "note": collapse.note,
            "decided": collapse.decided,
            "verified": self._verdict(collapse.segment),
            "paths": [path(p) for p in collapse.paths],
        }

    def _verdict(self, segment: int) -> dict[str, Any] | None:
        """What the target said of a segment; None if it was not asked."""
        verified = self._verified.get(segment)
        if verified is None:
            return None
        verdict: dict[str, Any] = {
            "tokens": verified.tokens,
            "checked": len(verified.checked),
            "accepted": verified.accepted,
        }
        undone = self._rolled_back.get(segment)
        if undone is not None:
            verdict |= {"undone": undone.text, "instead": undone.instead}
        return verdict


def _accounts(stats: Stats) -> dict[str, Any]:
    told = dataclasses.asdict(stats)
    del told["entropy"]  # it is in the segments, step by step
    if stats.refinement is not None:
        told["refinement"] = stats.refinement.as_dict()
    return told


def _path_in_full(path: PathReport) -> dict[str, Any]:
    return dataclasses.asdict(path)


def _path_in_short(path: PathReport) -> dict[str, Any]:
    return {
        "text": path.text,
        "credence": round(path.credence, 4),
        "signals": path.signals,
        "status": path.status,
    }


def _plain(value: Any) -> Any:
    """The same value with lists for tuples, string keys, and null for what is not finite."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
