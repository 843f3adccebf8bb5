"""Words of a text, for scorers that compare or count them."""

from __future__ import annotations

import re

# Scripts that put no space between words: there a character stands for a word.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+(?:['\u2019][^\W\d_{_UNSPACED}]+)*")
_LAST = re.compile(rf"[^\s{_UNSPACED}]*\Z")  # what no white space or unspaced character divides


def words(text: str) -> list[str]:
    """The words of ``text`` in order, without case.

    A word is a run of letters, digits and underscores, with the apostrophes inside it; in Thai,
    Lao, Burmese, Khmer, Chinese and Japanese each character is one.
    """
    return _WORD.findall(text.casefold())


def split_at_word(committed: str, segment: str) -> tuple[str, str]:
    """Committed text and segment, so divided that no word lies across.

    A word that the segment goes on with is taken from the committed text and given to it.
    """
    if not (segment[:1].isalnum() or segment[:1] in ("'", "\u2019", "_")):
        return committed, segment
    space = max(committed.rfind(" "), committed.rfind("\n"))  # a search takes time in a long text
    last = _LAST.search(committed, space + 1)
    start = last.start() if last else len(committed)
    return committed[:start], committed[start:] + segment


def last_words(text: str, count: int) -> str:
    """The end of ``text`` with at most ``count`` of its words, separated by white space."""
    if len(text) < 2 * count:  # a word and its space take two characters
        return text
    start = len(text)
    for number, word in enumerate(re.finditer(r"\S+", text[::-1])):
        if number == count:
            break
        start = len(text) - word.end()
    return text[start:]
