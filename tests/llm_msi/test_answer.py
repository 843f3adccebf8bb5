"""What becomes of the engine's events."""

import click
from click.testing import CliRunner

from llm_msi.answer import Answer, announce, cut_off
from llm_msi.grounding import Grounding
from llm_msi.trace import collapse_lines
from msi_engine import DecodeConfig
from msi_engine.events import Collapsed, Committed, PathReport, Stats


def path(index, credence, text, **fields):
    values = {
        "tokens": (1,),
        "log_weight": -1.0,
        "logprob": -2.5,
        "signals": {},
        "status": "waiting",
        "boundary": "sentence",
    }
    return PathReport(index=index, credence=credence, text=text, **{**values, **fields})


def collapsed(*paths, winner=0, note=None):
    return Collapsed(
        segment=3,
        reason="sentence",
        mode="mbr",
        winner=winner,
        tokens=(1,),
        text="Tea.\n",
        paths=paths,
        effective_sample_size=1.5,
        note=note,
    )


def test_one_line_a_collapse_and_one_a_path_best_first_winner_starred():
    dropped = path(0, 0.0, 'A "cup"', status="dropped", boundary=None)
    lines = collapse_lines(collapsed(dropped, path(1, 1.0, "Tea.\n"), winner=1))
    assert lines == [
        '[3] 2 paths, sentence, mbr, effective 1.50: "Tea.\\n"',
        '  * 1 credence 1.000 logprob -2.50 sentence: "Tea.\\n"',
        '    0 credence 0.000 logprob -2.50 dropped: "A \\"cup\\""',
    ]


def test_no_text_of_a_path_gets_at_the_terminal():
    lines = collapse_lines(collapsed(path(0, 1.0, "a\\\r\x1b[2J\x9b\x00\t\u2028 é😀👨\u200d👩")))
    assert lines[1].endswith(r'"a\\\r\x1b[2J\x9b\x00\t\u2028 é😀👨' + '\u200d👩"')


def test_the_reason_of_an_early_end_is_the_one_there_was():
    stats = Stats(prompt_tokens=8000, output_tokens=192)
    assert cut_off(192, stats).endswith("-o max_tokens 384")
    full = cut_off(512, stats)
    assert "8000 and 192 tokens" in full
    assert "max_tokens" not in full


def test_the_trace_begins_a_line_of_its_own_after_text():
    answer = Answer("toy", Grounding(DecodeConfig(), []), show_paths=True)
    screen, before = "", ""
    for text in ("Tea.", " Hot.\n", "More", ""):
        for event in (collapsed(path(0, 1.0, text)), Committed(text)):
            for piece in answer.take(event):
                if not isinstance(piece, str):
                    before, piece = screen, piece.chunk
                    assert piece.lstrip("\n").startswith("[3]")
                screen += piece
        if before:
            assert screen[len(before) :].startswith("\n") != before.endswith("\n")


def test_signals_and_notes_are_shown():
    lines = collapse_lines(
        collapsed(path(0, 1.0, "Tea.", signals={"length": -0.25}), note="vote refused")
    )
    assert lines[0].startswith("[3] 1 path, ")
    assert lines[0].endswith("(vote refused)")
    assert "length -0.250" in lines[1]


def test_what_is_announced_comes_after_the_answers_line():
    @click.command("prompt")
    def prompt():
        announce("cut off")
        click.echo("the answer")

    result = CliRunner().invoke(prompt)
    assert result.stdout == "the answer\n"
    assert result.output == "the answer\ncut off\n"


def test_in_a_chat_it_comes_at_once_on_its_own_line():
    @click.command("chat")
    def chat():
        announce("cut off")
        click.echo("> ")

    assert CliRunner().invoke(chat).output == "\ncut off\n> \n"


def test_nothing_is_announced_in_python(capsys):
    announce("cut off")
    assert capsys.readouterr() == ("", "")
