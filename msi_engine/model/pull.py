"""Fetch a model, or a pair, into the store."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from msi_engine.errors import DownloadError
from msi_engine.model.embedded import make_embedded
from msi_engine.model.progress import OnProgress, ignore_progress
from msi_engine.model.store import (
    EMBEDDED,
    Manifest,
    ModelRecord,
    commit,
    find_record,
    locked,
    staging_folder,
)


def pull(name: str, *, on_progress: OnProgress | None = None) -> ModelRecord:
    tell = on_progress or ignore_progress
    with locked(EMBEDDED):
        record = find_record(EMBEDDED)
        if record is not None:
            return record
        staged = staging_folder(EMBEDDED)
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(parents=True)
        make_embedded(staged, tell)
        return commit(
            EMBEDDED,
            Manifest(source=EMBEDDED, target_source=EMBEDDED, target="target", decode="target"),
        )
