"""The engine's errors as LangChain's: what a user catches, without the engine's frames.

Each is still the engine's kind, too, so that either name catches it.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from langchain_core import exceptions as lc

from msi_engine import errors as msi


class InvalidOptionError(msi.ConfigError, lc.ModelInvalidRequestError):
    """An option, or a combination of options, that cannot work."""


class InvalidPromptError(msi.PromptError, lc.ModelInvalidRequestError):
    """A prompt that is empty or malformed."""


class PromptOverflowError(msi.PromptTooLongError, lc.ContextOverflowError):
    """A prompt that does not fit the model's context. It is never truncated."""


class ModelMissingError(msi.ModelNotFoundError, lc.ModelNotFoundError):
    """No folder, alias or repository of this name."""


class FetchError(msi.DownloadError, lc.ModelConnectionError):
    """Fetching or converting a model failed."""


class OutOfTimeError(msi.OutOfTimeError, lc.ModelTimeoutError):
    """An answer that was not finished within `timeout`, and given up."""


_KINDS: tuple[tuple[type[msi.MSIError], type[msi.MSIError]], ...] = (
    (msi.ConfigError, InvalidOptionError),
    (msi.PromptTooLongError, PromptOverflowError),
    (msi.PromptError, InvalidPromptError),
    (msi.ModelNotFoundError, ModelMissingError),
    (msi.DownloadError, FetchError),
)


@contextmanager
def translated() -> Iterator[None]:
    """Turn the engine's errors into LangChain's, one line each.

    A scorer's error keeps its cause, which is its author's business. The frames in which it failed
    are let go: an error that a caller keeps would keep the paths' cache.
    """
    try:
        yield
    except msi.MSIError as error:
        traceback.clear_frames(error.__traceback__)
        raise _translation(error) from error.__cause__


def _translation(error: msi.MSIError) -> msi.MSIError:
    for kind, theirs in _KINDS:
        if isinstance(error, kind) and not isinstance(error, lc.ModelError):
            return theirs(*error.args)
    return error.with_traceback(None)
