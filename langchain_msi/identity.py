"""What tells one request from another: the key of LangChain's caches, and what traces show.

Documents and objects stand in it as digests and labels, so that no text leaks into a trace.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msi_engine import Evidence, __version__
from msi_engine.errors import MSIError
from msi_engine.model import default_name, resolve
from msi_engine.plugins import offered_scorers

if TYPE_CHECKING:
    from langchain_msi.fields import MSIFields


def identity(fields: MSIFields) -> dict[str, Any]:
    """Everything that an answer depends on beside the prompt, as plain values.

    Options at their defaults are left out; the version says what the defaults are.
    """
    config = fields.decode_config()
    found: dict[str, Any] = {
        "model": model_label(fields.model),
        "msi_version": __version__,
        **config.model_dump(exclude_defaults=True),
    }
    if registered := set(config.scorers) - set(fields.custom_scorers):
        found["scorer_providers"] = _providers(registered)
    if fields.custom_scorers:
        found["custom_scorers"] = {n: label(s) for n, s in fields.custom_scorers.items()}
    if fields.embedder is not None:
        embedder = fields.embedder
        found["embedder"] = embedder if isinstance(embedder, str) else label(embedder)
    if fields.passages is not None:
        found["evidence"] = digest(fields.passages)
    if fields.trust_remote_code:
        found["trust_remote_code"] = True
    return found


def model_name(name: str | None) -> str:
    """The name of a model; of the default one if ``name`` is None."""
    return default_name() if name is None else name


def model_label(name: str | None) -> str:
    """The name of a model, with what an alias stands for. Loads and fetches nothing."""
    try:
        record = resolve(name).record
    except MSIError:  # the call that uses the model will say so
        return name or "default"
    if record is None or record.source == record.name:
        return model_name(name)
    pair = "" if record.target_source is None else f" + {record.target_source}"
    return f"{record.name} = {record.source}{pair} ({record.decode})"


def digest(passages: Sequence[Evidence]) -> str:
    """A name for passages: the same for the same texts, sources, ids and vectors."""
    found = hashlib.sha256()
    for passage in passages:
        vector = () if passage.vector is None else passage.vector
        for part in (passage.text, passage.source, passage.id, repr([float(x) for x in vector])):
            data = part.encode("utf-8", "surrogatepass")
            found.update(len(data).to_bytes(8))
            found.update(data)
    return f"{len(passages)} passages {found.hexdigest()[:32]}"


class _Labels:
    """Labels of objects: the same object has the same one, another has another.

    Made of a random number of this process, so that a cache on disk takes no object of another
    process for one of this.
    """

    def __init__(self) -> None:
        self._process = secrets.token_hex(6)
        self._lock = threading.Lock()
        self._count = 0
        self._known: dict[int, tuple[Callable[[], Any], str]] = {}

    def of(self, thing: Any) -> str:
        with self._lock:
            known = self._known.get(id(thing))
            if known is not None and known[0]() is thing:
                return known[1]
            self._count += 1
            text = f"{type(thing).__qualname__} {self._process}-{self._count}"
            self._known[id(thing)] = (_reference(thing), text)
            return text


def _reference(thing: Any) -> Callable[[], Any]:
    """A weak reference, or a strong one where there are no weak ones.

    An id is used again when its object is gone; the reference tells.
    """
    try:
        return weakref.ref(thing)
    except TypeError:
        return lambda: thing


label = _Labels().of
"""A text that tells an object from every other."""


def _providers(names: set[str]) -> dict[str, str]:
    offered = offered_scorers()
    return {name: offered[name].provider for name in sorted(names) if name in offered}
