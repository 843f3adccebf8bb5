"""Getting the engine for a model name, with progress; its errors and warnings in `llm`'s terms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import llm

from llm_msi.progress import Notice, Reporter

if TYPE_CHECKING:
    from msi_engine import Engine
    from msi_engine.model import Progress


@contextmanager
def translated() -> Iterator[None]:
    """Turn the engine's errors into `llm.ModelError`; both they and its warnings take one line."""
    from llm_msi.plain_warnings import plain_warnings
    from msi_engine.errors import MSIError

    try:
        with plain_warnings():
            yield
    except MSIError as error:
        raise llm.ModelError(str(error)) from error


def load_engine(name: str | None) -> Engine:
    """The process's engine for a model: None is the default model.

    What has to be fetched is reported; loading itself is announced at a terminal if it is slow.
    """
    from msi_engine import Engine

    with Notice(f"Loading {name or 'the model'}") as notice, Reporter() as reporter:

        def tell(progress: Progress) -> None:
            if not progress.stage.startswith("loading"):
                notice.close()  # there is something better to show
                reporter(progress)

        return Engine.load(name, on_progress=tell)
