"""What `llm msi explain` says of an answer: sentence by sentence, who won and why."""

from __future__ import annotations

from typing import Any

import click

from llm_msi.options import show
from llm_msi.page import cells, indented, page_width, plain
from llm_msi.trace import checked, count, exchange
from llm_msi.turns import Turn

INDENT = 11  # where the paths' texts begin
SCORERS = 14  # where the scorers' accounts begin
SHOWN = 3  # lines of the question
CHECKS = ("verify", "margin")  # modes in which tokens are checked


def explanation(turn: Turn) -> list[str]:
    """An answer's trace in words: a head, each collapse with its paths, the scorers' accounts."""
    lines = _head(turn)
    for number, segment in enumerate(turn.trace["segments"], start=1):
        accounts, refined = _accounts(turn.trace), _refinement(turn.trace).get("mode") in CHECKS
        lines += ["", *_collapse(number, segment, accounts, refined=refined)]
    return [*lines, "", *_summary(turn.trace), *_target(turn.trace)]


def _head(turn: Turn) -> list[str]:
    question = indented(turn.question or "(no text)", 0)
    if len(question) > SHOWN:
        question = [*question[: SHOWN - 1], "..."]
    given = [f"{name} {show(value)}" for name, value in turn.trace.get("config", {}).items()]
    facts = [f"{turn.model} ({turn.trace.get('model')})", f"{turn.datetime_utc[:19]} UTC"]
    return [
        *(click.style(line, bold=True) for line in question),
        *indented(", ".join([*facts, f"id {turn.id}"]), 0),
        *indented(f"options: {', '.join(given) or 'defaults'}; seed {turn.trace.get('seed')}", 0),
    ]


def _accounts(trace: dict[str, Any]) -> dict[str, int] | None:
    """Collapses that each scorer decided; None if the trace does not say."""
    decided = trace.get("stats", {}).get("decided")
    return decided if isinstance(decided, dict) else None


def _collapse(
    number: int, segment: dict[str, Any], accounts: dict[str, int] | None, *, refined: bool
) -> list[str]:
    """A collapse: how it came about, then its paths, the winner first and starred."""
    paths = list(enumerate(segment.get("paths", [])))
    winner = segment.get("winner")
    paths.sort(key=lambda item: (item[0] != winner, -(item[1].get("credence") or 0)))
    facts = [f"{segment.get('mode')} at {segment.get('reason')}", count(len(paths), "path")]
    if (effective := segment.get("effective_sample_size")) is not None and len(paths) > 1:
        facts[-1] += f" (effective {effective:.2f})"
    facts += [segment["note"]] if segment.get("note") else []
    facts += _verdict(segment, accounts) + _checked(segment, refined=refined)
    lines = [click.style(line, bold=True) for line in indented(", ".join(facts), 4, f"{number}.")]
    if winner is None:  # voted token by token: it is none of the paths
        lines += indented(_text(segment), INDENT, "  * voted")
    for index, path in paths:
        lines += _path(path, wins=index == winner)
    verdict = segment.get("verified") or {}
    if "undone" in verdict:
        change = exchange(verdict["undone"], verdict.get("instead", ""))
        lines += indented(change, INDENT, "  target")
    return lines


def _checked(segment: dict[str, Any], *, refined: bool) -> list[str]:
    """How much of a segment the target looked at; nothing where tokens are not checked."""
    verdict = segment.get("verified")
    if not verdict:
        return ["nothing checked"] if refined else []
    return [checked(verdict["tokens"], verdict["checked"], verdict["accepted"])]


def _verdict(segment: dict[str, Any], accounts: dict[str, int] | None) -> list[str]:
    """Which scorers decided a collapse; nothing where none took part or nobody knows."""
    if decided := segment.get("decided"):
        return ["decided by " + " and ".join(decided)]
    return ["no scorer decided"] if accounts else []


def _path(path: dict[str, Any], *, wins: bool) -> list[str]:
    """A path: its share and its signals, then its text."""
    dropped = path.get("status") == "dropped"
    share = "gone" if dropped else _number(path.get("credence"), ".2f")
    signals = [f"{name} {_number(v, '+.3f')}" for name, v in path.get("signals", {}).items()]
    first = f"  {'*' if wins else ' '} {share:<4}"
    text = _text(path)
    if not signals:
        return indented(text, INDENT, first)
    return [*_columns(signals, INDENT, first), *indented(text, INDENT)]


def _columns(items: list[str], indent: int, first: str) -> list[str]:
    """Items two blanks apart, on as many lines as they need; none is broken in two."""
    lines = [first.ljust(indent)]
    for item in map(plain, items):
        if cells(lines[-1]) > indent and cells(lines[-1] + item) > page_width():
            lines.append(" " * indent)
        lines[-1] += f"{item}  "
    return [line.rstrip() for line in lines]


def _text(part: dict[str, Any]) -> str:
    return str(part.get("text") or "").strip() or "(nothing)"


def _number(value: Any, form: str) -> str:
    """A number in a format; what is not finite is null in a trace."""
    return "?" if value is None else format(value, form)


def _summary(trace: dict[str, Any]) -> list[str]:
    """The scorers' accounts, a line each: collapses decided, calls, seconds."""
    stats = trace.get("stats", {})
    accounts = _accounts(trace)
    calls = stats.get("scorer_calls", {})
    if not calls and not accounts:
        return ["No scorer took part; `llm msi scorers` lists those there are."]
    collapses = len(trace["segments"])
    lines = []
    for name in calls or accounts or {}:
        decided = "" if accounts is None else _decided(accounts.get(name, 0), collapses)
        seconds = _number(stats.get("scorer_s", {}).get(name), ".2f")
        facts = [decided, count(calls.get(name, 0), "call"), f"{seconds} s"]
        lines += indented("; ".join(filter(None, facts)), SCORERS, f"{name}:")
    if accounts is None:
        lines.append("This trace does not say which scorer decided: it was made by an older MSI.")
    return lines


def _refinement(trace: dict[str, Any]) -> dict[str, Any]:
    """What the target did and cost; empty without one."""
    return trace.get("stats", {}).get("refinement") or {}


def _target(trace: dict[str, Any]) -> list[str]:
    """The target's account: how much it looked at, what it changed, what it cost."""
    cost = _refinement(trace)
    if not cost:
        return []
    if cost["mode"] in CHECKS:
        did = (
            f"checked {cost['deferred']} of {count(cost['drafted'], 'drafted token')} in "
            f"{count(cost['sweeps'], 'sweep')}, {count(cost['rollbacks'], 'rollback')}, "
            f"{_number(cost.get('acceptance_rate'), '.2f')} accepted"
        )
    else:
        did = f"{count(cost['sweeps'], 'sweep')} over the paths, whose logprobs are the target's"
    facts = [f"{cost['mode']}, {cost['target_kind']}", did]
    if plain := cost.get("plain_bytes_per_token"):
        share = cost["bytes_per_token"] / plain
        facts.append(f"read {share:.2f} of the bytes a token that the target alone reads")
    return indented("; ".join(facts), SCORERS, "target:")


def _decided(number: int, collapses: int) -> str:
    if number:
        return f"decided {number} of {count(collapses, 'collapse')}"
    return "decided nothing: without it no winner would be another"
