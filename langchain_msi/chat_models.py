"""`ChatMSI`: MSI behind LangChain's interface for chat models."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import ConfigDict

from langchain_msi.fields import MSIFields, refuse_unknown
from langchain_msi.messages import engine_messages
from langchain_msi.metadata import metadata_of, usage_of
from langchain_msi.run import Run
from msi_engine import Generation
from msi_engine.evidence import as_evidence


class ChatMSI(MSIFields, BaseChatModel):
    """Chat model that keeps K paths open until the sentence ends, on your own machine."""

    model_config = ConfigDict(
        frozen=False, extra="forbid", arbitrary_types_allowed=True, protected_namespaces=()
    )

    streaming: bool = False

    @property
    def _llm_type(self) -> str:
        return "msi-chat"

    def _run(
        self, messages: Sequence[BaseMessage], stop: Sequence[str] | None, options: dict[str, Any]
    ) -> Run:
        """The generation that a call asks for.

        Raises:
            MSIError: If an option or a message cannot be used.
        """
        tuned, rest = self.tuned(stop, options)
        refuse_unknown(set(rest) - {"stream"}, type(self).model_fields)
        return Run(engine_messages(messages), tuned, as_evidence(tuned.evidence))

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        run = self._run(messages, stop, kwargs)
        with contextlib.closing(run.texts()) as texts:
            for _ in texts:
                pass
        return _result(run.generation)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        run = self._run(messages, stop, kwargs)
        async with contextlib.aclosing(run.atexts()) as texts:
            async for _ in texts:
                pass
        return _result(run.generation)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        run = self._run(messages, stop, kwargs)
        with contextlib.closing(run.texts()) as texts:
            for text in texts:
                yield ChatGenerationChunk(message=AIMessageChunk(content=text))
        yield _last_chunk(run.generation)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        run = self._run(messages, stop, kwargs)
        async with contextlib.aclosing(run.atexts()) as texts:
            async for text in texts:
                yield ChatGenerationChunk(message=AIMessageChunk(content=text))
        yield _last_chunk(run.generation)


def _result(generation: Generation) -> ChatResult:
    message = AIMessage(
        content=generation.text,
        response_metadata=metadata_of(generation),
        usage_metadata=usage_of(generation),
    )
    return ChatResult(generations=[ChatGeneration(message=message)])


def _last_chunk(generation: Generation) -> ChatGenerationChunk:
    """All that is no text, once: chunks are merged by adding up what they carry."""
    message = AIMessageChunk(
        content="",
        response_metadata=metadata_of(generation),
        usage_metadata=usage_of(generation),
        chunk_position="last",
    )
    return ChatGenerationChunk(message=message)
