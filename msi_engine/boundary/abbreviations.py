"""Full stops that belong to an abbreviation, an initial or an ordinal number.

The rules of some 300 languages come from the `sentencex` library; this module asks it about
what stands before the stop, without what follows, and adds what was found missing.
"""

# ruff: noqa: RUF001, RUF003  (letters of many scripts)

from __future__ import annotations

import re
from functools import lru_cache

import sentencex


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OPENING = "([{\"'“‘«„‚*_~`<"
_LETTERS = r"[^\W\d_]"
# U.S., e.g., z.B., d.w.z., m.in., т.е., π.χ., av. J.-C.
_DOTTED = re.compile(rf"{_LETTERS}{{1,2}}(?:\.-?{_LETTERS}{{1,3}})+")
# The second half of "z. B.", "p. ex.", "EE. UU.", "т. е."
_SECOND_HALF = re.compile(rf"(?:^|\s)[(„“\"]?{_LETTERS}{{1,2}}\.\s?{_LETTERS}{{1,2}}$")
_ORDINAL = re.compile(r"\d{1,2}|[IVXLC]{1,6}")
_ABBREVIATED = re.compile(rf"\W*{_LETTERS}+\.")
# README.md, 1.2.3, example.com
_NAME = re.compile(r"[^.]{4,}\..+|[^.]*\d[^.]*\..+|.*[/@].*")
# Words as a language may be given: en, pt-BR, zh_Hans.
_SUBTAG = re.compile(r"[-_]")

# Languages that write ordinal numbers with a full stop.
_ORDINAL_LANGUAGES = _words("bs cs da de et fi hr hu is lt lv nb nn no pl sk sl sr tr")

# Unmistakable in any language, so that they hold when the language was not named.
_COMMON = _words("""
    abb allg bijv bspw bzgl bzw ca cf dhr dipl dott dr dra enz etc evtl excl fig figs ggf
    hr hrsg ibid incl inkl jr kap lic ltd mevr mgr mio mlle mme mr mrd mrs ms nr núm örn osv pág
    prof resp sgt sig sogen sr sra srta st str tel tzn u.a ud uds usw vgl vol vols vs zzgl zb
    др им напр пр проф рис см стр т тел тыс ул млн млрд гг
    κ κα κος σελ δηλ κτλ αρ
    डॉ श्री प्रो सुश्री पं د أ م
    """)
_BY_LANGUAGE = {
    "en": """approx assn bros cmdr cont cpl deg ed eds est govt hrs hwy lbs mins misc messrs ft oz
        orig pvt secs trans yrs""",
    "de": "anm bd best bez bsp dgl ebd eigtl entspr f ff frl gegr geb gest jh jhd jhs lt max min "
    "od phil rd s sog sp std tsd u usf verf z zt tgl",
    "fr": "adj apr av bd boul chap env ex hab m mm n no p pp réf s st ste suiv v vol éd tél",
    "es": "adm aprox art av avda cap cía d depto dpto ed ej gral id izq máx mín n pág págs pza s t "
    "tel v vol",
    "it": "pag pagg pp es ecc cap cfr sig sigg dott ing avv arch ca n tel vol fig",
    "pt": "pág págs av aprox cap cia ed eng ex gov n núm prof profa s séc sen tel v vol",
    "ru": "г гг в вв д дер им кв корп коп млн млрд н обл п пер пл пос просп р руб с св см соч стр "
    "тыс у ум ум ул ч шт экз",
    "el": "κ κα κος σ σελ αρ βλ π πρβλ εκ τηλ κεφ στ",
    "nl": "afb bijv blz ca dhr dr drs enz evt ing jl mevr mr nl nr prof resp st vgl zgn",
    "pl": "al dr hab inż itd itp m.in mgr np nr ok pl płk pok prof r s st św tel tj tzn tzw ul ur "
    "ww wyd zob zm",
    "sv": "bl d dvs enl etc exkl fr inkl jfr kl m mfl nr obs osv p s st t tel",
    "tr": "av bkz cad dr mah no ör örn prof sk sn sok vb vs yy",
    "cs": "atd apod č čl ing mgr mj např napr odst popř př resp s str sv tj tzn tzv viz",
    "ar": "د أ م ص ج ت هـ",
    "hi": "डॉ श्री प्रो सुश्री पं कु मो",
}
_EXTRA = {language: _words(words) for language, words in _BY_LANGUAGE.items()}
# Weekdays and others that are abbreviations only as they are written here.
_EXACT = {"en": _words("max min temp Mon Tue Tues Wed Thu Thur Thurs Fri")}

# Listed as abbreviations by the library or above, but far more often words at the end of a
# sentence, when they are written like this.
_WORDS = {
    "en": _words("""arc ark art bart con Con ill ken la ma mar mass may May me mi miss no nos ok Ok
        ore pa penn Penn que re us x y yum Yum z"""),
    "de": _words("Art"),
    "es": _words("bien mar no y"),
    "fr": _words("a y"),
    "it": _words("è me mai no re te via"),
    "pt": _words("é"),
    "ru": _words("я"),
    "sv": _words("det hon med ut"),
    "tr": _words("al o sen ver"),
}
_NAMES = _words("Al Bart Ed Ken Max")
_ENGLISH_TITLES = _words("DR FIG JR MR MRS MS NO NOS PROF SR ST VS")


def base_language(language: str) -> str:
    """``pt`` for ``pt-BR``, in lower case."""
    return _SUBTAG.split(language.lower(), maxsplit=1)[0]


def is_abbreviation(before: str, language: str, *, starts_sentence: bool) -> bool:
    """Whether a full stop after ``before`` belongs to its last word and ends no sentence.

    An abbreviation that does end a sentence cannot be told from one that does not without what
    comes next; it is taken for one that does not, as a sentence too long costs less than one cut.

    Args:
        before: What stands before the stop, the last line or so.
        language: Base language code.
        starts_sentence: The last word is the first of its sentence.
    """
    words = before.split(None)
    word = words[-1].lstrip(_OPENING) if words else ""
    if not word:
        return False
    if _DOTTED.fullmatch(word) or _SECOND_HALF.search(before[-16:]):
        return True
    if _NAME.fullmatch(word):
        return False
    if len(word) == 1 and word.isupper():
        return not _is_pronoun(word, words, language)
    if language in _ORDINAL_LANGUAGES and _ORDINAL.fullmatch(word):
        # "Nr. 5." is a number that is counted, "am 5." and "5. 8." are ordinals.
        return not (len(words) > 1 and _ABBREVIATED.fullmatch(words[-2]))
    if _is_word(word, language, starts_sentence):
        return False
    if len(word) == 1 and word.lower() != word.upper():
        return True
    return _is_listed(word, language) or not _splits(f"{before[-80:]}.", language)


def is_exclamation(before: str, language: str) -> bool:
    """Whether an exclamation mark after ``before`` belongs to a name such as ``Yahoo!``."""
    return not _splits(f"{before[-80:]}!", language)


def _is_pronoun(word: str, words: list[str], language: str) -> bool:
    """English "I" at the end of a sentence, after a plain word: "so do I."."""
    return language == "en" and word == "I" and len(words) > 1 and words[-2].islower()


def _is_word(word: str, language: str, starts_sentence: bool) -> bool:
    if word in _NAMES or word in _WORDS.get(language, ()):
        return True
    if language != "en":
        return False
    if starts_sentence and word in ("No", "OK"):
        return True
    # Acronyms: "in LA.", "the UT."; the library compares without case.
    return len(word) > 1 and word.isupper() and word.isalpha() and word not in _ENGLISH_TITLES


def _is_listed(word: str, language: str) -> bool:
    lower = word.lower()
    if lower in _COMMON or lower in _EXTRA.get(language, ()) or word in _EXACT.get(language, ()):
        return True
    return language == "de" and lower.endswith("str")


@lru_cache(maxsize=256)  # K paths and their forks ask about the same words
def _splits(text: str, language: str) -> bool:
    """Whether the library ends a sentence after ``text``, if a word that it does not know follows.

    A known beginning of a sentence ("The") would make it split after abbreviations, too.
    """
    position = 0
    for sentence in sentencex.segment(language, f"{text} Xxx"):
        position += len(sentence)
        if len(text) <= position <= len(text) + 1:
            return True
    return False
