"""Getting the engine for a model name, with progress; its errors and warnings in `llm`'s terms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import llm

from llm_msi.progress import Notice, Reporter

if TYPE_CHECKING:
    from msi_engine import DecodeConfig, Engine
    from msi_engine.model import OnProgress, Progress


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

    with _shown(f"Loading {name or 'the model'}") as tell:
        return Engine.load(name, on_progress=tell)


def load_target(engine: Engine, config: DecodeConfig) -> None:
    """Load what is to check the answer, if the options ask for that; reported like the model.

    Raises:
        msi_engine.errors.ModelError: If there is no target, or it does not fit the model.
    """
    with _shown(f"Loading the target of {config.target or engine.model_name}") as tell:
        engine.prepare(config, on_progress=tell)


@contextmanager
def _shown(announcement: str) -> Iterator[OnProgress]:
    """Shows reports of progress; of loading only that it is slow."""
    with Notice(announcement) as notice, Reporter() as reporter:

        def tell(progress: Progress) -> None:
            if not progress.stage.startswith("loading"):
                notice.close()  # there is something better to show
                reporter(progress)

        yield tell
