"""`MSILLM`: MSI behind LangChain's interface for text models."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseLLM, LangSmithParams, LanguageModelInput
from langchain_core.outputs import Generation as TextGeneration
from langchain_core.outputs import GenerationChunk, LLMResult
from langchain_core.runnables import Runnable, RunnableConfig
from pydantic import Field

from langchain_msi.errors import translated
from langchain_msi.fields import MSIFields, refuse_unknown
from langchain_msi.metadata import ls_params, metadata_of, usage_of
from langchain_msi.run import Run, token_ids

_COUNTS = ("input_tokens", "output_tokens", "total_tokens")


class MSILLM(MSIFields, BaseLLM):
    """Text model that keeps K paths open until the sentence ends, on your own machine.

    `ChatMSI` takes messages as messages, and its answers carry usage and metadata; take this one
    where a chain expects text in and text out.

    Setup:
        ```bash
        pip install "llm-msi[langchain]"         # and [rag] for an embedder that works offline
        ```

    Key init args:
        model: A Hugging Face repository or local folder in MLX format, an alias made by
            ``llm msi pull``, or ``embedded``; None is the configured default.
        k: Parallel paths; 1 is ordinary decoding.
        max_tokens: Most tokens to generate.
        temperature: Sampling temperature; 0 is greedy.
        stop: Strings that end the answer.
        scorers: Scorers by name, with their weights.
        evidence: Documents that the scorers hold the answer to.
        raw: Give the model the prompt as it is. Otherwise it is the message of a user, laid out
            by the model's chat template.

        All that `ChatMSI` says of further options holds here.

    Instantiate:
        ```python
        from langchain_msi import MSILLM

        llm = MSILLM(k=4, max_tokens=64)
        ```

    Invoke:
        ```python
        llm.invoke("Why is the sky blue?")
        MSILLM(raw=True, max_tokens=8).invoke("The capital of France is")
        ```

    Stream:
        ```python
        for text in llm.stream("Why is the sky blue?"):
            print(text, end="", flush=True)
        ```

    Async:
        ```python
        await llm.ainvoke("Why is the sky blue?")
        # await llm.abatch([...]); async for text in llm.astream(...): ...
        ```
    """

    model_config = MSIFields.model_config  # LangChain's class, the last base, has another

    raw: bool = Field(False, description="Give the model the prompt as it is")

    @property
    def _llm_type(self) -> str:
        return "msi"

    def _own_params(self) -> dict[str, Any]:
        return {"raw": True} if self.raw else {}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return ls_params(self, "llm", stop, kwargs)

    def get_token_ids(self, text: str) -> list[int]:
        """The tokens of a text, by the model's own tokenizer; this loads the model."""
        if self.custom_get_token_ids is not None:
            return self.custom_get_token_ids(text)
        return token_ids(self, text)

    # LangChain's cache, and its traces, look at a text model's fields alone, not at the options
    # of a call. So a call's options become fields of a copy, which then takes the call.

    def generate(
        self, prompts: list[str], stop: list[str] | None = None, *args: Any, **kwargs: Any
    ) -> LLMResult:
        """See ``BaseLLM``."""
        tuned, rest = self.tuned(stop, kwargs)
        return BaseLLM.generate(tuned, prompts, tuned._stops(), *args, **rest)

    async def agenerate(
        self, prompts: list[str], stop: list[str] | None = None, *args: Any, **kwargs: Any
    ) -> LLMResult:
        """See ``BaseLLM``."""
        tuned, rest = self.tuned(stop, kwargs)
        return await BaseLLM.agenerate(tuned, prompts, tuned._stops(), *args, **rest)

    def stream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> Iterator[str]:
        """See ``BaseLLM``."""
        tuned, rest = self.tuned(stop, kwargs)
        yield from BaseLLM.stream(tuned, input, config, stop=tuned._stops(), **rest)

    async def astream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[str]:
        """See ``BaseLLM``."""
        tuned, rest = self.tuned(stop, kwargs)
        texts = BaseLLM.astream(tuned, input, config, stop=tuned._stops(), **rest)
        async for text in texts:
            yield text

    # Prompt by prompt, each with callbacks and errors of its own: the engine runs one generation
    # after the other anyway.

    def batch(
        self,
        inputs: list[LanguageModelInput],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[str]:
        """See ``Runnable``."""
        return Runnable.batch(self, inputs, config, return_exceptions=return_exceptions, **kwargs)

    async def abatch(
        self,
        inputs: list[LanguageModelInput],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[str]:
        """See ``Runnable``."""
        return await Runnable.abatch(
            self, inputs, config, return_exceptions=return_exceptions, **kwargs
        )

    def _stops(self) -> list[str] | None:
        return list(self.stop) or None

    def _run(self, prompt: str, stop: Sequence[str] | None, options: dict[str, Any]) -> Run:
        """The generation that a call asks for.

        Raises:
            MSIError: If an option cannot be used.
        """
        tuned, rest = self.tuned(stop, options)
        with translated():
            refuse_unknown(rest, type(self).model_fields)
        told = prompt if tuned.raw else [{"role": "user", "content": prompt}]
        return Run(told, tuned, tuned.passages or ())

    def _generate(
        self,
        prompts: list[str],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> LLMResult:
        runs = [self._run(prompt, stop, kwargs) for prompt in prompts]
        manager = run_manager if len(runs) == 1 else None  # it is the first prompt's alone
        for run in runs:
            for text in run.texts():
                if manager is not None:
                    manager.on_llm_new_token(text, chunk=GenerationChunk(text=text))
        return _result(runs)

    async def _agenerate(
        self,
        prompts: list[str],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> LLMResult:
        runs = [self._run(prompt, stop, kwargs) for prompt in prompts]
        manager = run_manager if len(runs) == 1 else None
        for run in runs:
            async with contextlib.aclosing(run.atexts()) as texts:
                async for text in texts:
                    if manager is not None:
                        await manager.on_llm_new_token(text, chunk=GenerationChunk(text=text))
        return _result(runs)

    def _stream(
        self,
        prompt: str,
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[GenerationChunk]:
        run = self._run(prompt, stop, kwargs)
        with contextlib.closing(run.texts()) as texts:
            for text in texts:
                chunk = GenerationChunk(text=text)
                if run_manager is not None:
                    run_manager.on_llm_new_token(text, chunk=chunk)
                yield chunk
        yield GenerationChunk(text="", generation_info=_info(run))

    async def _astream(
        self,
        prompt: str,
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[GenerationChunk]:
        run = self._run(prompt, stop, kwargs)
        async with contextlib.aclosing(run.atexts()) as texts:
            async for text in texts:
                chunk = GenerationChunk(text=text)
                if run_manager is not None:
                    await run_manager.on_llm_new_token(text, chunk=chunk)
                yield chunk
        yield GenerationChunk(text="", generation_info=_info(run))


def _info(run: Run) -> dict[str, Any]:
    generation = run.generation
    usage = dict(usage_of(generation))
    return {
        **metadata_of(generation, with_trace=run.fields.include_trace),
        "token_usage": {key: usage[key] for key in _COUNTS},
    }


def _result(runs: Sequence[Run]) -> LLMResult:
    infos = [_info(run) for run in runs]
    generations = [
        [TextGeneration(text=run.generation.text, generation_info=info)]
        for run, info in zip(runs, infos, strict=True)
    ]
    totals = {key: sum(info["token_usage"][key] for info in infos) for key in _COUNTS}
    name = infos[0]["model_name"] if infos else None
    return LLMResult(
        generations=generations, llm_output={"token_usage": totals, "model_name": name}
    )
