"""Evidence: the passages that an answer is held to, and the interface of what embeds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from msi_engine.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Evidence:
    """A passage.

    Attributes:
        text: What it says.
        source: Where it is from: a file's name, an address. May be empty.
        id: Name or number by which it is referred to. May be empty.
        vector: The text's embedding by the embedder that is given along with it, where a store
            has it already; of any length. Scorers need not embed the text again.
    """

    text: str
    source: str = ""
    id: str = ""
    vector: tuple[float, ...] | None = None


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors whose cosines tell how much the texts are about the same."""

    @property
    def name(self) -> str:
        """What tells this model from others: stored vectors are kept apart by it."""
        ...

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts in one call.

        Args:
            texts: At least one.

        Returns:
            float32 of shape ``(texts, dimensions)``, of any length; the same for the same text.
        """
        ...


def as_evidence(items: Any) -> tuple[Evidence, ...]:
    """What a caller gives as evidence, in one form; blank passages are left out.

    Args:
        items: One passage or a sequence of them: text, `Evidence`, or an object with
            ``page_content`` and ``metadata``, such as LangChain's ``Document``.

    Raises:
        ConfigError: If something is none of these.
    """
    if items is None:
        return ()
    single = isinstance(items, (str, Evidence)) or hasattr(items, "page_content")
    if not single and not isinstance(items, Iterable):
        raise ConfigError(f"evidence must be a sequence of texts or documents, got {items!r}")
    passages = (_passage(item) for item in ([items] if single else items))
    return tuple(passage for passage in passages if passage.text.strip())


def _passage(item: Any) -> Evidence:
    if isinstance(item, Evidence):
        return item
    if isinstance(item, str):
        return Evidence(item)
    text = getattr(item, "page_content", None)
    if not isinstance(text, str):
        raise ConfigError(
            f"evidence must be texts, Evidence or documents with page_content, got {item!r:.80}"
        )
    metadata = getattr(item, "metadata", None)
    source = metadata.get("source", "") if isinstance(metadata, Mapping) else ""
    return Evidence(text, str(source or ""), str(getattr(item, "id", None) or ""))
