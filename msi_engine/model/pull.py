"""Fetch a model, or a pair, into the store."""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from msi_engine.errors import (
    CancelledError,
    ConfigError,
    DownloadError,
    ModelFileError,
    ModelNotFoundError,
    MSIError,
)
from msi_engine.model.backend import prepare_backend
from msi_engine.model.disk import is_disk_full
from msi_engine.model.embedded import make_embedded
from msi_engine.model.files import check_folder, read_config
from msi_engine.model.home import expanded, home, local_folder
from msi_engine.model.hub import check_model_type, fetch_repository, is_unfinished
from msi_engine.model.pairs import DRAFT_GROUP_SIZE, check_pair
from msi_engine.model.progress import OnProgress, Progress, ignore_progress
from msi_engine.model.resolve import is_repository_name
from msi_engine.model.store import (
    EMBEDDED,
    Manifest,
    ModelRecord,
    check_name,
    commit,
    find_record,
    locked,
    staging_folder,
)

# Bits and group size of the target that ``quantize`` makes of a model.
TARGET_QUANTIZATION = (8, 32)

# A target of this name is made of what the draft has lost.
RESIDUAL = "residual"
DRAFT_BITS = (2, 3, 4)


def pull(
    name: str,
    *,
    target: str | None = None,
    alias: str | None = None,
    quantize: bool = False,
    draft_bits: int = 4,
    on_progress: OnProgress | None = None,
    trust_remote_code: bool = False,
) -> ModelRecord:
    """Put a model, or a pair, into the store. Pulled already, it returns at once.

    A local folder is referred to, not copied. Interrupted, a pull from the hub goes on with the
    files that had arrived; any other starts clean. Two at once: the second waits for the first.

    Args:
        name: A repository ``owner/name``, a local folder, or ``embedded``.
        target: The same for the model of higher precision, if it is to be a pair. ``residual``
            makes a 4-bit draft of ``name``, in full precision or of 8 bits, and a target of what
            the draft has lost; a folder of that name is written ``./residual``.
        alias: What to call it; by default the last part of ``name``.
        quantize: Make draft and target from ``name``, which must be in full precision.
        draft_bits: Of a draft that is made here: 2, 3 or 4.
        on_progress: Told of bytes and stages, possibly from a helper thread.
        trust_remote_code: Fetch and run the model's own Python code.

    Returns:
        Its record.

    Raises:
        ConfigError: If the arguments do not go together, or the alias is taken.
        ModelError: If it cannot be found or used.
        DownloadError: If it cannot be fetched, or the disk is full.
    """
    tell = on_progress or ignore_progress
    alias = _alias(name, target, alias, quantize)
    manifest = _manifest(name, target, quantize, draft_bits)
    with _one_line(alias):
        there = _existing(alias, manifest)  # without a lock: a store may be read-only
        if there is not None:
            return there
        waiting = Progress(f"waiting for another pull of {alias}", 0, None, "files")
        with locked(alias, on_wait=lambda: tell(waiting)), _cleaned_up(alias):
            record = _existing(alias, manifest)
            if record is None:
                manifest = _make(staging_folder(alias), manifest, tell, trust_remote_code)
                record = commit(alias, manifest)
    return record


def _alias(name: str, target: str | None, alias: str | None, quantize: bool) -> str:
    if target is not None and quantize:
        raise ConfigError("quantize makes the target itself; leave out one of target and quantize")
    if name == EMBEDDED and target != RESIDUAL:
        if target is not None or quantize or alias not in (None, EMBEDDED):
            raise ConfigError(
                "embedded comes as a pair; it takes no quantize, no target but `residual`, and no "
                "alias without it"
            )
        return EMBEDDED
    if alias == EMBEDDED:
        raise ConfigError(f"alias {EMBEDDED!r} is taken by the embedded model; choose another")
    if alias is None and name == EMBEDDED:
        return f"{EMBEDDED}-{RESIDUAL}"
    if alias is None and not name.strip("/"):
        raise ConfigError("the name of the model to pull is empty")
    if alias is not None:
        return check_name(alias)
    try:
        return check_name(expanded(name).absolute().name)
    except ConfigError as error:
        raise ConfigError(f"{error}; choose an alias") from None


def _manifest(name: str, target: str | None, quantize: bool, draft_bits: int) -> Manifest:
    is_made = quantize or target == RESIDUAL
    if draft_bits not in DRAFT_BITS:
        raise ConfigError(f"draft_bits must be 2, 3 or 4, got {draft_bits}")
    if draft_bits != 4 and not is_made:
        raise ConfigError("draft_bits is for a draft that is made here: by quantize or `residual`")
    if is_made:
        source = EMBEDDED if name == EMBEDDED else _source(name)
        residual = target == RESIDUAL
        made = Manifest(source, source, quantized=True, target="target")
        return replace(made, draft_bits=draft_bits, residual=residual)
    if name == EMBEDDED:
        return Manifest(EMBEDDED, EMBEDDED, decode="target", target="target")
    sources = [None if s is None else _source(s) for s in (name, target)]
    return Manifest(str(sources[0]), sources[1], target=None if target is None else "target")


def _source(name: str) -> str:
    folder = local_folder(name)
    return name if folder is None else str(folder)


_TRAITS = ("source", "target_source", "quantized", "draft_bits", "residual")


def _existing(alias: str, wanted: Manifest) -> ModelRecord | None:
    try:
        record = find_record(alias)
    except ModelFileError:
        return None  # damaged: fetch it again
    if record is None:
        return None
    if any(getattr(record, trait) != getattr(wanted, trait) for trait in _TRAITS):
        raise ConfigError(
            f"alias {alias!r} is taken by {record.source}; choose another, "
            f"or run: llm msi remove {alias}"
        )
    return record


def _make(staged: Path, manifest: Manifest, tell: OnProgress, trust_remote_code: bool) -> Manifest:
    """Make draft and target in the staging folder; the manifest says where they came to lie."""
    if manifest.source == EMBEDDED and not manifest.residual:
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(parents=True)
        make_embedded(staged, tell)
        draft, target = staged / "draft", staged / "target"
    elif manifest.quantized:
        source = _obtain(manifest.source, staged / "source", tell, trust_remote_code)
        make = _with_residual if manifest.residual else _quantized
        draft, target = make(source, staged, manifest.draft_bits, tell, trust_remote_code)
        shutil.rmtree(staged / "source", ignore_errors=True)
    else:
        draft = _obtain(manifest.source, staged / "draft", tell, trust_remote_code)
        if manifest.target_source is None:
            return _placed(staged, manifest, draft, None)
        target = _obtain(manifest.target_source, staged / "target", tell, trust_remote_code)
        check_pair(draft, target, trust_remote_code=trust_remote_code)
    check_folder(draft)
    check_folder(target)
    return _placed(staged, manifest, draft, target)


def _placed(staged: Path, manifest: Manifest, draft: Path, target: Path | None) -> Manifest:
    def relative(folder: Path) -> str:
        return folder.name if folder.parent == staged else str(folder)

    return replace(
        manifest,
        draft=relative(draft),
        target=None if target is None else relative(target),
    )


def _obtain(source: str, folder: Path, tell: OnProgress, trust_remote_code: bool) -> Path:
    """The folder of a local model, or one fetched into ``folder``."""
    if source == EMBEDDED:
        source = str(pull(EMBEDDED, on_progress=tell).target)
    local = local_folder(source)
    if local is not None:
        check_folder(local)
        config = read_config(local)
        check_model_type(source, config, trust_remote_code=trust_remote_code)
        folder.parent.mkdir(parents=True, exist_ok=True)
        return local
    if not is_repository_name(source):
        raise ModelNotFoundError(
            f"{source!r} is neither a folder nor a repository like owner/name, so there is "
            "nothing to pull"
        )
    fetch_repository(source, folder, tell, trust_remote_code=trust_remote_code)
    check_folder(folder)
    return folder


def _with_residual(
    source: Path, staged: Path, draft_bits: int, tell: OnProgress, trust_remote_code: bool
) -> tuple[Path, Path]:
    prepare_backend()
    from msi_engine.model.residual import split

    tell(Progress(f"quantising to {draft_bits} bits, and what they lose", 0, None, "tensors"))
    draft, target = staged / "draft", staged / "target"
    for folder in (draft, target):
        shutil.rmtree(folder, ignore_errors=True)
    split(source, draft, target, bits=draft_bits, trust_remote_code=trust_remote_code)
    return draft, target


def _quantized(
    source: Path, staged: Path, draft_bits: int, tell: OnProgress, trust_remote_code: bool
) -> tuple[Path, Path]:
    config = read_config(source)
    if "quantization" in config or "quantization_config" in config:
        raise ConfigError(f"{source.name} is quantised already; quantize needs full precision")
    prepare_backend()
    from mlx_lm import convert

    folders = []
    for part, (bits, group_size) in (
        ("draft", (draft_bits, DRAFT_GROUP_SIZE)),
        ("target", TARGET_QUANTIZATION),
    ):
        tell(Progress(f"quantising the {part} to {bits} bits", 0, None, "tensors"))
        folder = staged / part
        shutil.rmtree(folder, ignore_errors=True)
        # The converter reports on standard output, which is the answer's.
        with contextlib.redirect_stdout(io.StringIO()):
            convert(
                str(source),
                str(folder),
                quantize=True,
                q_bits=bits,
                q_group_size=group_size,
                trust_remote_code=trust_remote_code,
            )
        folders.append(folder)
    return folders[0], folders[1]


@contextlib.contextmanager
def _cleaned_up(alias: str) -> Iterator[None]:
    """Clean up after a failure. The lock must be held: the staging folder may be another's."""
    try:
        yield
    except (KeyboardInterrupt, CancelledError, DownloadError):
        _clean(alias)
        raise
    except Exception:
        _clean(alias, everything=True)
        raise


@contextlib.contextmanager
def _one_line(alias: str) -> Iterator[None]:
    """Say in one line what has failed."""
    try:
        yield
    except MSIError:
        raise
    except Exception as error:
        if is_disk_full(error):
            raise DownloadError(
                f"no space left on the disk while pulling {alias}; free some under {home()}"
            ) from error
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DownloadError(f"pulling {alias} failed: {type(error).__name__}: {first}") from error


def _clean(alias: str, *, everything: bool = False) -> None:
    """Delete what lies in the staging folder, save what a later attempt can go on with."""
    staged = staging_folder(alias)
    if everything or not any(is_unfinished(part) for part in staged.glob("*")):
        shutil.rmtree(staged, ignore_errors=True)
