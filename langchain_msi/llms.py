"""`MSILLM`: MSI behind LangChain's interface for text models."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseLLM
from langchain_core.outputs import Generation as TextGeneration
from langchain_core.outputs import GenerationChunk, LLMResult
from pydantic import ConfigDict

from langchain_msi.fields import MSIFields, refuse_unknown
from langchain_msi.metadata import metadata_of
from langchain_msi.run import Run
from msi_engine.evidence import as_evidence


class MSILLM(MSIFields, BaseLLM):
    """Text model that keeps K paths open until the sentence ends, on your own machine."""

    model_config = ConfigDict(
        frozen=False, extra="forbid", arbitrary_types_allowed=True, protected_namespaces=()
    )

    raw: bool = False

    @property
    def _llm_type(self) -> str:
        return "msi"

    def _run(self, prompt: str, stop: Sequence[str] | None, options: dict[str, Any]) -> Run:
        tuned, rest = self.tuned(stop, options)
        refuse_unknown(rest, type(self).model_fields)
        told = prompt if tuned.raw else [{"role": "user", "content": prompt}]
        return Run(told, tuned, as_evidence(tuned.evidence))

    def _generate(
        self,
        prompts: list[str],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> LLMResult:
        generations = []
        for prompt in prompts:
            run = self._run(prompt, stop, kwargs)
            with contextlib.closing(run.texts()) as texts:
                for _ in texts:
                    pass
            done = run.generation
            generations.append([TextGeneration(text=done.text, generation_info=metadata_of(done))])
        return LLMResult(generations=generations)

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
                yield GenerationChunk(text=text)
        yield GenerationChunk(text="", generation_info=metadata_of(run.generation))
