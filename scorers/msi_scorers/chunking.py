"""Chunking: documents become passages of some sentences each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from msi_engine.errors import ConfigError
from msi_engine.evidence import Evidence

CHUNK_SIZE = 800  # characters: some 200 tokens, within the window of small embedders
MAX_CHUNKS = 20_000  # an hour for a small embedder on a laptop's CPU

_MARKDOWN = (".md", ".markdown")


def chunked(documents: Iterable[Evidence], size: int = CHUNK_SIZE) -> tuple[Evidence, ...]:
    """Cut documents where paragraphs, sentences and words end, in that order of preference.

    Args:
        documents: Texts of any length.
        size: Most characters in a chunk.

    Returns:
        The chunks in order, each with its document's source.

    Raises:
        ConfigError: If the splitter is not installed, or there would be more than `MAX_CHUNKS`.
    """
    splitters: dict[bool, Any] = {}
    chunks: list[Evidence] = []
    for document in documents:
        markdown = document.source.lower().endswith(_MARKDOWN)
        if markdown not in splitters:
            splitters[markdown] = _splitter(size, markdown=markdown)
        for text in splitters[markdown].chunks(document.text):
            if re.search(r"\w", text):
                chunks.append(Evidence(text, document.source))
        if len(chunks) > MAX_CHUNKS:
            raise ConfigError(
                f"the documents make more than {MAX_CHUNKS} chunks of {size} characters; "
                "name fewer of them"
            )
    return tuple(chunks)


def _splitter(size: int, *, markdown: bool) -> Any:
    try:
        from semantic_text_splitter import MarkdownSplitter, TextSplitter
    except ImportError:
        raise ConfigError(
            'cutting documents into chunks needs: pip install "llm-msi[rag]"'
        ) from None
    return (MarkdownSplitter if markdown else TextSplitter)(size)
