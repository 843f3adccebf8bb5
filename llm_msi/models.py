"""The models that `llm` sees: `msi`, the default model, and `msi/ALIAS`, sync and async."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any

import llm
from llm.parts import StreamEvent

from llm_msi.messages import ATTACHMENT_TYPES

if TYPE_CHECKING:
    from llm_msi.options import MSIOptions
    from llm_msi.task import Conversation, Task


class _LazyOptions:
    """The options class, built on first use: building it imports the engine's configuration."""

    def __get__(self, instance: object, owner: type) -> type[MSIOptions]:
        from llm_msi.options import Options

        return Options


class _Shared:
    """What the sync and the async model have in common."""

    can_stream = True
    supports_schema = True
    supports_tools = True  # known when the model is; one that has none is refused by name
    attachment_types: set[str] | frozenset[str] = ATTACHMENT_TYPES
    Options: Any = _LazyOptions()

    def __init__(self, alias: str | None = None) -> None:
        self.alias = alias
        self.model_id = f"msi/{alias}" if alias else "msi"

    def __str__(self) -> str:
        return f"MSI: {self.model_id}"

    def _prepare(self, prompt: llm.Prompt, conversation: Conversation) -> Task:
        """All that can go wrong before the first token; see `llm_msi.task`."""
        from llm_msi.task import prepare

        return prepare(self.alias, prompt, conversation)


class MSI(_Shared, llm.Model):
    """MSI behind `llm`'s synchronous interface."""

    def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.Response,
        conversation: llm.Conversation | None,
    ) -> Iterator[str | StreamEvent]:
        """Generate; closing the iterator (Ctrl-C) cancels the generation in the engine.

        Raises:
            llm.ModelError: With one line, before anything is yielded wherever that can be known.
        """
        from llm_msi.loading import translated

        with translated():
            task = self._prepare(prompt, conversation)
            answer = task.answer
            running = task.engine.stream(task.prompt, task.config, **task.signals)
            with answer.waiting(), closing(running) as events:
                for event in events:
                    yield from answer.take(event)
        answer.report(response)


class AsyncMSI(_Shared, llm.AsyncModel):
    """MSI behind `llm`'s asynchronous interface; the event loop is never blocked."""

    async def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.AsyncResponse,
        conversation: llm.AsyncConversation | None,
    ) -> AsyncGenerator[str | StreamEvent, None]:
        """Generate; closing the iterator cancels the generation in the engine.

        Raises:
            llm.ModelError: With one line, before anything is yielded wherever that can be known.
        """
        from llm_msi.loading import translated

        with translated():
            task = await asyncio.to_thread(self._prepare, prompt, conversation)
            answer = task.answer
            running = task.engine.astream(task.prompt, task.config, **task.signals)
            async with aclosing(running) as events:
                with answer.waiting():
                    async for event in events:
                        for item in answer.take(event):
                            yield item
        answer.report(response)
