"""The outlet: hands out final text, never more than once and never part of a stop string."""

from __future__ import annotations

from collections.abc import Sequence

from msi_engine.boundary import StopStrings
from msi_engine.events import Committed


class Outlet:
    """Turns the growing answer into `Committed` events.

    Args:
        stop: Strings that end the answer.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._stops = StopStrings(stop)
        self._sent = 0

    def stops(self, committed: str, segment: str) -> bool:
        """True if a stop string is complete once ``segment`` follows ``committed``."""
        return self._stops.find(committed + segment, len(committed)) is not None

    def offer(self, text: str) -> list[Committed]:
        """Hand out what is new in a final text, up to a stop string or what may become one."""
        end = self._stops.find(text, self._sent)
        return self._send(text[: len(text) - self._stops.hold_back(text) if end is None else end])

    def close(self, text: str) -> tuple[str, list[Committed]]:
        """The whole answer, cut before a stop string, and what of it is still to be handed out."""
        text = text[: self._stops.find(text, 0)]
        return text, self._send(text)

    def _send(self, text: str) -> list[Committed]:
        fresh = text[self._sent :]
        self._sent = max(self._sent, len(text))
        return [Committed(fresh)] if fresh else []
