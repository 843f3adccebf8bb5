"""`MSIEmbeddings`: the embedders of MSI's scorers behind LangChain's interface."""

from __future__ import annotations

from typing import Any

from langchain_core.embeddings import Embeddings
from msi_scorers.embedders import NONE_INSTALLED, find_embedder, is_installed

from langchain_msi.errors import translated
from msi_engine import Embedder
from msi_engine.errors import ConfigError


class MSIEmbeddings(Embeddings):
    """Embeddings for a vector store that work offline, and share their model with the scorers.

    By default all-MiniLM-L6-v2 as it comes with the extra ``rag``; it is loaded by the first text.

    Args:
        model: None, or another embedder by name: a sentence-transformers model, its folder,
            ``onnx:NAME`` or ``onnx:FOLDER``, its ONNX form, or ``llm:NAME``, an embedding model
            of `llm`; or an `msi_engine.Embedder` itself.

    Raises:
        ValueError: If ``model`` is None and the extra ``rag`` is not installed.

    Example:
        ```python
        from langchain_core.vectorstores import InMemoryVectorStore

        store = InMemoryVectorStore.from_documents(documents, MSIEmbeddings())
        llm = ChatMSI(embedder=store)  # the scorers use the vectors of the store again
        ```
    """

    def __init__(self, model: str | Embedder | None = None) -> None:
        if model is None and not is_installed():
            with translated():
                raise ConfigError(NONE_INSTALLED)
        self.model = model

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """A vector for each text."""
        return self._vectors(texts) if texts else []

    def embed_query(self, text: str) -> list[float]:
        """The vector of a text."""
        return self._vectors([text])[0]

    def _vectors(self, texts: list[str]) -> list[list[float]]:
        with translated():
            vectors: Any = find_embedder(self.model).embed(texts).tolist()
        return vectors  # type: ignore[no-any-return]
