"""`llm msi explain`: an answer's trace in words, from `llm`'s log."""

import json
import re

import pytest

from llm_msi.explain import explanation
from llm_msi.page import cells, indented, plain, wrapped
from llm_msi.turns import Turn


@pytest.fixture(autouse=True)
def columns(monkeypatch):
    """A page of 80 columns, whatever terminal the tests run in."""
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def say(llm_cli):
    """The command's lines."""
    return lambda *arguments: llm_cli("msi", "explain", *arguments).out.splitlines()


def path(text, credence, status="waiting", **signals):
    return {"text": text, "credence": credence, "signals": signals, "status": status}


def collapse(paths, winner, **others):
    text = "voted text" if winner is None else paths[winner]["text"]
    return {
        "reason": "sentence", "mode": "argmax", "winner": winner, "text": text,
        "effective_sample_size": 2.5, "note": None, "paths": paths, **others,
    }  # fmt: skip


def turn(*segments, **others):
    return Turn("01abc", "msi/qwen", "2030-01-02T03:04:05.6", "Why?", trace(*segments, **others))


def trace(*segments, **others):
    return {"version": 1, "model": "qwen", "config": {}, "seed": 7, "segments": list(segments),
            "stats": {}, **others}  # fmt: skip


def accounts(**decided):
    names = dict.fromkeys(decided, 3)
    return {"decided": decided, "scorer_calls": names, "scorer_s": dict.fromkeys(decided, 0.5)}


def block(lines, number):
    """The lines of one collapse."""
    start = next(i for i, line in enumerate(lines) if line.startswith(f"{number}. "))
    end = next(i for i in range(start, len(lines)) if not lines[i])
    return lines[start:end]


def unstyled(lines):
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]


LOSER = path(" No.", 0.7, tea=-0.25, cup=0.0)
WINNER = path(" Yes.\nReally.", 0.2, tea=0.5, cup=1.0)
DROPPED = path(" Perhaps.", 0.0, "dropped", tea=0.1, cup=0.0)


def test_the_winner_comes_first_then_the_losers_by_credence():
    few = path(" Few.", 0.1, tea=0.0, cup=0.0)
    lines = unstyled(explanation(turn(collapse([DROPPED, few, LOSER, WINNER], 3))))
    assert block(lines, 1) == [
        "1.  argmax at sentence, 4 paths (effective 2.50)",
        "  * 0.20   tea +0.500  cup +1.000",
        "           Yes.\\nReally.",
        "    0.70   tea -0.250  cup +0.000",
        "           No.",
        "    0.10   tea +0.000  cup +0.000",
        "           Few.",
        "    gone   tea +0.100  cup +0.000",
        "           Perhaps.",
    ]


@pytest.mark.parametrize(
    ("decided", "said"),
    [
        (["tea"], "decided by tea"),
        (["tea", "cup"], "decided by tea and cup"),
        ([], "no scorer decided"),
    ],
)
def test_who_decided_is_said_at_every_collapse(decided, said):
    stats = accounts(tea=int("tea" in decided), cup=int("cup" in decided))
    segment = collapse([WINNER, LOSER], 0, decided=decided)
    head = block(unstyled(explanation(turn(segment, stats=stats))), 1)[0]
    assert head == f"1.  argmax at sentence, 2 paths (effective 2.50), {said}"


def test_the_accounts_name_a_scorer_that_did_nothing():
    segments = [collapse([WINNER, LOSER], 0, decided=d) for d in (["tea"], [], ["tea"])]
    lines = explanation(turn(*segments, stats=accounts(tea=2, cup=0)))
    assert lines[-3:] == [
        "tea:          decided 2 of 3 collapses; 3 calls; 0.50 s",
        "cup:          decided nothing: without it no winner would be another; 3 calls;",
        "              0.50 s",
    ]


def test_a_trace_without_accounts_is_explained_as_far_as_it_goes():
    stats = {"scorer_calls": {"tea": 4}, "scorer_s": {"tea": 0.25}}
    lines = unstyled(explanation(turn(collapse([WINNER, LOSER], 0), stats=stats)))
    assert "decided" not in "".join(block([*lines, ""], 1))
    assert lines[-2] == "tea:          4 calls; 0.25 s"
    assert "does not say which scorer decided" in lines[-1]


def test_nobody_is_credited_where_no_scorer_took_part():
    lines = unstyled(explanation(turn(collapse([path("a", 1.0)], 0), stats=accounts())))
    assert block(lines, 1) == ["1.  argmax at sentence, 1 path", "  * 1.00   a"]
    assert lines[-1].startswith("No scorer took part")


def test_a_voted_segment_is_shown_though_it_is_none_of_the_paths():
    lines = unstyled(explanation(turn(collapse([WINNER, LOSER], None, note="a note"))))
    found = block(lines, 1)
    assert found[0].endswith(", a note")
    assert found[1] == "  * voted  voted text"
    assert not [line for line in found[2:] if "*" in line]


def test_the_head_says_what_was_asked_and_with_what():
    lines = unstyled(explanation(turn(config={"k": 2, "scorers": {"tea": 1.5}})))
    assert lines[:3] == [
        "Why?",
        "msi/qwen (qwen), 2030-01-02T03:04:05 UTC, id 01abc",
        'options: k 2, scorers {"tea": 1.5}; seed 7',
    ]


def test_numbers_that_were_not_finite_are_no_obstacle():
    odd = path("a", None, tea=None)
    lines = unstyled(explanation(turn(collapse([odd, LOSER], 0, effective_sample_size=None))))
    assert block(lines, 1)[:2] == ["1.  argmax at sentence, 2 paths", "  * ?      tea ?"]


@pytest.mark.parametrize("columns", [40, 80, 100])
@pytest.mark.parametrize("text", ["word " * 60, "x" * 200, "雨が降る。" * 40, "", "\x1b[31mred"])
def test_every_line_fits_the_terminal(monkeypatch, columns, text):
    monkeypatch.setenv("COLUMNS", str(columns))
    many = {f"scorer-{n}": n / 10 for n in range(12)}
    segments = [collapse([path(text, 0.5, **many), path(text, 0.5, **many)], 0, decided=[*many])]
    lines = unstyled(explanation(turn(*segments, stats=accounts(**dict.fromkeys(many, 1)))))
    assert all(cells(line) <= columns for line in lines)
    assert not [char for line in lines for char in line if ord(char) < 32]
    assert sum(line.count("scorer-7 +0.700") for line in lines) == 2


def test_without_a_log_the_error_says_what_to_do(llm_cli):
    assert "there is no log at" in llm_cli("msi", "explain", code=1).err


def test_a_log_without_an_answer_of_msi(llm_cli, user):
    llm_cli("logs", "on")
    import sqlite_utils
    from llm.logs import LogStore

    db = sqlite_utils.Database(user / "llm" / "logs.db")
    LogStore(db)
    db["turns"].insert({"id": "01a", "model": "other", "response_json": '{"a": 1}'})
    db["turns"].insert({"id": "01b", "model": "msimilar", "response_json": '{"segments": []}'})
    db["turns"].insert({"id": "01c", "model": "msi", "response_json": None})
    db.close()
    assert "no answer of msi in the log" in llm_cli("msi", "explain", code=1).err
    assert "has no trace of MSI" in llm_cli("msi", "explain", "--id", "01a", code=1).err
    assert "no answer 01z" in llm_cli("msi", "explain", "--id", "01z", code=1).err


def test_a_file_that_is_no_log(llm_cli, tmp_path):
    (tmp_path / "notes.txt").write_text("Not a database. " * 100)
    said = llm_cli("msi", "explain", "-d", str(tmp_path / "notes.txt"), code=1).err
    assert said.startswith("Error: the log ")
    assert len(said.splitlines()) == 1


@pytest.mark.real_model
def test_the_last_answer_is_explained_from_the_log(msi, llm_cli, logged, say, tmp_path):
    options = ("-o", "scorers", "length=5,repetition=0", "-o", "segment_length", "8")
    first = msi("Count from one to five.", "-o", "max_tokens", "24", *options).out
    lines = say()
    assert lines[0] == "Count from one to five."
    entry = logged()[-1]
    assert f"id {entry['id']}" in lines[1]
    segments = entry["response_json"]["segments"]
    assert len(segments) > 1
    for number, segment in enumerate(segments, start=1):
        found = block(lines, number)
        assert f"{len(segment['paths'])} path" in found[0]
        assert sum(line.startswith("  * ") for line in found) == 1
        said = found[2].strip()
        assert segment["text"].strip().encode("unicode_escape").decode().startswith(said)
        winner = segment["paths"][segment["winner"]]
        assert f"length {winner['signals']['length']:+.3f}" in found[1]
    assert "decided nothing" in "".join(lines[-2:])  # repetition, of no weight
    assert "".join(segment["text"] for segment in segments) + "\n" == first

    msi("Something else?")
    assert say()[0] == "Something else?"
    assert say("--id", entry["id"]) == lines
    explained = json.loads(llm_cli("msi", "explain", "--id", entry["id"], "--json").out)
    assert explained["trace"] == entry["response_json"]

    elsewhere = tmp_path / "other.db"
    msi("In another log?", "-d", str(elsewhere))
    assert say("-d", str(elsewhere))[0] == "In another log?"
    assert say()[0] == "Something else?"


def test_wrapping_loses_nothing_and_cuts_what_is_too_long():
    assert wrapped(["a", "bb", "ccc"], 4) == ["a bb", "ccc"]
    assert wrapped(["abcdefg"], 3) == ["abc", "def", "g"]
    assert wrapped(["雨雨雨"], 4) == ["雨雨", "雨"]
    assert wrapped([], 4) == [""]


def test_what_stands_before_a_text_has_a_line_of_its_own_if_it_is_long():
    assert indented("text", 6, "ab") == ["ab    text"]
    assert indented("text", 6, "abcdef") == ["abcdef", "      text"]


def test_escapes_for_what_a_terminal_would_obey():
    assert plain("a\x1b[2J\nb\u202ec é") == "a\\x1b[2J\\nb\\u202ec é"
