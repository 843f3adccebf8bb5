"""Answers of MSI in `llm`'s log: finding one and reading its trace."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import llm
import sqlite_utils
from llm.logs import LogStore
from llm.parts import Part, TextPart, ToolCallPart, ToolResultPart

_TURN = """
    select id, model, datetime_utc, parent_message_hash from turns
    where {which} order by id desc limit 1
"""
_BY_ID = "id = :id"
_LAST = "(model = 'msi' or model like 'msi/%') and response_json is not null"


@dataclass(frozen=True, slots=True)
class Turn:
    """One logged answer.

    Attributes:
        id: As `llm logs` shows it.
        model: Its name in `llm`.
        datetime_utc: When, in ISO 8601.
        question: The text that was answered.
        trace: What `msi_engine.trace.Trace.summary` had left.
    """

    id: str
    model: str
    datetime_utc: str
    question: str
    trace: dict[str, Any]


def logged_turn(turn_id: str | None = None, database: Path | None = None) -> Turn:
    """The last answer of MSI that was logged with a trace, or the one with an id.

    Args:
        turn_id: As `llm logs` shows it; None: the last.
        database: The log; None: `llm`'s own.

    Raises:
        click.ClickException: If there is none, or it has no trace that can be read.
    """
    path = database or llm.user_dir() / "logs.db"
    if not path.is_file():
        raise click.ClickException(f'there is no log at {path}; ask first: llm -m msi "..."')
    with _opened(path) as db:
        store = LogStore(db)  # brings an older log up to date, as every command of `llm` does
        rows = list(db.query(_TURN.format(which=_BY_ID if turn_id else _LAST), {"id": turn_id}))
        if not rows:
            what = f"answer {turn_id}" if turn_id else "answer of msi"
            raise click.ClickException(
                f"no {what} in the log {path}; `llm logs` lists what there is"
            )
        (row,) = rows
        try:
            trace = store.turn_response_json(row["id"])
            question = _question(store, row["parent_message_hash"])
        except (KeyError, ValueError) as error:
            raise click.ClickException(
                f"what was logged of answer {row['id']} can no longer be read: {error}"
            ) from error
    if not isinstance(trace, dict) or not isinstance(trace.get("segments"), list):
        raise click.ClickException(f"answer {row['id']} (of {row['model']}) has no trace of MSI")
    return Turn(row["id"], row["model"], row["datetime_utc"], question, trace)


@contextmanager
def _opened(path: Path) -> Iterator[sqlite_utils.Database]:
    """A log, closed at the end.

    Raises:
        click.ClickException: If it is no database, or another program has locked it.
    """
    db = sqlite_utils.Database(path)
    try:
        yield db
    except sqlite3.DatabaseError as error:
        raise click.ClickException(f"the log {path} cannot be read: {error}") from error
    finally:
        db.close()


def _question(store: LogStore, tip: str | None) -> str:
    """The text of the last message before the answer, but for calls of tools and their results."""
    messages = store.load_chain(tip)
    while messages and messages[-1].role != "user" and _has_tools(messages[-1].parts):
        messages = messages[:-1]
    parts = messages[-1].parts if messages else []
    return "".join(part.text for part in parts if isinstance(part, TextPart))


def _has_tools(parts: Iterable[Part]) -> bool:
    return any(isinstance(part, ToolCallPart | ToolResultPart) for part in parts)
