"""What a model's name means. Touches no network and imports no mlx."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msi_engine.errors import ModelNotFoundError
from msi_engine.model.home import local_folder
from msi_engine.model.store import EMBEDDED, ModelRecord, default_name, find_record, list_models

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_STORE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

Kind = Literal["stored", "folder", "repository", "embedded"]


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """Where a name leads.

    Attributes:
        name: The name that was asked for, or the default's.
        kind: ``stored`` if it is in the store, ``folder`` for a local folder, ``repository`` or
            ``embedded`` for what has still to be fetched.
        draft: Folder of the draft; None if it has still to be fetched.
        target: Folder of the target; None without one.
        path: Folder that plain decoding uses; None if it has still to be fetched.
        record: Its record in the store; None if it is not there.
    """

    name: str
    kind: Kind
    draft: Path | None = None
    target: Path | None = None
    path: Path | None = None
    record: ModelRecord | None = None

    @property
    def is_fetched(self) -> bool:
        """True if it can be loaded without a network."""
        return self.path is not None


def resolve(name: str | None = None) -> ResolvedModel:
    """Find out what a name means: a model in the store, a local folder, or a repository.

    Args:
        name: A stored model's name, a folder, a repository ``owner/name``, ``embedded``, or None
            for the default.

    Raises:
        ModelNotFoundError: If it can be none of these.
        ModelFileError: If it is in the store, but damaged.
    """
    name = default_name() if name is None else name
    record = _stored(name)
    if record is not None:
        path = record.target if record.decode == "target" else record.draft
        return ResolvedModel(name, "stored", record.draft, record.target, path, record)
    if name == EMBEDDED:
        return ResolvedModel(name, "embedded")
    folder = local_folder(name)
    if folder is not None:
        return ResolvedModel(name, "folder", folder, None, folder)
    if is_repository_name(name):
        return ResolvedModel(name, "repository")
    raise ModelNotFoundError(
        f"no model {name!r}: neither pulled, nor a folder, nor a repository like owner/name; "
        "see: llm msi models"
    )


def is_repository_name(name: str) -> bool:
    """True if a name looks like a hub's ``owner/name``."""
    return _REPOSITORY.fullmatch(name) is not None


def _stored(name: str) -> ModelRecord | None:
    if _STORE_NAME.fullmatch(name):
        return find_record(name)
    if is_repository_name(name):
        pulled = next((r.name for r in list_models() if r.source == name), None)
        return None if pulled is None else find_record(pulled)
    return None
