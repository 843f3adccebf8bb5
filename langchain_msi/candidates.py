"""Candidates: the generations or documents that a choice is made from, and their text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from pydantic import BaseModel


def text_of(candidate: Any) -> str:
    """What a candidate says.

    The text of a string, message or document. Parsed values (Pydantic objects, dictionaries,
    numbers) are written as JSON with sorted keys, so that equal values have equal texts.
    """
    if isinstance(candidate, str):
        return candidate
    if isinstance(candidate, BaseMessage):
        return str(candidate.text)
    if isinstance(candidate, Document):
        return candidate.page_content
    if isinstance(candidate, BaseModel):
        candidate = candidate.model_dump(mode="json")
    return json.dumps(candidate, sort_keys=True, ensure_ascii=False, default=str)


def with_note(candidate: Any, notes: Mapping[str, Any]) -> Any:
    """A copy of a message or document with ``notes`` in its metadata; all else as it is."""
    if isinstance(candidate, Document):
        return candidate.model_copy(update={"metadata": {**candidate.metadata, **notes}})
    if isinstance(candidate, BaseMessage):
        metadata = {**candidate.response_metadata, **notes}
        return candidate.model_copy(update={"response_metadata": metadata})
    return candidate
