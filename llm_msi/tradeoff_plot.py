"""The trade-off of `tune-refine` as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_msi.trace import count
from llm_msi.tuning import VERIFY, Setting
from msi_engine.errors import ConfigError

if TYPE_CHECKING:
    from llm_msi.tune_refine import Report

SUFFIXES = (".svg", ".png", ".html")
INSTALL = 'pip install "llm-msi[plot]"'

_BLUE, _ORANGE = "#1f6fb4", "#d95f0e"


def check_plot(path: Path) -> None:
    """Make sure, before any work is done, that a plot can be drawn there.

    Raises:
        ConfigError: If the name's ending is none of `SUFFIXES`, the folder is missing, or the
            packages are.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"a plot ends in {', '.join(SUFFIXES)}, got {path.name!r}")
    if not path.absolute().parent.is_dir():
        raise ConfigError(
            f"there is no folder {path.parent} to write {path.name} to; make it first"
        )
    try:
        import altair  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"a plot needs {error.name}, which is not installed: {INSTALL}"
        ) from error


def draw(report: Report, path: Path) -> None:
    """Write the plot: agreement over bytes, a line for each window, a point for each tau."""
    chart(report).save(str(path), **({"ppi": 200} if path.suffix.lower() == ".png" else {}))


def chart(report: Report) -> Any:
    """The plot as an ``altair`` chart."""
    import altair as alt

    rows = [_row(setting) for setting in report.settings]
    best = report.recommended
    chosen = [r for r, s in zip(rows, report.settings, strict=True) if s is best]
    windows = [str(w) for w in sorted({s.window for s in report.settings})]
    x = alt.X("bytes:Q", title="bytes read for a token (the target alone: 1)").scale(zero=False)
    y = alt.Y("agreement:Q", title="tokens that are the target's own choice")
    y = y.scale(zero=False, nice=True).axis(format=".3~%")  # 99%, 99.5%: no needless zeros
    shades = alt.Color("window:N", title="window", sort=windows).scale(scheme="viridis")
    base = alt.Chart(alt.Data(values=rows)).encode(x=x, y=y)
    lines = base.mark_line(point=True).encode(color=shades, order="agreement:Q")
    labels = alt.Chart(alt.Data(values=_labels(rows))).mark_text(
        dx=6, dy=9, fontSize=9, align="left"
    )
    labels = labels.encode(x=x, y=y, text="tau:N", color=shades)
    ring = alt.Chart(alt.Data(values=chosen)).mark_point(size=260, strokeWidth=2, color=_ORANGE)
    wanted = alt.Chart(alt.Data(values=[{"y": report.wanted}])).mark_rule(
        strokeDash=[4, 4], color="#888888"
    )
    plain = alt.Chart(alt.Data(values=[{"x": 1}])).mark_rule(strokeDash=[2, 2], color=_BLUE)
    title = alt.TitleParams(
        "Refinement: what is checked and what it costs",
        subtitle=[
            f"{count(report.prompts, 'prompt')}, {count(report.tokens, 'token')}; "
            "labels: tau, in nats",
            "ring: recommended; dashed: the agreement asked for, and the target alone",
        ],
    )
    layers = alt.layer(
        wanted.encode(y="y:Q"), plain.encode(x="x:Q"), lines, labels, ring.encode(x="bytes:Q", y=y)
    )
    return layers.properties(width=520, height=340, title=title)


def _row(setting: Setting) -> dict[str, Any]:
    return {
        "bytes": setting.bytes,
        "agreement": setting.agreement,
        "window": str(setting.window),
        "tau": "all" if setting.tau == VERIFY else f"{setting.tau:g}",
    }


def _labels(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One for each point; those of points in one place are one, `4, all`."""
    places: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        place = (row["window"], round(row["bytes"], 3), round(row["agreement"], 4))
        held = places.setdefault(place, {**row, "tau": ""})
        held["tau"] += f", {row['tau']}" if held["tau"] else row["tau"]
    return list(places.values())
