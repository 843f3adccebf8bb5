"""Stop strings in a stream: where one is, and how much text could be the beginning of one."""

from __future__ import annotations

from collections.abc import Sequence

from msi_engine.errors import ConfigError


class StopStrings:
    """Finds the earliest stop string in a growing text.

    Everything before a stop string may be emitted, the stop string itself may not: emit
    ``text[: len(text) - hold_back(text)]`` while `find` gives None.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        """Take the stop strings.

        Raises:
            ConfigError: If one of them is empty.
        """
        if not all(strings):
            raise ConfigError("a stop string is empty; leave it out or give it a character")
        self._strings = tuple(dict.fromkeys(strings))
        self._longest = max(map(len, self._strings), default=0)

    def __bool__(self) -> bool:
        return bool(self._strings)

    def find(self, text: str, start_hint: int = 0) -> int | None:
        """Index of the earliest stop string in ``text``, or None.

        Args:
            text: The text so far.
            start_hint: Characters of ``text`` in which nothing was found before: a match that
                lies wholly within them is not looked for, one that ends behind them is.
        """
        start = max(0, start_hint - self._longest + 1)
        found = [i for s in self._strings if (i := text.find(s, start)) >= 0]
        return min(found, default=None)

    def hold_back(self, text: str) -> int:
        """Length of the longest end of ``text`` that is a proper beginning of a stop string."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            tail = text[-length:]
            if any(len(s) > length and s.startswith(tail) for s in self._strings):
                return length
        return 0
