"""The passages of a prompt as evidence: what the user has pasted, without what the user asks.

Reads text, and guesses: a statement is a sentence that ends with a stop, and a question or a short
last paragraph is what is asked about the rest. Knows no embedder and decides nothing about scorers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sentencex

from msi_engine.boundary.characters import STOPS, is_closer
from msi_engine.config import DecodeConfig
from msi_engine.evidence import Evidence
from msi_engine.prompt import Chat, Prompt

FEW = 3
"""Statements up to which a prompt is taken to have no passages of its own."""

SOURCE = "prompt"

_ASKING = frozenset("?？؟﹖‽")  # noqa: RUF001
_SHORT = 2  # sentences of a last paragraph that asks about those before it
_LEAST = 10  # characters of a statement
_PARAGRAPHS = re.compile(r"\n[ \t]*\n")


def evidence_of(
    prompt: Prompt, config: DecodeConfig, given: tuple[Evidence, ...]
) -> tuple[Evidence, ...]:
    """What counts as evidence for an answer, by the option ``evidence_from``.

    Args:
        prompt: What the model is asked.
        config: The options.
        given: The passages that the caller gives.

    Returns:
        For ``given``, those. For ``prompt``, those and the passages of the prompt, whoever says
        them. For ``auto``, those, or if there are none, the passages in what users and tools say,
        if these hold more than `FEW` statements.
    """
    if config.evidence_from == "given" or (config.evidence_from == "auto" and given):
        return given
    if config.evidence_from == "prompt":
        known = {passage.text for passage in given}
        found, _ = _passages(prompt, config.language, ("system", "user", "tool"))
        return (*given, *(passage for passage in found if passage.text not in known))
    if isinstance(prompt, str):  # text that is to be gone on with, and no source for what follows
        return ()
    found, statements = _passages(prompt, config.language, ("user", "tool"))
    return found if statements > FEW else ()


def _passages(
    prompt: Prompt, language: str, roles: Collection[str]
) -> tuple[tuple[Evidence, ...], int]:
    """The passages, paragraph by paragraph, and how many statements they hold."""
    paragraphs = [
        _statements(paragraph, language)
        for text in _texts(prompt, language, roles)
        for paragraph in text
    ]
    told = [paragraph for paragraph in paragraphs if paragraph]
    passages = (Evidence(" ".join(paragraph), SOURCE) for paragraph in told)
    return tuple(dict.fromkeys(passages)), sum(map(len, told))


def _texts(prompt: Prompt, language: str, roles: Collection[str]) -> list[list[str]]:
    """The paragraphs of each text of the prompt, without the one that asks. Token ids have none."""
    if isinstance(prompt, str):
        return [_without_request(_PARAGRAPHS.split(prompt), language)]
    items: Sequence[Any] = prompt.messages if isinstance(prompt, Chat) else prompt
    messages = [item for item in items if isinstance(item, Mapping)]
    asked = max((i for i, m in enumerate(messages) if m.get("role") == "user"), default=None)
    texts = []
    for place, message in enumerate(messages):
        if message.get("role") in roles and isinstance(message.get("content"), str):
            paragraphs = _PARAGRAPHS.split(message["content"])
            texts.append(_without_request(paragraphs, language) if place == asked else paragraphs)
    return texts


def _without_request(paragraphs: list[str], language: str) -> list[str]:
    paragraphs = [paragraph for paragraph in paragraphs if paragraph.strip()]
    if len(paragraphs) > 1 and len(_sentences(paragraphs[-1], language)) <= _SHORT:
        return paragraphs[:-1]
    return paragraphs


def _statements(paragraph: str, language: str) -> list[str]:
    return [s for s in _sentences(paragraph, language) if len(s) >= _LEAST and _states(s)]


def _sentences(paragraph: str, language: str) -> list[str]:
    sentences = sentencex.segment(language, " ".join(paragraph.split()))
    return [sentence.strip() for sentence in sentences if sentence.strip()]


def _states(sentence: str) -> bool:
    end = len(sentence)
    while end and is_closer(sentence[end - 1]):
        end -= 1
    return sentence[end - 1 : end] in STOPS - _ASKING
