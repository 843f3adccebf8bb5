"""Sentence boundaries on hand-annotated text, each case as a stream."""

from __future__ import annotations

import random
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from msi_engine.boundary import BoundaryContext, BoundaryPredicate, make_boundaries
from tests.engine.boundary_cases import CASES, MARK, NEVER_SPLIT

# Word with its leading space, digit, run of punctuation, run of white space: as BPE cuts text.
_PIECES = re.compile(r" ?[^\W\d]+| ?\d| ?[^\w\s]+|\s+")

Cut = Callable[[str], Iterator[int]]


def by_character(text: str) -> Iterator[int]:
    yield from range(1, len(text) + 1)


def by_piece(text: str) -> Iterator[int]:
    for match in _PIECES.finditer(text):
        yield match.end()


def by_part(text: str) -> Iterator[int]:
    """Pieces cut further at random, as a tokenizer does with what it has not seen often."""
    rng = random.Random(text)
    for match in _PIECES.finditer(text):
        end = match.start()
        while end < match.end():
            end = min(end + rng.randint(1, 4), match.end())
            yield end


def detect(
    text: str,
    boundary: BoundaryPredicate,
    cut: Cut,
    *,
    certainty: float = 1.0,
    restart: bool = True,
    first: int = 0,
) -> set[int]:
    """Offsets at which the boundary is reached, white space behind it not counted.

    The model is one that knows the text: it gives ``certainty`` to white space or the end if
    that comes next, and the rest of the probability if it does not.
    """
    found = set()
    committed, start = text[:first], first
    for end in cut(text):
        if end <= first:
            continue
        is_end = end == len(text) or text[end].isspace()
        mass = certainty if is_end else 1 - certainty
        context = BoundaryContext(committed, text[start:end], 1, True, lambda m=mass: m)
        if boundary.reached(context):
            found.add(len(text[:end].rstrip()))
            if restart:
                committed, start = text[:end], end
    return found


def annotated(marked: str) -> tuple[str, set[int]]:
    offsets, text = set(), ""
    for part in marked.split(MARK):
        text += part
        offsets.add(len(text))
    if not marked.endswith(MARK):
        offsets.discard(len(text))
    return text, offsets


@dataclass
class Count:
    right: int = 0
    false: int = 0
    missed: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, text: str, found: set[int], wanted: set[int]) -> None:
        self.right += len(found & wanted)
        self.false += len(found - wanted)
        self.missed += len(wanted - found)
        for offset in sorted(found ^ wanted):
            sign = "false" if offset in found else "missed"
            self.examples.append(f"{sign}: {text[:offset][-40:]!r} | {text[offset:][:20]!r}")

    @property
    def precision(self) -> float:
        return self.right / max(1, self.right + self.false)

    @property
    def recall(self) -> float:
        return self.right / max(1, self.right + self.missed)


def evaluate(cut: Cut, certainty: float = 1.0, language: str | None = None) -> dict[str, Count]:
    """Counts by language, and in all under ``all``."""
    counts: dict[str, Count] = defaultdict(Count)
    for case_language, _, marked in CASES:
        (boundary,) = make_boundaries(["sentence"], language=language or case_language)
        text, wanted = annotated(marked)
        found = detect(text, boundary, cut, certainty=certainty)
        counts[case_language].add(text, found, wanted)
        counts["all"].add(text, found, wanted)
    return counts


def report(title: str, counts: dict[str, Count]) -> None:
    """What ``pytest -s`` shows."""
    lines = [
        f"{language:6} precision {c.precision:.3f}  recall {c.recall:.3f}  of {c.right + c.missed}"
        for language, c in counts.items()
    ]
    sys.stdout.write("\n".join(["", title, *lines, *counts["all"].examples, ""]))


CUTS = [by_character, by_piece, by_part]


@pytest.mark.parametrize("cut", CUTS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("certainty", [1.0, 0.9])
def test_precision_and_recall(cut, certainty):
    counts = evaluate(cut, certainty)
    report(f"{cut.__name__}, certainty {certainty}", counts)
    assert counts["all"].precision >= 0.97
    assert counts["all"].recall >= 0.93


@pytest.mark.parametrize("cut", [by_character, by_piece], ids=lambda c: c.__name__)
@pytest.mark.parametrize(("language", "kind", "marked"), [c for c in CASES if c[1] in NEVER_SPLIT])
def test_no_false_split(language, kind, marked, cut):
    (boundary,) = make_boundaries(["sentence"], language=language)
    text, wanted = annotated(marked)
    assert detect(text, boundary, cut) <= wanted
    assert detect(text, boundary, cut, certainty=0.9) <= wanted


@pytest.mark.parametrize(("language", "kind", "marked"), CASES)
def test_where_the_text_was_committed_makes_no_boundary(language, kind, marked):
    """A segment may begin anywhere, after a length cap: no boundary appears for that reason."""
    (boundary,) = make_boundaries(["sentence"], language=language)
    text, _ = annotated(marked)
    usual = detect(text, boundary, by_character)
    for first in range(0, len(text), 5):
        assert detect(text, boundary, by_character, first=first) <= usual


def test_set_is_large_enough():
    assert len(CASES) >= 150
    assert len({language.split("-")[0] for language, _, _ in CASES}) >= 10
