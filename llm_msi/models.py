"""The models that `llm` sees: `msi`, the default model, and `msi/ALIAS`, sync and async."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any

import llm
from llm.parts import StreamEvent

from llm_msi.messages import ATTACHMENT_TYPES, chat_messages

if TYPE_CHECKING:
    from llm_msi.grounding import Grounding
    from llm_msi.options import MSIOptions
    from msi_engine import Engine, JsonSchema


class _LazyOptions:
    """The options class, built on first use: building it imports the engine's configuration."""

    def __get__(self, instance: object, owner: type) -> type[MSIOptions]:
        from llm_msi.options import Options

        return Options


class _Shared:
    """What the sync and the async model have in common."""

    can_stream = True
    supports_schema = True
    attachment_types: set[str] | frozenset[str] = ATTACHMENT_TYPES
    Options: Any = _LazyOptions()

    def __init__(self, alias: str | None = None) -> None:
        self.alias = alias
        self.model_id = f"msi/{alias}" if alias else "msi"

    def __str__(self) -> str:
        return f"MSI: {self.model_id}"

    def _prepare(self, prompt: llm.Prompt) -> tuple[Engine, Grounding, JsonSchema | None]:
        """All that can go wrong before the first token: options, schema, documents, model."""
        from llm_msi.grounding import ground
        from llm_msi.loading import load_engine, load_target
        from llm_msi.options import decode_config
        from llm_msi.schema import constraint_of

        config = decode_config(prompt.options)
        constraint = constraint_of(prompt)
        grounding = ground(prompt, config, chat_messages(prompt.messages))
        engine = load_engine(self.alias)
        load_target(engine, grounding.config)
        return engine, grounding, constraint


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
        from llm_msi.answer import Answer
        from llm_msi.loading import translated
        from llm_msi.options import wants_trace

        with translated():
            engine, given, constraint = self._prepare(prompt)
            shows = wants_trace(prompt.options)
            answer = Answer(engine.model_name, given, constraint, show_paths=shows)
            told = {**given.signals(), "constraint": constraint}
            running = engine.stream(given.messages, given.config, **told)
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
        from llm_msi.answer import Answer
        from llm_msi.loading import translated
        from llm_msi.options import wants_trace

        with translated():
            engine, given, constraint = await asyncio.to_thread(self._prepare, prompt)
            shows = wants_trace(prompt.options)
            answer = Answer(engine.model_name, given, constraint, show_paths=shows)
            told = {**given.signals(), "constraint": constraint}
            running = engine.astream(given.messages, given.config, **told)
            async with aclosing(running) as events:
                with answer.waiting():
                    async for event in events:
                        for item in answer.take(event):
                            yield item
        answer.report(response)
