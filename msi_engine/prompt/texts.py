"""The texts within what a chat template is given: those that somebody else may have written.

Contents, names and ids of messages, arguments of tool calls, and whatever describes a tool. The
template's own vocabulary is not among them: roles, types and the names of its fields. Below
``arguments`` and ``parameters`` anything goes, names of fields included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msi_engine.errors import PromptError

_FREE = ("arguments", "parameters")
_FIXED = ("role", "type")


def texts_in(given: Any, *, free: bool = False) -> Iterator[str]:
    """Every text, in order, duplicates included.

    Args:
        given: Strings, numbers, None, lists and dictionaries.
        free: Names of fields are texts, too.
    """
    if isinstance(given, str):
        yield given
    elif isinstance(given, Mapping):
        for name, value in given.items():
            if free:
                yield name
            if free or name not in _FIXED:
                yield from texts_in(value, free=free or name in _FREE)
    elif isinstance(given, list | tuple):
        for item in given:
            yield from texts_in(item, free=free)


def map_texts(given: Any, change: Callable[[str], str], *, free: bool = False) -> Any:
    """A copy with every text of `texts_in` changed."""
    if isinstance(given, str):
        return change(given)
    if isinstance(given, Mapping):
        return {
            change(name) if free else name: (
                map_texts(value, change, free=free or name in _FREE)
                if free or name not in _FIXED
                else value
            )
            for name, value in given.items()
        }
    if isinstance(given, list | tuple):
        return [map_texts(item, change, free=free) for item in given]
    return given


def check_text(text: str) -> str:
    """``text`` itself.

    Raises:
        PromptError: If it is not Unicode: half of a surrogate pair stands alone.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PromptError(
            f"the prompt is not valid Unicode at character {error.start}; remove the lone surrogate"
        ) from None
    return text
