"""Grounding: from the user's documents to evidence, prompt and scorers of one answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from msi_scorers.embedders import INSTALL
from msi_scorers.held import RAG, WEIGHT, held_to_evidence, held_to_prompt
from msi_scorers.scripts import HINT, PACKAGED, is_latin

from llm_msi.messages import attachment_name, attachment_text
from llm_msi.progress import Notice
from msi_engine import DecodeConfig, Embedder, Evidence
from msi_engine.errors import ConfigError
from msi_engine.passages import evidence_of

if TYPE_CHECKING:
    import llm

    from llm_msi.citing import Citer

Messages = list[dict[str, Any]]

_CHUNKS = 4
_SHOWN = 200  # characters of a passage in the log


@dataclass(frozen=True)
class Grounding:
    """What an answer is held to.

    Attributes:
        config: Options, with `rag` among the scorers if it is active by itself.
        messages: The conversation, with sources before the question if they are to be there.
        evidence: Chunks, numbered from 1.
        embedder: What embeds them, or None if nothing is to be embedded.
        citer: Puts citations into the answer, or None.
        note: What the user should be told, if anything.
    """

    config: DecodeConfig
    messages: Messages
    evidence: tuple[Evidence, ...] = ()
    embedder: Embedder | None = None
    citer: Citer | None = None
    note: str | None = None

    def signals(self) -> dict[str, Any]:
        """What the engine is given for the scorers."""
        return {"evidence": self.evidence, "embedder": self.embedder}

    def summary(self) -> list[dict[str, str]]:
        """The evidence as plain JSON: number, source and how the text begins."""
        return [
            {"id": e.id, "source": e.source, "text": e.text[:_SHOWN].strip()} for e in self.evidence
        ]


def ground(
    prompt: llm.Prompt,
    config: DecodeConfig,
    messages: Messages,
    asked: llm.Prompt | None = None,
) -> Grounding:
    """Gather evidence for a prompt, as its options say.

    Args:
        prompt: What is to be answered.
        config: Its options for the engine.
        messages: Its conversation.
        asked: The prompt whose question it is, where ``prompt`` brings the results of tools only.

    Raises:
        ConfigError: If a document or collection cannot be used, or no embedder is there.
        llm.ModelError: If an attachment cannot be read.
    """
    options = dict(prompt.options)
    if not any([options["docs"], options["collection"], options["cite"], RAG in config.scorers]):
        return _by_the_prompt(config, messages, options["embedder"])
    with Notice("Looking through the documents"):
        documents = _documents(options["docs"])  # before an embedder is loaded, which takes longer
        embedder = _embedder(options, config)
        found = _retrieved(asked or prompt, options, messages, documents, embedder)
    note = None
    if found and options["scorers"] is None:
        config, note = _by_itself(config, embedder)
    brought = _brought(asked or prompt) if _needs_all(config, options) else []
    evidence = _numbered(evidence_of(messages, config, (*found, *brought)))
    if (
        embedder is not None
        and embedder.name == PACKAGED
        and not is_latin(e.text for e in evidence)
    ):
        note = HINT
    citer = _citer(evidence, embedder, config.language) if options["cite"] else None
    if options["rag_prompt"] is not False:
        messages = with_sources(messages, evidence[: len(found)])
    return Grounding(config, messages, evidence, embedder, citer, note)


def _by_the_prompt(config: DecodeConfig, messages: Messages, name: str | None) -> Grounding:
    """Where nothing is said of evidence: the passages that the prompt brings with it, if any."""
    from msi_scorers.embedders import find_embedder

    held = held_to_prompt(config, messages, has_embedder=name is not None)
    if held is config:
        return Grounding(config, messages)
    try:
        with Notice("Loading the embedder"):
            embedder = find_embedder(name)
    except ConfigError as error:
        if name is not None:
            raise
        note = f"Sentences are not held to the passages of the prompt: {error}"
        return Grounding(config, messages, note=note)
    note = (
        f"Sentences are held to the passages of the prompt by rag={WEIGHT:g} with "
        f"{embedder.name}; -o evidence_from given does without"
    )
    evidence = _numbered(evidence_of(messages, config, ()))
    return Grounding(held, messages, evidence, embedder, note=note)


def with_sources(messages: Messages, sources: Sequence[Evidence]) -> Messages:
    """The conversation with numbered sources before the last question, in its own message.

    They are content of a message, which never becomes a control token.
    """
    asked = [i for i, message in enumerate(messages) if message["role"] == "user"]
    if not sources or not asked:
        return messages
    told = "\n\n".join(f"[{s.id}] {s.source}\n{s.text.strip()}" for s in sources)
    question = messages[asked[-1]]["content"]
    content = f"Sources:\n\n{told}\n\nAnswer from these sources.\n\n{question}"
    changed = {"role": "user", "content": content}
    return [*messages[: asked[-1]], changed, *messages[asked[-1] + 1 :]]


def _documents(places: Sequence[str] | None) -> tuple[Evidence, ...]:
    """The documents that the option names; none if it names none."""
    if not places:
        return ()
    from msi_scorers.documents import read_documents

    return read_documents(places)


def _embedder(options: dict[str, Any], config: DecodeConfig) -> Embedder | None:
    """The embedder asked for; else the packaged one, or None where a collection does without."""
    from msi_scorers.embedders import find_embedder, is_installed

    name = options["embedder"] or config.scorer_options.get(RAG, {}).get("embedder")
    needed = options["docs"] or options["cite"] or RAG in config.scorers
    if name is None and not needed and not is_installed():
        return None
    return find_embedder(name)


def _retrieved(
    prompt: llm.Prompt,
    options: dict[str, Any],
    messages: Messages,
    documents: tuple[Evidence, ...],
    embedder: Embedder | None,
) -> list[Evidence]:
    question = question_of(prompt, messages)
    top_k = options["chunks"] or _CHUNKS
    found: list[Evidence] = []
    if documents and embedder is not None:
        from msi_scorers.chunking import chunked
        from msi_scorers.retrieval import retrieve

        found += retrieve(question, chunked(documents), embedder, top_k)
    if options["collection"]:
        from llm_msi.collection import from_collection

        found += from_collection(options["collection"], question, top_k)
    return found


def question_of(prompt: llm.Prompt, messages: Messages) -> str:
    """What the user typed, without fragments; the last user message where that is not known.

    Raises:
        ConfigError: If nothing is asked.
    """
    typed = getattr(prompt, "_prompt", None)  # `prompt.prompt` has the fragments in it
    asked = [message["content"] for message in messages if message["role"] == "user"]
    question = typed or (asked[-1] if asked else "")
    if not question.strip():
        raise ConfigError("there is no question to find passages for; ask one")
    return str(question)


def _by_itself(config: DecodeConfig, embedder: Embedder | None) -> tuple[DecodeConfig, str | None]:
    """With evidence and no word on scorers, `rag` chooses among the paths if it can."""
    held = held_to_evidence(config)
    if held is config:
        return config, None
    if embedder is None:
        return config, (
            "No embedder is installed, so sentences are not held to the passages; "
            f"{INSTALL}, or -o embedder NAME"
        )
    return held, (
        f"Sentences are held to the passages by rag={WEIGHT:g} with {embedder.name}; "
        "-o scorers chooses others"
    )


def _needs_all(config: DecodeConfig, options: dict[str, Any]) -> bool:
    return RAG in config.scorers or bool(options["cite"])


def _brought(prompt: llm.Prompt) -> list[Evidence]:
    """Fragments and attachments of this turn, which are in the prompt already."""
    brought = [
        Evidence(str(fragment), str(getattr(fragment, "source", None) or f"fragment {number}"))
        for number, fragment in enumerate(prompt.fragments or [], 1)
    ]
    brought += [
        Evidence(attachment_text(attachment, number), attachment_name(attachment, number))
        for number, attachment in enumerate(prompt.attachments, 1)
    ]
    return [passage for passage in brought if passage.text.strip()]


def _numbered(passages: Sequence[Evidence]) -> tuple[Evidence, ...]:
    return tuple(replace(passage, id=str(i)) for i, passage in enumerate(passages, 1))


def _citer(evidence: Sequence[Evidence], embedder: Embedder | None, language: str) -> Citer:
    from llm_msi.citing import Citer

    if not evidence or embedder is None:
        raise ConfigError(
            "cite needs passages: give -o docs FILES, -o collection NAME, -f or -a, or leave it out"
        )
    return Citer(evidence, embedder, language=language)
