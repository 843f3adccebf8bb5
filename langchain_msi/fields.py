"""The fields of both classes: every decoding option, the model, and what scorers work with."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Self

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel, BaseLLM
from langchain_core.vectorstores import VectorStore
from pydantic import ConfigDict, Field, PlainValidator, field_validator, model_validator

from langchain_msi.errors import translated
from langchain_msi.identity import identity
from msi_engine import DecodeConfig, Embedder, Evidence, ScoreContext, Scorer
from msi_engine.errors import ConfigError
from msi_engine.evidence import as_evidence
from msi_engine.scorer import ScorerFactory

OPTIONS = frozenset(DecodeConfig.model_fields)

# What chat models behind a network also take. A model on this machine has no use for them; they
# are taken, and dropped, so that a chain changes its model by changing one line.
_OF_NETWORKS = frozenset({"api_key", "base_url", "max_retries"})

# Fields that LangChain reads itself; a call has other ways to give them.
_OF_LANGCHAIN = {*BaseChatModel.model_fields, *BaseLLM.model_fields, "streaming"}


def _evidence(value: Any) -> tuple[Evidence, ...] | None:
    return None if value is None else as_evidence(value)


def _embedder(value: Any) -> Any:
    asked = ("embed_documents", "embed_multi", "embed")
    if value is None or isinstance(value, (str, VectorStore)):
        return value
    if any(callable(getattr(value, name, None)) for name in asked):
        return value
    raise ValueError("must be a name, an Embeddings or a VectorStore")


def _scorers(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError("must map names to scorers")
    for name, scorer in value.items():
        if not callable(getattr(scorer, "score", None)) and not callable(scorer):
            raise ValueError(
                f"{name!r} must have a method score(paths), or be a function that makes such an "
                "object from a ScoreContext"
            )
    return dict(value)


EvidenceLike = Annotated[
    Document | Evidence | str | Sequence[Document | Evidence | str] | None,
    PlainValidator(_evidence),
]
EmbedderLike = Annotated[
    str | Embeddings | VectorStore | Embedder | None, PlainValidator(_embedder)
]
Scorers = Annotated[dict[str, Scorer | ScorerFactory], PlainValidator(_scorers)]


class MSIFields(DecodeConfig):
    """Every option of `DecodeConfig` as a field, the model, and what the scorers work with.

    Bad values raise `ConfigError`, a ``ValueError`` of one line.
    """

    model_config = ConfigDict(
        frozen=False, extra="forbid", arbitrary_types_allowed=True, protected_namespaces=()
    )

    model: str | None = Field(
        None,
        description="A Hugging Face repository or local folder in MLX format, an alias, or "
        "`embedded`; None is the configured default",
    )
    trust_remote_code: bool = Field(
        False, description="Let the model's own Python code run when it is loaded"
    )
    custom_scorers: Scorers = Field(
        default_factory=dict,
        repr=False,
        description="Scorers that no plugin has registered, by name: objects with "
        "`score(paths)`, or factories; their weights are in `scorers`",
    )
    include_trace: bool = Field(
        False, description="Whether metadata has every sentence with the paths it was chosen from"
    )
    timeout: float | None = Field(
        None,
        gt=0,
        description="Seconds after which an answer is given up, those of waiting included",
    )
    evidence: EvidenceLike = Field(
        None,
        exclude=True,
        repr=False,
        description="Passages that scorers hold the answer to; they do not enter the prompt",
    )
    embedder: EmbedderLike = Field(
        None,
        exclude=True,
        repr=False,
        description="What embeds texts for the scorers: any Embeddings, a vector store (its own "
        "vectors are used again), or a name; None is all-MiniLM-L6-v2",
    )

    def __init__(self, **values: Any) -> None:
        values = {name: value for name, value in values.items() if name not in _OF_NETWORKS}
        refuse_unknown(values, type(self).model_fields)
        super().__init__(**values)

    @field_validator("stop", mode="before")
    @classmethod
    def _as_stop_strings(cls, value: Any) -> Any:
        return stop_strings(value)

    @model_validator(mode="after")
    def _weighted(self) -> Self:
        idle = set(self.custom_scorers) - set(self.scorers)
        if idle:
            raise ValueError(f"custom_scorers without a weight in scorers: {sorted(idle)}")
        return self

    def replace(self, **values: Any) -> Self:
        """A model with other values, validated; weights stay shared.

        Raises:
            ConfigError: If a value is out of bounds or a name is unknown.
        """
        kept = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**kept, **values})

    def decode_config(self) -> DecodeConfig:
        """The decoding options alone, as the engine takes them.

        Raises:
            ConfigError: If a field was assigned a bad value.
        """
        named = OPTIONS & self.model_fields_set
        return DecodeConfig(**{name: getattr(self, name) for name in named})

    @property
    def passages(self) -> tuple[Evidence, ...] | None:
        """The evidence in the engine's form; None if none was given, not even ()."""
        return _evidence(self.evidence)

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {**identity(self), **self._own_params()}

    def _own_params(self) -> dict[str, Any]:
        """What else an answer of this class depends on."""
        return {}

    def tuned(
        self, stop: str | Sequence[str] | None, options: Mapping[str, Any]
    ) -> tuple[Self, dict[str, Any]]:
        """What a call asks for over the fields, and those of its options that are no fields.

        Args:
            stop: Stop strings of the call; None leaves those of the fields.
            options: Keyword arguments of the call.

        Raises:
            ConfigError: If a value is out of bounds.
        """
        known = type(self).model_fields.keys() - _OF_LANGCHAIN
        mine = {name: value for name, value in options.items() if name in known}
        rest = {name: value for name, value in options.items() if name not in mine}
        if stop is not None:
            mine["stop"] = stop
        with translated():
            return (self.replace(**mine) if mine else self), rest


def stop_strings(stop: str | Sequence[str] | None) -> Sequence[str]:
    """Stop strings as a sequence; one string is one, as elsewhere, and not its characters."""
    if stop is None:
        return ()
    return (stop,) if isinstance(stop, str) else stop


def refuse_unknown(names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse option names that are not known, with the nearest one that is.

    Raises:
        ConfigError: If there is one.
    """
    known = set(known)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"unknown option {name!r}{hint}")


def as_factory(scorer: Any) -> ScorerFactory:
    """The factory of a custom scorer: itself, or one that hands out the object."""
    if callable(getattr(scorer, "score", None)) and not isinstance(scorer, type):

        def same(_: ScoreContext) -> Scorer:
            return scorer  # type: ignore[no-any-return]

        return same
    return scorer  # type: ignore[no-any-return]
