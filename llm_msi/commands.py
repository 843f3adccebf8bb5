"""`llm msi`: models, scorers, an explanation of an answer, and a look at the machine.

The bodies import the engine; this module is imported by every `llm` call and imports click only.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from msi_engine.model import ModelRecord


@click.group()
def msi() -> None:
    """Models and scorers for MSI, the decoder behind `llm -m msi`, and what it did and why."""


@msi.command(
    epilog="An interrupted pull goes on where it stopped: run the same command again.",
)
@click.argument("name")
@click.option(
    "--target",
    metavar="NAME",
    help="Higher-precision model that makes a pair with NAME; `residual` makes a draft of NAME "
    "(in full precision or of 8 bits), and a target of what the draft has lost.",
)
@click.option("--alias", "-a", help="Name to call it by: `llm -m msi/ALIAS`.")
@click.option(
    "--quantize",
    is_flag=True,
    help="NAME is a full-precision repository: make a 4-bit draft and an 8-bit target of it.",
)
@click.option(
    "--draft-bits",
    type=click.IntRange(2, 4),
    default=4,
    show_default=True,
    help="Bits of a draft that is made here, by --quantize or --target residual.",
)
def pull(name: str, target: str | None, alias: str | None, quantize: bool, draft_bits: int) -> None:
    """Fetch a model, or a pair of a draft and a target.

    NAME is a Hugging Face repository, a local folder in MLX format, or `embedded`, the small model
    that is used when nothing is configured.
    """
    if quantize and target:
        raise click.UsageError("--quantize makes the target itself; leave --target out")
    from llm_msi.progress import Reporter
    from msi_engine import model

    with clear_errors(), Reporter() as reporter:
        record = model.pull(
            name,
            target=target,
            alias=alias,
            quantize=quantize,
            draft_bits=draft_bits,
            on_progress=reporter,
        )
    click.echo(f'{record.name} is ready: llm -m {model_id(record)} "..."')


@msi.command()
@click.option("--json", "as_json", is_flag=True, help="Everything that is known, as JSON.")
def models(as_json: bool) -> None:
    """List the models that are here, with sizes and pairs; the default is starred."""
    from msi_engine import model

    with clear_errors():
        records = model.list_models()
    if as_json:
        click.echo(json.dumps([described(record) for record in records], indent=2))
    elif not records:
        click.echo("No models yet. Fetch the embedded one with: llm msi pull embedded")
    else:
        for line in table(records):
            click.echo(line)


@msi.command()
@click.argument("name", required=False)
def default(name: str | None) -> None:
    """Show the model behind `llm -m msi`, or make NAME that model."""
    from msi_engine import model

    with clear_errors():
        if name is not None:
            model.set_default(name)
        click.echo(model.default_name())


@msi.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove a model and the files that MSI made for it.

    A local folder that was pulled by its path is forgotten, never deleted.
    """
    from msi_engine import model

    with clear_errors():
        model.remove(name)
    click.echo(f"{name} is removed")


@msi.command()
@click.option("--json", "as_json", is_flag=True, help="The checks as JSON.")
def doctor(as_json: bool) -> None:
    """Look at backend, device, BLAS, memory, plugins and models, and say what to do.

    The exit code is 1 if a check fails.
    """
    from llm_msi.plugin_checks import plugin_checks
    from msi_engine import model

    with clear_errors():
        checks = [*model.doctor(), *plugin_checks()]
    if as_json:
        fields = ("name", "status", "detail", "advice")
        found = [{field: getattr(check, field) for field in fields} for check in checks]
        click.echo(json.dumps(found, indent=2))
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            click.echo(f"{check.status:<5} {check.name:<{width}}  {check.detail}")
            if check.advice:
                click.echo(f"{'':<5} {'':<{width}}  -> {check.advice}")
    if any(check.status == "fail" for check in checks):
        raise click.exceptions.Exit(1)


@msi.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Everything that is known, as JSON.")
def scorers(names: tuple[str, ...], as_json: bool) -> None:
    """List the scorers: what each prefers, who provides it, what it needs, its options.

    With NAMEs, show every option of those scorers. Plugins that did not load are listed with the
    reason.
    """
    from llm_msi import scorers_command as found

    with clear_errors():
        listed = found.scorers_found(names)
    if as_json:
        report = {"scorers": listed, "not_loaded": found.plugins_left_out()}
        click.echo(json.dumps(report, indent=2))
    elif names:
        click.echo("\n".join(found.details(listed)))
    else:
        click.echo("\n".join(found.listing(listed, found.plugins_left_out())))


@msi.command()
@click.option("--id", "turn_id", help="Answer with this id in `llm logs`, in place of the last.")
@click.option(
    "--database",
    "-d",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Log to read, in place of the one that `llm logs path` names.",
)
@click.option("--json", "as_json", is_flag=True, help="The trace and what belongs to it, as JSON.")
def explain(turn_id: str | None, database: Path | None, as_json: bool) -> None:
    """Explain the last answer: at each sentence the winner, the losers, and who decided.

    A path stands with its credence (the share of the weight it had) and with each scorer's
    signal; `*` is the winner, `gone` one that had been dropped before. A scorer decided if without
    it another text would have been chosen.
    """
    from llm_msi.explain import explanation
    from llm_msi.turns import logged_turn

    turn = logged_turn(turn_id, database)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(turn), indent=2))
    else:
        click.echo("\n".join(explanation(turn)))


@msi.command("tune-refine")
@click.argument("prompts", nargs=-1)
@click.option(
    "--file",
    "-f",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File of prompts, one a line.",
)
@click.option("--model", "-m", help="Pair to tune: msi/ALIAS, in place of the default.")
@click.option("--target", metavar="NAME", help="Model that checks, in place of the pair's own.")
@click.option(
    "--tokens", type=click.IntRange(1), default=64, show_default=True, help="An answer's."
)
@click.option("--taus", default="0,0.25,0.5,1,2,4", show_default=True, help="Margins, in nats.")
@click.option("--windows", default="4,8,16,32", show_default=True, help="Windows, in tokens.")
@click.option(
    "--agreement",
    type=click.FloatRange(0, 1),
    default=0.99,
    show_default=True,
    help="Least share of the tokens that are to be the target's own choice.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw the trade-off to this file: svg, png or html.",
)
@click.option("--json", "as_json", is_flag=True, help="Everything that was found, as JSON.")
def tune_refine(
    out: Path | None, as_json: bool, prompts: tuple[str, ...], file: Path | None, **options: Any
) -> None:
    """Find tau and window of `-o refine margin` for a pair, on PROMPTS of your own.

    The target's own answer to each prompt is written, and the draft read along it: how sure it was
    of each token, and where it would have written another. From that follows what each tau and
    window would check, catch and read; the one to take is then run.
    """
    from llm_msi.tune_refine_command import told

    with clear_errors():
        click.echo(told(prompts, file, out, as_json=as_json, **options))


@contextmanager
def clear_errors() -> Iterator[None]:
    """Show the engine's errors as `Error: ...` with exit code 1."""
    from msi_engine.errors import MSIError

    try:
        yield
    except MSIError as error:
        raise click.ClickException(str(error)) from error


def model_id(record: ModelRecord) -> str:
    """What to give to `llm -m` for a model."""
    return "msi" if record.is_default else f"msi/{record.name}"


def described(record: ModelRecord) -> dict[str, Any]:
    """A record as plain JSON."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in dataclasses.asdict(record).items()
    }


def pair(record: ModelRecord) -> str:
    """Whether there are a draft and a target, and which of them plain decoding uses."""
    if record.target is None:
        return "one model"
    kind = "residual target" if record.residual else "target"
    return f"draft + {kind}, decodes with the {record.decode}"


def source(record: ModelRecord) -> str:
    """Where it came from."""
    origin = record.source
    if record.target_source not in (None, record.source):
        origin += f" + {record.target_source}"
    return origin + (" (quantised here)" if record.quantized else "")


def table(records: list[ModelRecord]) -> list[str]:
    """The records in aligned columns: star, name, size, pair, source."""
    rows = [("", "NAME", "SIZE", "PAIR", "SOURCE")]
    rows += [
        (
            "*" if record.is_default else "",
            record.name,
            size(record.nbytes) if record.nbytes else "elsewhere",
            pair(record),
            source(record),
        )
        for record in records
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True)), row[4]]
        )
        for row in rows
    ]


def size(nbytes: int) -> str:
    """A number of bytes in MB or GB."""
    return f"{nbytes / 1e9:.1f} GB" if nbytes >= 1e9 else f"{nbytes / 1e6:.0f} MB"
