"""Everything the engine raises on purpose.

    MSIError
    ├── ConfigError            an option or combination that cannot work (a ValueError too)
    ├── PromptError            an empty or malformed prompt
    │   └── PromptTooLongError     one that does not fit the model's context
    ├── ModelError             a model that cannot be found, read or used
    │   ├── ModelNotFoundError     no such folder, alias or repository
    │   ├── ModelFileError         missing, truncated or malformed files
    │   └── UnsupportedModelError  a model class that the shared-prefix cache cannot serve
    ├── DownloadError          fetching or converting a model failed
    ├── CacheError             an operation that the key-value cache cannot do
    │   └── NotTrimmableError      taking tokens back from a cache that cannot
    ├── DecodeError            decoding cannot go on (every token masked, every path dead)
    ├── ScorerError            a scorer broke its contract; carries ``scorer_name``
    └── CancelledError         the caller gave the generation up
        └── OutOfTimeError         so that it was, since its time was over

Every message is one line: what is wrong, the value, what to do.
"""

from __future__ import annotations


class MSIError(Exception):
    """Base of every error raised on purpose."""


class ConfigError(MSIError, ValueError):
    """An option, or a combination of options, that cannot work."""


class PromptError(MSIError, ValueError):
    """The prompt is empty, malformed, or does not fit the model's context."""


class PromptTooLongError(PromptError):
    """The prompt does not fit the model's context."""


class ModelError(MSIError):
    """A model cannot be found, read or used."""


class ModelNotFoundError(ModelError):
    """No folder, alias or repository of this name."""


class ModelFileError(ModelError):
    """A model's files are missing, truncated or malformed."""


class UnsupportedModelError(ModelError):
    """A model class that the shared-prefix cache cannot be proved right for."""


class DownloadError(MSIError):
    """Fetching or converting a model failed."""


class CacheError(MSIError):
    """The key-value cache cannot do what was asked."""


class NotTrimmableError(CacheError):
    """Tokens cannot be taken back from a recurrent state or a full sliding window."""


class DecodeError(MSIError):
    """Decoding cannot go on: every token is masked, or no path is alive."""


class ScorerError(MSIError):
    """A scorer raised, or returned something that is not one finite number per path."""

    def __init__(self, scorer_name: str, message: str) -> None:
        super().__init__(f"scorer {scorer_name!r}: {' '.join(message.splitlines())}")
        self.scorer_name = scorer_name


class CancelledError(MSIError):
    """The caller gave the generation up before it was finished."""


class OutOfTimeError(CancelledError):
    """The time that the caller had given was over before the generation was finished."""
