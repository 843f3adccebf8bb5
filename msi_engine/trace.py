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
from msi_engine.events import Collapsed, Committed, Event, Finished, PathReport, Stepped

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
            stats = dataclasses.asdict(self.finished.stats)
            del stats["entropy"]  # it is in the segments, step by step
            head |= {"finish_reason": self.finished.reason, "seed": self.finished.seed}
            head["stats"] = stats
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
            "paths": [path(p) for p in collapse.paths],
        }


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
