"""One generation on the engine: from fields and prompt to text, and then to what it came to."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_msi.errors import OutOfTimeError, translated
from langchain_msi.fields import MSIFields, as_factory
from msi_engine import Engine, Evidence, Generation
from msi_engine.errors import DecodeError
from msi_engine.events import Committed, Event
from msi_engine.model import Progress
from msi_engine.service import ENGINE_THREAD
from msi_engine.trace import Trace

if TYPE_CHECKING:
    from msi_engine.prompt import Prompt

_LOG = logging.getLogger("langchain_msi")


@dataclass
class Run:
    """A generation that is started by iterating over its text.

    Attributes:
        prompt: Text or messages.
        fields: The model with every option in force.
        evidence: Passages for the scorers.
        engine_options: What else `Engine.stream` is given.
    """

    prompt: Prompt
    fields: MSIFields
    evidence: tuple[Evidence, ...] = ()
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    _trace: Trace | None = None
    _begun: float = field(default_factory=time.monotonic)

    def texts(self) -> Generator[str]:
        """Text as it becomes final; closing the iterator gives the generation up.

        Raises:
            MSIError: As LangChain's kinds of error, see `langchain_msi.errors`.
        """
        with translated():
            engine, options = ENGINE_THREAD.call(self._prepared)
            with contextlib.closing(engine.stream(self.prompt, **options)) as events:
                for event in events:
                    if text := self._take(event):
                        yield text

    async def atexts(self) -> AsyncGenerator[str]:
        """`texts` for an event loop; cancelling the task gives the generation up."""
        with translated():
            engine, options = await self._aprepared()
            async with contextlib.aclosing(engine.astream(self.prompt, **options)) as events:
                async for event in events:
                    if text := self._take(event):
                        yield text

    @property
    def generation(self) -> Generation:
        """What it came to, once the text has ended.

        Raises:
            DecodeError: If it has not.
        """
        if self._trace is None:
            raise DecodeError("the generation has not begun")
        return Generation.of(self._trace)

    def _take(self, event: Event) -> str:
        limit = self.fields.timeout
        if limit is not None and time.monotonic() - self._begun > limit:
            raise OutOfTimeError(f"the answer was not finished within timeout = {limit:g} s")
        if self._trace is not None:
            self._trace.record(event)
        return event.text if isinstance(event, Committed) else ""

    def _prepared(self) -> tuple[Engine, dict[str, Any]]:
        """The engine, and its keyword arguments. On the engine thread: loading takes a while."""
        fields = self.fields
        engine = Engine.load(fields.model, log_progress, trust_remote_code=fields.trust_remote_code)
        config = fields.decode_config()
        self._trace = Trace(engine.model_name, config)
        factories = {name: as_factory(s) for name, s in fields.custom_scorers.items()}
        return engine, {
            "config": config,
            "scorer_factories": factories,
            "evidence": self.evidence,
            **self.engine_options,
        }

    async def _aprepared(self) -> tuple[Engine, dict[str, Any]]:
        def once() -> Generator[tuple[Engine, dict[str, Any]]]:
            yield self._prepared()

        prepared = [value async for value in ENGINE_THREAD.astream(once)]
        return prepared[0]


def log_progress(progress: Progress) -> None:
    """Tell the log of this package what a first use fetches and converts."""
    if progress.done == 0:
        _LOG.info("%s", progress.stage)
