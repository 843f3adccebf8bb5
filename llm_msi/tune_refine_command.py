"""From the words of `llm msi tune-refine` to a report, with progress."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from llm_msi.loading import load_engine, load_target
from llm_msi.progress import SLOW_S, Reporter
from llm_msi.tune_refine import Tuning
from msi_engine import DecodeConfig
from msi_engine.errors import ConfigError
from msi_engine.model import Progress

if TYPE_CHECKING:
    from llm_msi.tune_refine import Report

Number = TypeVar("Number", int, float)


def numbers(option: str, text: str, kind: type[Number], low: Number, high: Number) -> list[Number]:
    """Numbers separated by commas.

    Args:
        option: Its name, for the error.
        text: What was given.
        kind: ``int`` or ``float``.
        low: The least that is allowed.
        high: The greatest.

    Raises:
        ConfigError: If it is anything else.
    """
    try:
        found = [kind(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"{option} takes numbers like 1,2,4, got {text!r}") from None
    if not all(low <= number <= high for number in found):
        raise ConfigError(f"{option} takes numbers from {low} to {high}, got {text!r}")
    return found


def told(
    prompts: tuple[str, ...], file: Path | None, out: Path | None, *, as_json: bool, **options: Any
) -> str:
    """What the command prints; draws the plot on the way. See the command for the arguments.

    Raises:
        msi_engine.errors.MSIError: If an option, the plot or the pair cannot be used.
    """
    from llm_msi import tradeoff_plot
    from llm_msi.tune_refine_page import page

    if out is not None:
        tradeoff_plot.check_plot(out)
    report = tuned(asked(prompts, file), **options)
    if out is not None:
        tradeoff_plot.draw(report, out)
    return json.dumps(report.as_dict(), indent=2) if as_json else "\n".join(page(report))


def asked(prompts: tuple[str, ...], file: Path | None) -> list[str]:
    """The prompts of the command line and of a file, one a line, blank lines left out.

    Raises:
        ConfigError: If there is none, or the file is not text.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines() if file else []
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not a text in UTF-8: {error.reason}") from error
    found = [prompt for prompt in (*prompts, *lines) if prompt.strip()]
    if not found:
        raise ConfigError("no prompt is given; write some, or give a file of them with -f")
    return found


def tuned(
    prompts: list[str],
    *,
    model: str | None,
    target: str | None,
    tokens: int,
    taus: str,
    windows: str,
    agreement: float,
) -> Report:
    """Load the pair and run the sweep; what takes long shows its progress. See the command.

    Raises:
        msi_engine.errors.MSIError: If an option or the pair cannot be used.
    """
    margins = numbers("--taus", taus, float, 0.0, 1000.0)
    sizes = numbers("--windows", windows, int, 1, 4096)
    alias = None if model is None or model == "msi" else model.removeprefix("msi/")
    engine = load_engine(alias)
    load_target(engine, DecodeConfig(refine="verify", target=target))
    tuning = Tuning(
        engine, prompts, margins, sizes, max_tokens=tokens, wanted=agreement, target=target
    )
    start = time.monotonic()
    with Reporter() as reporter:

        def tell(stage: str, done: int, total: int) -> None:
            if time.monotonic() - start > SLOW_S:
                reporter(Progress(stage, done, total, "answers"))

        return tuning.run(tell)
