"""Talk to the model hub in a process of its own.

huggingface_hub fetches in threads that cannot be interrupted: who gives a pull up would wait for
the files under way, or for the hub's time limits.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msi_engine import errors
from msi_engine.errors import DownloadError, ModelNotFoundError, MSIError
from msi_engine.model.child import run_child
from msi_engine.model.disk import is_disk_full
from msi_engine.model.progress import OnProgress

_MAIN = """
import os, sys
sys.path[:] = sys.argv.pop(1).split(os.pathsep)
from msi_engine.model.hub_child import main
main()
"""
_POLL_S = 0.5


class HubChild:
    """Asks the hub about one repository.

    Args:
        repository: ``owner/name``.
        folder: Where files come to lie.
        on_progress: Told of bytes; what it raises ends the talk.
    """

    def __init__(self, repository: str, folder: Path, on_progress: OnProgress) -> None:
        self._repository = repository
        self._folder = folder
        self._on_progress = on_progress

    def listing(self) -> tuple[str, dict[str, int]]:
        """The newest commit, and the bytes of each of its files.

        Raises:
            ModelNotFoundError: If there is no such repository, or no right to read it.
            DownloadError: If the hub does not answer.
        """
        revision, sizes = self._ask("listing", [], "looking at", None)
        return revision, sizes

    def download(self, revision: str, patterns: list[str], total: int | None = None) -> None:
        """Fetch the files of a commit that match; those that are there are kept.

        Args:
            revision: The commit.
            patterns: Of the files' names.
            total: Bytes of these files, if that is to be shown.

        Raises:
            DownloadError: If they cannot be fetched.
            OSError: If the disk is full.
        """
        verb = "looking at" if total is None else "fetching"
        self._ask("download", [revision, str(self._folder), *patterns], verb, total)

    def _ask(self, task: str, arguments: list[str], verb: str, total: int | None) -> Any:
        path = os.pathsep.join(os.path.abspath(place) for place in sys.path)
        command = [sys.executable, "-c", _MAIN, path, str(os.getpid()), task, self._repository]
        code, output = run_child(
            [*command, *arguments],
            self._folder,
            f"{verb} {self._repository}",
            total,
            self._on_progress,
        )
        lines = output.strip().splitlines()
        with contextlib.suppress(ValueError, IndexError):
            answer = json.loads(lines[-1])
            if isinstance(answer, dict):
                return _taken(answer)
        last = lines[-1] if lines else "it wrote nothing"
        raise DownloadError(
            f"{self._repository} could not be fetched: process ended with {code}: {last}"
        )


def _taken(answer: dict[str, Any]) -> Any:
    """What a child has found; raises what it has failed with."""
    if "found" in answer:
        return answer["found"]
    if answer["error"] == "disk":
        raise OSError(errno.ENOSPC, answer["said"])
    raise getattr(errors, answer["error"])(answer["said"])


def main() -> None:
    """Do what the command line says. The last line that is written is the answer, as JSON."""
    parent, task, repository, *arguments = sys.argv[1:]
    threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    answer: dict[str, Any]
    try:
        with _explained(repository):
            answer = {"found": _TASKS[task](repository, *arguments)}
    except MSIError as error:
        answer = {"error": type(error).__name__, "said": str(error)}
    except Exception as error:  # a full disk: all else has been explained
        answer = {"error": "disk", "said": str(error)}
    sys.stdout.write(f"\n{json.dumps(answer)}\n")
    sys.stdout.flush()
    os._exit(0)  # nothing of the hub's threads may write another line


def _end_with(parent: int) -> None:
    """Do not outlive whoever waits for the answer, however they end."""
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    os._exit(1)


def _listing(repository: str) -> tuple[str, dict[str, int]]:
    from huggingface_hub import HfApi

    info = HfApi().model_info(repository, files_metadata=True)
    return str(info.sha), {file.rfilename: file.size or 0 for file in info.siblings or []}


def _download(repository: str, revision: str, folder: str, *patterns: str) -> None:
    from huggingface_hub import snapshot_download

    snapshot_download(
        repository, revision=revision, local_dir=folder, allow_patterns=list(patterns)
    )


_TASKS: dict[str, Callable[..., Any]] = {"listing": _listing, "download": _download}


@contextlib.contextmanager
def _explained(repository: str) -> Iterator[None]:
    """Turn what huggingface_hub and its HTTP client raise into one line."""
    from huggingface_hub import errors as theirs

    try:
        yield
    except theirs.GatedRepoError:
        raise ModelNotFoundError(
            f"{repository} is gated: accept its terms on its page, then run: hf auth login"
        ) from None
    except (theirs.RepositoryNotFoundError, theirs.HFValidationError):
        raise ModelNotFoundError(f"no repository {repository!r}, or no right to read it") from None
    except Exception as error:
        if is_disk_full(error):
            raise
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DownloadError(
            f"{repository} could not be fetched: {first}; try again to go on"
        ) from error
