"""The boundary at the end of a sentence, found in a stream without looking ahead."""

# ruff: noqa: RUF001, RUF003  (marks of many scripts)

from __future__ import annotations

import re
from dataclasses import dataclass

from msi_engine.boundary.abbreviations import base_language, is_abbreviation, is_exclamation
from msi_engine.boundary.characters import (
    BRACKETS,
    ELLIPSIS,
    OPENER,
    QUOTES,
    STOPS,
    UNSPACED_STOPS,
    WIDE_PAIRS,
    is_closer,
)
from msi_engine.boundary.markdown import FenceScanner
from msi_engine.boundary.predicate import BoundaryContext

# Probability of white space or the end after a stop at which the stop counts. A model is nearly
# always sure of itself here, so that the exact value decides little.
END_MASS = 0.5
_LOOK_BACK = 400  # characters of text that the rules see
_GREEK_QUESTION = frozenset(";\u037e")
_FOOTNOTE = re.compile(r"(?:\[\d{1,3}\])+$")
_MARKERS = r"[\s>#*_~\-+•‣◦–—(\[\"'`|]*"
# "1.", "2.3.", "a.", "iv." at the beginning of a line, after the marks of Markdown
_LIST_NUMBER = re.compile(
    rf"{_MARKERS}(?:\d{{1,3}}|[^\W\d_]|[ivx]{{1,5}}|[IVX]{{1,5}})(?:\.\d{{1,3}})*"
)
# "Steps: 1. Do this. 2. Do that."
_INLINE_NUMBER = re.compile(r"(?:([.!?…])[\"'”’)\]*_]*\s+[*_(]*\d{1,2}|:\s+[*_(]*1)$")
# "Step 1." or "Figure 2." as the heading of what follows
_LABEL = re.compile(
    rf"{_MARKERS}(?:Step|Chapter|Section|Figure|Fig\.|Table|Part|Question|Q|Example|Article|Rule|"
    r"Exercise|Appendix|Schritt|Kapitel|Abschnitt|Étape|Chapitre|Paso|Capítulo|Capitolo|Глава|"
    r"Шаг)\s\d{1,3}"
)
_START_MARKS = re.compile(r"[\s>#*_~\-+•–—\d.)]*")


@dataclass(frozen=True, slots=True)
class _End:
    """A text that ends like a sentence, taken apart: ``before + run + closers``."""

    before: str
    run: str
    closers: str

    @property
    def line(self) -> str:
        return self.before[self.before.rfind("\n") + 1 :]


class SentenceBoundary:
    """Reached when the segment ends with a stop, and marks that close it, which end a sentence.

    A stop that white space would follow counts when white space does follow, or when the
    model's own next token says that it will (`END_MASS`). A stop of a script without spaces
    counts at once. A sentence that ends without a stop is left to the paragraph boundary, an
    ellipsis never counts, and where only the next word could tell, it is not a boundary.
    """

    name = "sentence"

    def __init__(self, language: str = "en") -> None:
        """Take the language of the answer, an ISO 639 code."""
        self._language = base_language(language)
        self._stops = STOPS | (_GREEK_QUESTION if self._language == "el" else frozenset())
        self._fences = FenceScanner()

    def reached(self, context: BoundaryContext) -> bool:
        """See `BoundaryPredicate`."""
        segment = context.segment
        # Nearly every step ends here: a word cannot be the end of a sentence.
        if not context.complete or not segment or segment[-1].isalnum():
            return False
        text = segment.rstrip()
        stop = self._find_stop(text)
        if stop is None or (stop[0] == 0 and self._continues(context.committed)):
            return False
        end = _take_apart(context.committed, text, stop)
        if not self._ends_sentence(end) or self._fences.inside(context.committed, segment):
            return False
        if len(text) < len(segment) or _needs_no_space(end):
            return True
        return context.end_mass() >= END_MASS

    def _find_stop(self, text: str) -> tuple[int, int] | None:
        """Where in ``text`` its final stops begin and end, or None if it does not end with any."""
        end = len(text)
        footnote = _FOOTNOTE.search(text) if text.endswith("]") else None
        if footnote:
            end = footnote.start()
        while end and is_closer(text[end - 1]):
            end -= 1
        # French puts a space between the stop and the guillemet.
        if text[end : end + 1] in ("»", "›") and text[end - 1 : end].isspace():
            end -= 1
        start = end
        while start and text[start - 1] in self._stops:
            start -= 1
        return (start, end) if start < end else None

    def _continues(self, committed: str) -> bool:
        """Whether stops right after ``committed`` belong to an end that it has already."""
        return committed[-1:] in self._stops or is_closer(committed[-1:] or " ")

    def _ends_sentence(self, end: _End) -> bool:
        if not end.before.strip() or _is_ellipsis(end) or _in_inline_code(end):
            return False
        if _closes_a_part(end) or _is_inside(end):
            return False
        if end.run == ".":
            return not self._is_part_of_word(end)
        if end.run == "!":
            return not is_exclamation(end.line, self._language)
        return True

    def _is_part_of_word(self, end: _End) -> bool:
        line = end.line
        if end.before[-1].isspace():  # ". . .", ".gitignore", ".NET"
            return True
        if _LIST_NUMBER.fullmatch(line) or _LABEL.fullmatch(line):
            return True
        inline = _INLINE_NUMBER.search(line, max(0, len(line) - 16))
        if inline and not self._ends_abbreviation(line[: inline.start()], inline[1]):
            return True
        return self._ends_abbreviation(line, ".")

    def _ends_abbreviation(self, line: str, stop: str | None) -> bool:
        if stop != ".":
            return False
        words = line.split()
        starts = len(words) == 1 or (len(words) > 1 and words[-2][-1] in STOPS)
        return is_abbreviation(line, self._language, starts_sentence=starts)


def _take_apart(committed: str, text: str, stop: tuple[int, int]) -> _End:
    start, end = stop
    before = text[:start]
    if start < _LOOK_BACK:
        before = committed[start - _LOOK_BACK :] + before
    return _End(before[-_LOOK_BACK:], text[start:end], text[end:].strip())


def _needs_no_space(end: _End) -> bool:
    if end.closers or end.run[-1] not in UNSPACED_STOPS:
        return False
    # "３．１４" is a number until something else is known.
    return not (end.run == "．" and end.before[-1].isdigit())


def _is_ellipsis(end: _End) -> bool:
    run = end.run
    return all(c in ELLIPSIS for c in run) and (len(run) > 1 or run != ".")


def _in_inline_code(end: _End) -> bool:
    return (end.line + end.closers).count("`") % 2 == 1


def _at_sentence_start(text: str) -> bool:
    """Whether what follows ``text`` begins a sentence."""
    stripped = text.rstrip()
    if (
        not stripped
        or "\n" in text[len(stripped) :]
        or _START_MARKS.fullmatch(stripped[stripped.rfind("\n") + 1 :])
    ):
        return True
    index = len(stripped)
    while index and is_closer(stripped[index - 1]):
        index -= 1
    return index > 0 and stripped[index - 1] in STOPS


def _opening(end: _End, closer: str) -> int:
    """Where in ``end.before`` the mark opens that ``closer`` closes, or -1."""
    index = end.before.rfind(OPENER[closer])
    if index < 0 and closer == "“":  # “Swedish and sloppy quotations open as they close
        index = end.before.rfind(closer)
    return index


def _closes_a_part(end: _End) -> bool:
    """Whether the closing marks close only a part of a sentence that goes on."""
    for closer in end.closers:
        if closer in BRACKETS:
            opening = _opening(end, closer)
            # "print(x.)" is code, "Foo (Bar Inc.) is" goes on, "(All of it.)" does not.
            if opening >= 0 and not _at_sentence_start(end.before[:opening]):
                return True
        elif closer in QUOTES and end.run[-1] in "!?":
            opening = _opening(end, closer)
            # "Stop!" she said. But: She said, "Stop!"
            if opening >= 0 and _at_sentence_start(end.before[:opening]):
                return True
    return False


def _is_inside(end: _End) -> bool:
    """Whether the stop stands within brackets or quotation marks that the sentence contains."""
    before = end.before
    if end.run[-1] in UNSPACED_STOPS:
        whole = before + end.closers
        return any(whole.rfind(a) > whole.rfind(b) for a, b in WIDE_PAIRS)
    if end.closers:
        return False
    opening = before.rfind("(")
    if opening > before.rfind(")") and "\n" not in before[opening:]:
        spaced = opening == 0 or before[opening - 1].isspace()
        return spaced and not _at_sentence_start(before[:opening])
    # « Bonjour. » : the guillemet is still to come. German's »so« closes with it.
    opening = before.rfind("«")
    return (
        opening > before.rfind("»")
        and before[opening + 1 : opening + 2].isspace()
        and (opening == 0 or before[opening - 1].isspace())
    )
