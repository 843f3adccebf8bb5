"""One generation on the engine: from fields and prompt to text, and then to what it came to."""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from langchain_core.vectorstores import VectorStore
from msi_scorers.embedders import INSTALL, find_embedder, is_installed
from msi_scorers.held import held_to_evidence, held_to_prompt

from langchain_msi.errors import OutOfTimeError, translated
from langchain_msi.fields import MSIFields, as_factory
from langchain_msi.vectors import embeddings_of, with_stored_vectors
from msi_engine import DecodeConfig, Engine, Evidence, Generation, errors
from msi_engine.errors import DecodeError, PromptError
from msi_engine.events import Committed, Event
from msi_engine.model import Progress
from msi_engine.prompt import Chat, Prompt, encode_prompt, why_no_tools
from msi_engine.service import ENGINE_THREAD
from msi_engine.toolcalls import Piece, Reader, TextReader
from msi_engine.trace import Trace

T = TypeVar("T")

_LOG = logging.getLogger("langchain_msi")


@dataclass
class Run:
    """A generation that is started by iterating over its text.

    Attributes:
        prompt: Text or messages.
        fields: The model with every option in force.
        evidence: Passages for the scorers.
        is_brought: Whether the evidence came along with a tool's answer: then it does without
            effect where no embedder is installed.
        engine_options: What else `Engine.stream` is given.
        make_reader: From the model's tokenizer to what reads the answer; None for plain text.
    """

    prompt: Prompt
    fields: MSIFields
    evidence: tuple[Evidence, ...] = ()
    is_brought: bool = False
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    make_reader: Callable[[Any], Reader] | None = None
    _reader: Reader = field(default_factory=TextReader)
    _trace: Trace | None = None
    _begun: float = field(default_factory=time.monotonic)

    def texts(self) -> Generator[str]:
        """Text as it becomes final; closing the iterator gives the generation up.

        Raises:
            MSIError: As LangChain's kinds of error, see `langchain_msi.errors`.
        """
        running = ENGINE_THREAD.stream(self._events, self._until)
        with translated(), self._in_time(), contextlib.closing(running) as events:
            for event in events:
                if text := self._take(event):
                    yield text

    async def atexts(self) -> AsyncGenerator[str]:
        """`texts` for an event loop; cancelling the task gives the generation up."""
        with translated(), self._in_time():
            running = ENGINE_THREAD.astream(self._events, self._until)
            async with contextlib.aclosing(running) as events:
                async for event in events:
                    if text := self._take(event):
                        yield text

    def pieces(self) -> Generator[Piece]:
        """`texts`, with the calls of tools told apart."""
        with contextlib.closing(self.texts()) as texts:
            for text in texts:
                yield from self._reader.push(text)
        yield from self._reader.finish(cut=self.generation.finish_reason != "eos")

    async def apieces(self) -> AsyncGenerator[Piece]:
        """`pieces` for an event loop."""
        async with contextlib.aclosing(self.atexts()) as texts:
            async for text in texts:
                for piece in self._reader.push(text):
                    yield piece
        for piece in self._reader.finish(cut=self.generation.finish_reason != "eos"):
            yield piece

    @property
    def generation(self) -> Generation:
        """What it came to, once the text has ended.

        Raises:
            DecodeError: If it has not.
        """
        if self._trace is None:
            raise DecodeError("the generation has not begun")
        return Generation.of(self._trace)

    @property
    def _until(self) -> float | None:
        limit = self.fields.timeout
        return None if limit is None else self._begun + limit

    @contextlib.contextmanager
    def _in_time(self) -> Iterator[None]:
        """Say which limit it was, whoever noticed that the time is over."""
        try:
            yield
        except errors.OutOfTimeError:
            limit = self.fields.timeout
            raise OutOfTimeError(
                f"the answer was not finished within timeout = {limit:g} s"
            ) from None

    def _take(self, event: Event) -> str:
        if self._until is not None and time.monotonic() > self._until:
            raise errors.OutOfTimeError("the time given for it was over")
        if self._trace is not None:
            self._trace.record(event)
        return event.text if isinstance(event, Committed) else ""

    def _events(self) -> Generator[Event]:
        """The generation, on the engine thread: loading takes a while, and waits its turn once."""
        engine, options = self._prepared()
        yield from engine.stream(self.prompt, **options)

    def _prepared(self) -> tuple[Engine, dict[str, Any]]:
        """The engine, and its keyword arguments."""
        fields = self.fields
        engine = Engine.load(fields.model, log_progress, trust_remote_code=fields.trust_remote_code)
        evidence, embedder = self.evidence, fields.embedder
        if isinstance(embedder, VectorStore):
            evidence = with_stored_vectors(evidence, embedder)
            embedder = embeddings_of(embedder)
        config = self._held(fields.decode_config())
        compares = config.k > 1 and (config.scorers or config.effective_collapse == "mbr")
        embedder = find_embedder(embedder) if embedder is not None and compares else None
        self._trace = Trace(engine.model_name, config)
        if self.make_reader is not None and why_no_tools(engine.tokenizer) is None:
            self._reader = self.make_reader(engine.tokenizer)
        return engine, {
            "config": config,
            "scorer_factories": {n: as_factory(s) for n, s in fields.custom_scorers.items()},
            "evidence": evidence,
            "embedder": embedder,
            **self.engine_options,
        }

    def _held(self, config: DecodeConfig) -> DecodeConfig:
        """The options, with `rag` where there is evidence and no scorer was named."""
        if not self.evidence:
            has_embedder = self.fields.embedder is not None
            return held_to_prompt(config, self.prompt, has_embedder=has_embedder)
        held = held_to_evidence(config)
        if held is config or not self.is_brought or self.fields.embedder is not None:
            return held
        if is_installed():
            return held
        warnings.warn(
            "no embedder is installed, so the answer is not held to the tool's documents; "
            f"{INSTALL}, or give `embedder`",
            stacklevel=2,
        )
        return config


def log_progress(progress: Progress) -> None:
    """Tell the log of this package what a first use fetches and converts."""
    if progress.done == 0:
        _LOG.info("%s", progress.stage)


def token_ids(fields: MSIFields, text: str) -> list[int]:
    """The tokens of a text, by the model's own tokenizer."""
    return _asked(fields, lambda engine: engine.tokenizer.encode(text, add_special_tokens=False))


def num_prompt_tokens(fields: MSIFields, prompt: Prompt) -> int:
    """The tokens that a prompt has as the model reads it, the chat template's included.

    Parts of a conversation are counted, too, although no template lays them out: whoever shortens
    one asks for the system message alone, say. Then what stands around the turns of a short
    conversation is taken for what stands around each message.
    """

    def count(engine: Engine) -> int:
        def tokens(prompt: Prompt) -> int:
            return len(encode_prompt(engine.tokenizer, prompt).tokens)

        try:
            return tokens(prompt)
        except PromptError:
            if isinstance(prompt, str):
                raise
            messages: Any = prompt.messages if isinstance(prompt, Chat) else prompt
            own = [len(engine.tokenizer.encode(m["content"])) for m in messages]
            question, answer = ({"role": r, "content": "a"} for r in ("user", "assistant"))
            turn = tokens([question, answer, question]) - tokens([question])
            return sum(own) + len(own) * (turn // 2 - 1)

    return _asked(fields, count)


def _asked(fields: MSIFields, ask: Callable[[Engine], T]) -> T:
    """What a tokenizer says. On the engine thread, which uses it at the same time."""

    def answer() -> T:
        return ask(Engine.load(fields.model, trust_remote_code=fields.trust_remote_code))

    with translated():
        return ENGINE_THREAD.call(answer)
