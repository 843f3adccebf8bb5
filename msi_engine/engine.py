"""The engine: a model in memory that generates, from any thread or event loop.

Importing this module imports no MLX; loading a model does.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from msi_engine.config import DecodeConfig
from msi_engine.errors import ConfigError
from msi_engine.events import Event
from msi_engine.evidence import Embedder, as_evidence
from msi_engine.generation import Generation
from msi_engine.grammar import JsonSchema
from msi_engine.model import LoadedModel, OnProgress, load_model, resolve
from msi_engine.model.progress import ignore_progress
from msi_engine.request import Request
from msi_engine.scorer import ScorerFactory
from msi_engine.service import ENGINE_THREAD
from msi_engine.trace import Trace

if TYPE_CHECKING:
    from msi_engine.model.resolve import ResolvedModel
    from msi_engine.model.store import Part
    from msi_engine.opinions import Opinion
    from msi_engine.prompt import Prompt
    from msi_engine.stepping import LogitsProcessor

_Place = tuple[Path | None, Path | None, Path | None]  # in use, of the draft, of the target


class Engine:
    """A model that is in memory. `load` gives the process's own instance for a model.

    Every method may be called from any thread. Generations run one after the other, in the order
    of arrival, on the engine thread.

    Args:
        loaded: The model.
        trust_remote_code: Let the Python code of a target run, as the model's own was let.
    """

    # A folder that is part of a pair, and loaded by itself, has no target: another key.
    _shared: ClassVar[dict[tuple[_Place, bool], Engine]] = {}

    def __init__(self, loaded: LoadedModel, *, trust_remote_code: bool = False) -> None:
        from msi_engine.held import HeldModel  # after the backend is prepared: imports MLX

        self._held = HeldModel(loaded, trust_remote_code=trust_remote_code)

    @classmethod
    def load(
        cls,
        name: str | None = None,
        on_progress: OnProgress | None = None,
        *,
        trust_remote_code: bool = False,
    ) -> Engine:
        """The engine of a model, loaded on first use and shared from then on.

        Args:
            name: A local folder in MLX format, a Hugging Face repository, an alias, or
                ``embedded``; None is the configured default, and ``embedded`` where none is.
            on_progress: Told of downloads, conversions and loading.
            trust_remote_code: Let the model's own Python code run.

        Raises:
            ModelError: If the model cannot be found, read or used.
            DownloadError: If it has to be fetched and cannot be.
        """

        def load() -> Engine:
            found = resolve(name)
            if (_place(found), trust_remote_code) not in cls._shared:
                tell = ENGINE_THREAD.while_wanted(on_progress or ignore_progress)
                engine = cls._beside(found, trust_remote_code)
                if engine is None:
                    loaded = load_model(name, tell, trust_remote_code=trust_remote_code)
                    engine = cls(loaded, trust_remote_code=trust_remote_code)
                    found = resolve(name)  # fetched by now
                cls._shared[_place(found), trust_remote_code] = engine
            return cls._shared[_place(found), trust_remote_code]

        return ENGINE_THREAD.call(load)

    @classmethod
    def _beside(cls, found: ResolvedModel, trust_remote_code: bool) -> Engine | None:
        """An engine under another name on weights that are in memory, if they are."""
        for (place, trusts), other in cls._shared.items():
            if place[0] == found.path and trusts == trust_remote_code:
                engine = cls(other._held.loaded)
                engine._held = other._held.renamed(found.name)
                return engine
        return None

    def prepare(self, config: DecodeConfig, on_progress: OnProgress | None = None) -> None:
        """Load what a generation with these options needs beside the model: its target.

        Generating does that by itself; this is for those who want to see its progress.

        Raises:
            ModelError: If there is no target, or it does not fit the model.
            DownloadError: If it has to be fetched and cannot be.
        """
        if config.refine == "off":
            return
        tell = ENGINE_THREAD.while_wanted(on_progress or ignore_progress)
        ENGINE_THREAD.call(lambda: self._held.pair(config, tell))

    def opinions(
        self, prompt: Prompt, tokens: Sequence[int], config: DecodeConfig, *, of: Part = "draft"
    ) -> list[Opinion]:
        """What the draft or the target would write before each token of an answer.

        Args:
            prompt: What is answered; see `generate`.
            tokens: The answer's token ids.
            config: Names the target, as for a generation; ``refine`` may be off.
            of: Whose opinion.

        Raises:
            ModelError: If there is no target, or it does not fit the model.
            PromptError: If the prompt cannot be used.
        """
        return ENGINE_THREAD.call(lambda: self._held.opinions(prompt, tokens, config, of))

    def ends(self, config: DecodeConfig) -> frozenset[int]:
        """Tokens that end an answer with these options: with ``refine`` the target's, too.

        Raises:
            ModelError: If there is no target, or it does not fit the model.
        """
        return ENGINE_THREAD.call(lambda: self._held.ends(config))

    @property
    def model_name(self) -> str:
        """The name that the model was loaded by."""
        return self._held.loaded.name

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end an answer of the model by itself; see `ends`."""
        return self._held.loaded.eos_token_ids

    @property
    def context_length(self) -> int | None:
        """Most tokens of prompt and answer together; None if the model does not say."""
        return self._held.loaded.context_length

    @property
    def has_chat_template(self) -> bool:
        """True if messages are laid out by the model's own template."""
        return self._held.loaded.has_chat_template

    @property
    def tokenizer(self) -> Any:
        """mlx-lm's ``TokenizerWrapper``."""
        return self._held.loaded.tokenizer

    def generate(
        self,
        prompt: Prompt,
        config: DecodeConfig | None = None,
        *,
        logits_processors: Sequence[LogitsProcessor] = (),
        scorer_factories: Mapping[str, ScorerFactory] | None = None,
        evidence: Any = None,
        embedder: Embedder | None = None,
        constraint: JsonSchema | None = None,
        **options: Any,
    ) -> Generation:
        """Generate an answer.

        Args:
            prompt: Text (taken as it is), messages (laid out by the chat template), token ids, or
                messages with tools (`msi_engine.prompt.Chat`; read the answer's calls with
                `msi_engine.toolcalls.ToolReader`).
            config: The options; preset ``default`` if None.
            logits_processors: mlx-lm logits processors, run on every path. They must be functions
                of their arguments alone.
            scorer_factories: Scorers that no plugin has registered, by name; their weights come
                from the ``scorers`` option.
            evidence: Passages that scorers hold the answer to: texts, `msi_engine.Evidence`, or
                documents with ``page_content`` and ``metadata``. They do not enter the prompt.
            embedder: What embeds texts for the scorers and compares paths for collapse by `mbr`.
                None: a scorer that can find one does, and `mbr` takes chrF.
            constraint: A schema that the answer is held to at every token. A finish reason other
                than ``eos`` means that the answer was cut off before its JSON was complete.
            **options: Single options over ``config``.

        Raises:
            MSIError: One of its kinds, with one line that says what is wrong.
        """
        given = (logits_processors, scorer_factories, evidence, embedder, constraint)
        request = _request(prompt, _merged(config, options), *given)
        trace = Trace(self.model_name, request.config)
        for event in ENGINE_THREAD.stream(self._run(request)):
            trace.record(event)
        return Generation.of(trace)

    def stream(
        self,
        prompt: Prompt,
        config: DecodeConfig | None = None,
        *,
        logits_processors: Sequence[LogitsProcessor] = (),
        scorer_factories: Mapping[str, ScorerFactory] | None = None,
        evidence: Any = None,
        embedder: Embedder | None = None,
        constraint: JsonSchema | None = None,
        **options: Any,
    ) -> Generator[Event]:
        """Generate, event by event; closing the iterator gives the generation up.

        Arguments and errors are those of `generate`. Options are checked at once, the rest at the
        first event.
        """
        given = (logits_processors, scorer_factories, evidence, embedder, constraint)
        request = _request(prompt, _merged(config, options), *given)
        return ENGINE_THREAD.stream(self._run(request))

    async def agenerate(
        self,
        prompt: Prompt,
        config: DecodeConfig | None = None,
        *,
        logits_processors: Sequence[LogitsProcessor] = (),
        scorer_factories: Mapping[str, ScorerFactory] | None = None,
        evidence: Any = None,
        embedder: Embedder | None = None,
        constraint: JsonSchema | None = None,
        **options: Any,
    ) -> Generation:
        """`generate` for an event loop; cancelling the task gives the generation up."""
        given = (logits_processors, scorer_factories, evidence, embedder, constraint)
        request = _request(prompt, _merged(config, options), *given)
        trace = Trace(self.model_name, request.config)
        async with contextlib.aclosing(ENGINE_THREAD.astream(self._run(request))) as events:
            async for event in events:
                trace.record(event)
        return Generation.of(trace)

    def astream(
        self,
        prompt: Prompt,
        config: DecodeConfig | None = None,
        *,
        logits_processors: Sequence[LogitsProcessor] = (),
        scorer_factories: Mapping[str, ScorerFactory] | None = None,
        evidence: Any = None,
        embedder: Embedder | None = None,
        constraint: JsonSchema | None = None,
        **options: Any,
    ) -> AsyncGenerator[Event]:
        """`stream` for an event loop; close it (or cancel the task) to give up."""
        given = (logits_processors, scorer_factories, evidence, embedder, constraint)
        request = _request(prompt, _merged(config, options), *given)
        return ENGINE_THREAD.astream(self._run(request))

    def _run(self, request: Request) -> Callable[[], Generator[Event]]:
        return lambda: self._held.events(request)


def _place(found: ResolvedModel) -> _Place:
    return found.path, found.draft, found.target


def _merged(config: DecodeConfig | None, options: Mapping[str, Any]) -> DecodeConfig:
    config = config or DecodeConfig()
    return config.replace(**options) if options else config


def _request(
    prompt: Prompt,
    config: DecodeConfig,
    logits_processors: Sequence[LogitsProcessor],
    scorer_factories: Mapping[str, ScorerFactory] | None,
    evidence: Any,
    embedder: Embedder | None,
    constraint: JsonSchema | None,
) -> Request:
    if not isinstance(constraint, JsonSchema | None):
        raise ConfigError(f"constraint must be a JsonSchema, got {constraint!r}")
    return Request(
        prompt,
        config,
        tuple(logits_processors),
        scorer_factories or {},
        as_evidence(evidence),
        embedder,
        constraint,
    )
