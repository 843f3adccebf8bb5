"""Whether the packaged embedder can read a text: it knows the Latin script, and English best."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from itertools import islice

_ENOUGH = 2000  # letters that are looked at
_SHARE = 0.5  # of them that are Latin in a text that it can read

PACKAGED = "all-MiniLM-L6-v2"
HINT = (
    f"{PACKAGED} reads English, and the passages are in another script; "
    "name a multilingual model with -o embedder"
)


def is_latin(texts: Iterable[str]) -> bool:
    """Whether at least half of the letters are Latin; true where there are none."""
    letters = islice((c for text in texts for c in text if c.isalpha()), _ENOUGH)
    latin = [c.isascii() or unicodedata.name(c, "").startswith("LATIN") for c in letters]
    return sum(latin) >= _SHARE * len(latin)
