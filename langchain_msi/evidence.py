"""Documents on their way to the scorers: found in a conversation, or bound inside a chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough

from langchain_msi.errors import translated
from langchain_msi.inputs import check_keys
from msi_engine import Evidence
from msi_engine.evidence import as_evidence


def evidence_of(messages: Sequence[BaseMessage]) -> tuple[Evidence, ...]:
    """The documents that tools have brought for the question that is being answered.

    They are the artifacts of the tool messages after the last human one, as retriever tools with
    ``response_format="content_and_artifact"`` leave them.
    """
    asked = [i for i, message in enumerate(messages) if isinstance(message, HumanMessage)]
    recent = messages[asked[-1] + 1 if asked else 0 :]
    brought = [message.artifact for message in recent if isinstance(message, ToolMessage)]
    return as_evidence([document for artifact in brought for document in _documents(artifact)])


def _documents(artifact: Any) -> list[Document]:
    if isinstance(artifact, Document):
        return [artifact]
    if not isinstance(artifact, (list, tuple)):
        return []
    return [item for item in artifact if isinstance(item, Document)]


def grounded(
    prompt: Runnable[dict[str, Any], Any],
    llm: Runnable[LanguageModelInput, Any],
    documents_key: str = "context",
) -> Runnable[dict[str, Any], Any]:
    """A prompt and a model, with the documents among the prompt's inputs given to the scorers.

    Where the prompt has the variable, too, it is filled with the documents' texts.

    Args:
        prompt: Takes a mapping; a chat or text prompt template.
        llm: `ChatMSI` or `MSILLM`, also with options bound, or as structured output.
        documents_key: Under which the documents are.

    Example:
        ```python
        chain = (
            {"context": retriever, "question": RunnablePassthrough()}
            | grounded(prompt, ChatMSI())
            | StrOutputParser()
        )
        ```
    """

    def answer(inputs: dict[str, Any]) -> Runnable[dict[str, Any], Any]:
        with translated():
            check_keys("grounded", inputs, documents_key)
            passages = as_evidence(inputs[documents_key])
        text = "\n\n".join(passage.text for passage in passages)
        told = RunnablePassthrough.assign(**{documents_key: lambda _: text})
        return told | prompt | llm.bind(evidence=passages)

    return RunnableLambda(answer).with_config(run_name="grounded")
