"""The register feature space: what a text sounds like, not what it is about.

Each feature has its source in the literature; `docs/scorers.md` lists them. Counts are per
hundred words and their square root is taken, which evens out their spread (a rare word would
else outweigh everything when it occurs).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from math import log, sqrt
from typing import TYPE_CHECKING

from msi_scorers.features.lexicon import LEXICON, LISTS_OF
from msi_scorers.features.text import TakenApart

if TYPE_CHECKING:
    import numpy as np

Measure = Callable[[TakenApart], float]

# Lists of words whose share is a feature by itself; the others serve the features below.
COUNTED_LISTS = tuple(
    name for name in LEXICON if name not in ("irregular_past", "auxiliaries", "imperatives")
)

# Counted in the text in small letters.
PATTERNS = {
    "passives": r"\b(?:is|are|was|were|be|been|being)\s(?:\w+ly\s)?(?:\w{2,}ed|\w{2,}en|made|"
    r"held|found|set|paid|brought|sent|shown|known|born|built)\b",
    "numerals": r"\d+(?:[.,]\d+)*",
    "percent_and_money": r"\d\s?%|\d percent|[$\u20ac\u00a3]\s?\d|\bp\s?[<=>]",
    "enumerations": r"\([a-z]{1,3}\)|\b(?:section|clause|article|paragraph)\s\d|\u00a7|"
    r"\b\d+\.\d+\.",
    "citations": r"\[\d+(?:[,\u2013-]\s?\d+)*\]|\bet al\b|\((?:[^()]*\s)?(?:19|20)\d\d\)",
    "brackets": r"[(\[]",
    "quotations": r"[\"\u201c\u201d]",
    "semicolons_and_colons": r"[;:]",
    "commas": r",",
    "dashes": r"\s[\u2013\u2014-]+\s|\w\u2014\w",
    "ellipses": r"\.\.\.|\u2026",
    "exclamations": r"!",
    "questions": r"\?",
    "emoji": r"[\u2600-\u27bf\U0001f300-\U0001faff]|[:;]-?[)(dp](?!\w)|<3",
    "stretched_words": r"([a-z])\1\1|[!?]{2}",
    "similes": r"\blike (?:a|an|the)\b|\bas if\b|\bas \w+ as\b",
}
_COMPILED = {name: re.compile(pattern) for name, pattern in PATTERNS.items()}

# Told from the form of a word.
WORD_FORMS: dict[str, Callable[[str], object]] = {
    "contractions": re.compile(r".*'(?:t|s|m|d|re|ve|ll)").fullmatch,
    "nominalisations": re.compile(r"\w{3,}(?:tion|sion|ment|ness|ity|ance|ence)s?").fullmatch,
    "ly_adverbs": re.compile(r"\w{3,}ly").fullmatch,
    "fronted_compounds": re.compile(
        r"(?:here|there|where)(?:by|in|of|to|under|with|from|after|for|upon|inafter|inbefore|tofore)"
    ).fullmatch,
    "past_tense": lambda word: word in LEXICON["irregular_past"] or re.fullmatch(".{3,}ed", word),
    "long_words": lambda word: len(word) > 6,
}
_VOWELS = re.compile(r"[aeiouy]+")


def _per_word(count: int, taken: TakenApart) -> float:
    return sqrt(100.0 * count / len(taken.words))


def _imperatives(taken: TakenApart) -> float:
    commands = sum(opener in LEXICON["imperatives"] for opener in taken.openers)
    return commands / max(1, len(taken.openers))


def _small_starts(taken: TakenApart) -> float:
    starts = [s.lstrip(" \"'(*-\u201c")[:1] for s in taken.sentences]
    return sum(s.islower() for s in starts) / max(1, len(starts))


def _anaphora(taken: TakenApart) -> float:
    """Sentences and lines that begin as the one before does, or with "and"."""
    openers = taken.openers
    again = sum(a == b for a, b in pairwise(openers))
    return (again + openers.count("and")) / max(1, len(openers))


def _line_rhymes(taken: TakenApart) -> float:
    """Share of lines whose last three letters end another line, too, with another word."""
    ends = {re.sub(r"\W+$", "", line.lower()).rpartition(" ")[2] for line in taken.lines}
    rimes = Counter(end[-3:] for end in ends if len(end) > 2)
    return sum(n for n in rimes.values() if n > 1) / max(1, len(taken.lines))


def _alliteration(taken: TakenApart) -> float:
    """Words that begin with the consonant of the last long word before them."""
    initials = [w[0] for w in taken.words if len(w) > 3]
    count = sum(a == b and a not in "aeiou" for a, b in pairwise(initials))
    return _per_word(count, taken)


def _formality(taken: TakenApart) -> float:
    """Heylighen and Dewaele's F from the classes that lists can tell, per hundred words."""
    lists = _counts(taken)
    static = lists["articles"] + lists["prepositions"] + lists["nominalisations"]
    deictic = sum(
        lists[name]
        for name in ("first_singular", "first_plural", "second_person", "third_person",
                     "auxiliaries", "interjections")
    )  # fmt: skip
    return 100.0 * (static - deictic) / len(taken.words)


def _counts(taken: TakenApart) -> Counter[str]:
    """Words in each list and of each form."""
    return Counter(chain.from_iterable(map(_classes, taken.words)))


@lru_cache(maxsize=65536)
def _classes(word: str) -> tuple[str, ...]:
    """Lists and forms that a word belongs to."""
    forms = (name for name, has_form in WORD_FORMS.items() if has_form(word))
    return (*LISTS_OF.get(word, ()), *forms)


@lru_cache(maxsize=65536)
def _syllables(word: str) -> int:
    return len(_VOWELS.findall(word)) or 1


def _found(pattern: str, taken: TakenApart) -> int:
    return sum(1 for _ in _COMPILED[pattern].finditer(taken.plain))


MEASURES: dict[str, Measure] = {
    "imperatives": _imperatives,
    "names": lambda t: _per_word(t.num_names, t),
    "small_starts": _small_starts,
    "word_length": lambda t: sum(map(len, t.words)) / len(t.words),
    "syllables": lambda t: sum(map(_syllables, t.words)) / len(t.words),
    "sentence_length": lambda t: log(len(t.words) / max(1, len(t.sentences)) + 1.0),
    "type_token_ratio": lambda t: len(set(t.words[-50:])) / len(t.words[-50:]),
    "formality": _formality,
    "line_breaks": lambda t: _per_word(max(0, len(t.lines) - 1), t),
    "line_rhymes": _line_rhymes,
    "alliteration": _alliteration,
    "anaphora": _anaphora,
}

NAMES = (*COUNTED_LISTS, *WORD_FORMS, *PATTERNS, *MEASURES)


class RegisterSpace:
    """Register features of English text.

    Attributes:
        names: The features, in the order of the columns.
    """

    names = NAMES

    def measure(self, texts: Sequence[str]) -> np.ndarray:
        """Features of each text, raw. Shape ``(len(texts), len(names))``, float64.

        A text without words has none: its row is NaN.
        """
        import numpy as np

        return np.array([_measured(text) for text in texts], np.float64).reshape(-1, len(NAMES))


@lru_cache(maxsize=2048)
def _measured(text: str) -> tuple[float, ...]:
    taken = TakenApart(text)
    if not taken.words:
        return (float("nan"),) * len(NAMES)
    lists = _counts(taken)
    return (
        *(_per_word(lists[name], taken) for name in (*COUNTED_LISTS, *WORD_FORMS)),
        *(_per_word(_found(name, taken), taken) for name in PATTERNS),
        *(measure(taken) for measure in MEASURES.values()),
    )
