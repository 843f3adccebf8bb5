"""Characters that end sentences, and those that may follow an end or open a quotation."""

# ruff: noqa: RUF001  (marks of many scripts)

from __future__ import annotations

import re

# Stops that white space follows.
_SPACED_STOPS = frozenset(".!?…‥؟۔।॥։።፧፨‼⁇⁈⁉။។៕")
# Stops after which the next sentence begins at once.
UNSPACED_STOPS = frozenset("。！？｡．﹒﹖﹗")
STOPS = _SPACED_STOPS | UNSPACED_STOPS

ELLIPSIS = frozenset(".…‥")

# Opening mark of each closing one. Straight marks open and close.
OPENER = {
    '"': '"',
    "'": "'",
    "”": "“",
    "’": "‘",
    "“": "„",  # German closes with what English opens with
    "‘": "‚",
    "»": "«",
    "«": "»",
    "›": "‹",
    ")": "(",
    "]": "[",
    "}": "{",
    "）": "（",
    "」": "「",
    "』": "『",
    "】": "【",
    "》": "《",
}
QUOTES = frozenset("\"'”’“‘»«›")
BRACKETS = frozenset(")]}")
_EMPHASIS = frozenset("*_~`")
_SUPERSCRIPTS = frozenset("¹²³⁴⁵⁶⁷⁸⁹⁰†‡")
_MARKS = frozenset(OPENER) | _EMPHASIS | _SUPERSCRIPTS
_EMOJI = re.compile(
    "[\U0001f000-\U0001faff\u2190-\u21ff\u2600-\u27bf\u2b00-\u2bff\u200d\ufe0f\u20e3]"
)
# Opening marks within which an unspaced stop does not end the sentence around them.
WIDE_PAIRS = (("「", "」"), ("『", "』"), ("（", "）"), ("“", "”"), ("【", "】"))


def is_closer(character: str) -> bool:
    """Whether the character may stand between a stop and the end of its sentence."""
    return character in _MARKS or _EMOJI.match(character) is not None
