"""What `llm msi tune-refine` prints: the trade-off as tables, and a recommendation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from llm_msi.page import indented
from llm_msi.trace import count
from llm_msi.tuning import VERIFY, Setting

if TYPE_CHECKING:
    from llm_msi.tune_refine import Measured, Report

FEW = 200  # tokens; of fewer, a share of 5 % is not known to half of itself


def page(report: Report) -> list[str]:
    """The whole report, line by line."""
    return [
        *indented(_found(report), 0),
        "",
        *_forecast(report),
        "",
        *_runs(report),
        "",
        *indented(_recommendation(report), 0),
    ]


def _found(report: Report) -> str:
    share = report.flips / report.tokens
    text = (
        f"{count(report.prompts, 'prompt')}, {count(report.tokens, 'token')} of the target's own "
        f"answers. The draft would have written another token {count(report.flips, 'time')} "
        f"({share:.1%})."
    )
    if report.roc_area is not None:
        text += (
            " Its margin tells those from the others with an area under the ROC curve of "
            f"{report.roc_area:.2f} (1: always, 0.5: not at all)."
        )
    if report.tokens < FEW:
        text += " So few tokens tell little: give more prompts, or longer answers with --tokens."
    return text


def _forecast(report: Report) -> list[str]:
    """A row for each tau; bytes for each window."""
    windows = sorted({s.window for s in report.settings})
    head = ["tau", "checked", "flips caught", "agreement", *(f"window {w}" for w in windows)]
    rows = []
    for tau in dict.fromkeys(s.tau for s in report.settings):
        of_tau = {s.window: s for s in report.settings if s.tau == tau}
        first = of_tau[windows[0]]
        shares = [f"{x:.1%}" for x in (first.checked, first.caught, first.agreement)]
        rows.append([_tau(tau), *shares, *(_bytes(of_tau[w], report) for w in windows)])
    title = "Forecast; under a window, bytes read for a token (the target alone: 1):"
    return [*indented(title, 0), *_table([head, *rows])]


def _bytes(setting: Setting, report: Report) -> str:
    return f"{setting.bytes:.2f}" + ("*" if setting == report.recommended else " ")


def _runs(report: Report) -> list[str]:
    head = ["tau", "window", "checked", "agreement", "identical", "same prefix", "bytes", "s/token"]
    rows = [_run(m, report.prompts) for m in report.measured]
    title = "Measured; answers that are the target's own, or up to where they are:"
    return [*indented(title, 0), *_table([head, *rows])]


def _run(m: Measured, prompts: int) -> list[str]:
    return [
        _tau(m.tau),
        str(m.window),
        f"{m.checked:.1%}",
        f"{m.agreement:.1%}",
        f"{m.identical} of {prompts}",
        f"{m.prefix:.0%}",
        f"{m.bytes:.2f}",
        f"{m.seconds:.3f}",
    ]


def _recommendation(report: Report) -> str:
    best = report.recommended
    options = f"-o k 1 -o refine verify -o window {best.window}"
    if best.tau != VERIFY:
        options = f"-o k 1 -o refine margin -o tau {best.tau:g} -o window {best.window}"
    text = (
        f"Of the settings with an agreement of {report.wanted:.1%} or more, this one reads least: "
        f"{options} (agreement {best.agreement:.1%}, bytes {best.bytes:.2f})."
    )
    if best.bytes >= 1:
        text += (
            " That is no less than the target alone reads: with this pair, these prompts and this "
            "agreement, decode with the target, or name a draft that is nearer to it."
        )
    return text


def _tau(tau: float) -> str:
    return "all" if tau == VERIFY else f"{tau:g}"


def _table(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
