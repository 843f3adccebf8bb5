"""Questions about MSI's own documentation, answered from it. Runs offline.

pip install "llm-msi[langchain,rag]"
python examples/langchain/rag.py "What is a collapse?"
pip install langchain-community faiss-cpu    # or langchain-chroma
python examples/langchain/rag.py --store faiss "What is a collapse?"

The passages that are found go into the prompt and to the scorers: of the sentences that the model
could go on with, the one nearest to a passage is taken. The scorers use the vectors of the store.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

from langchain_msi import ChatMSI, MSIEmbeddings, grounded

DOCS = Path(__file__).parents[2] / "docs"
PROMPT = ChatPromptTemplate.from_messages(
    [
        ("system", "Answer in one or two sentences, from these passages:\n\n{context}"),
        ("human", "{question}"),
    ]
)


def read_documents(folder: Path) -> list[Document]:
    """The Markdown files of a folder in passages of at most 600 characters."""
    from semantic_text_splitter import MarkdownSplitter

    splitter = MarkdownSplitter(600)
    return [
        Document(passage, metadata={"source": path.name})
        for path in sorted(folder.glob("*.md"))
        for passage in splitter.chunks(path.read_text(encoding="utf-8"))
    ]


def make_store(kind: str, documents: list[Document], embeddings: Embeddings) -> VectorStore:
    """A vector store in memory, Chroma's or FAISS's."""
    if kind == "chroma":
        from langchain_chroma import Chroma

        return Chroma.from_documents(documents, embeddings)
    if kind == "faiss":
        from langchain_community.vectorstores import FAISS

        return FAISS.from_documents(documents, embeddings)
    return InMemoryVectorStore.from_documents(documents, embeddings)


def make_chain(store: VectorStore, max_tokens: int = 96) -> Runnable[str, str]:
    """From a question to an answer."""
    retriever = store.as_retriever(search_kwargs={"k": 3})
    # Small models repeat themselves; the penalty keeps them from it.
    llm = ChatMSI(
        k=4,
        max_tokens=max_tokens,
        repetition_penalty=1.1,
        repetition_context_size=64,
        embedder=store,
    )
    return (
        {"context": retriever, "question": RunnablePassthrough()}
        | grounded(PROMPT, llm)
        | StrOutputParser()
    )


def main() -> None:
    """Answer the question on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("question")
    parser.add_argument("--store", choices=["memory", "chroma", "faiss"], default="memory")
    arguments = parser.parse_args()
    try:
        embeddings = MSIEmbeddings()
        store = make_store(arguments.store, read_documents(DOCS), embeddings)
    except ImportError as error:
        needed = {"chroma": "langchain-chroma", "faiss": "langchain-community faiss-cpu"}
        package = needed.get(arguments.store, '"llm-msi[rag]"')
        sys.exit(f"{error}; pip install {package}")
    except ValueError as error:
        sys.exit(str(error))
    for text in make_chain(store).stream(arguments.question):
        print(text, end="", flush=True)
    print()


if __name__ == "__main__":
    main()
