"""Progress on stderr: a bar at a terminal, plain lines elsewhere."""

import pytest

from llm_msi import progress as shown
from llm_msi.progress import Notice, Reporter, describe
from msi_engine.model.progress import Progress


@pytest.fixture
def screen(monkeypatch, capsys):
    """Everything written to a stderr that is taken for a terminal since the last call."""
    monkeypatch.setattr(shown, "is_terminal", lambda: True)
    return lambda: capsys.readouterr().err


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress("fetching embedded", 42_000_000, 93_000_000, "bytes"),
         "fetching embedded   45%  42.0 of 93.0 MB"),
        (Progress("converting", 3, 4, "tensors"), "converting   75%  3 of 4 tensors"),
        (Progress("fetching x", 2_000_000, None, "bytes"), "fetching x  2.0 MB"),
        (Progress("looking", 0, None, "files"), "looking"),
        (Progress("fetching", 12, 10, "files"), "fetching  100%  12 of 10 files"),
    ],
)  # fmt: skip
def test_a_report_in_words(progress, text):
    assert describe(progress) == text


def test_without_a_terminal_a_few_plain_lines(capsys):
    with Reporter() as report:
        for done in range(101):
            report(Progress("fetching embedded", done, 100, "files"))
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split()[2] for line in err.splitlines()] == ["0%", "25%", "50%", "75%", "100%"]
    assert "\r" not in err


def test_each_stage_ends_its_own_line_at_a_terminal(screen):
    with Reporter() as report:
        report(Progress("fetching", 1, 2, "files"))
        report(Progress("fetching", 2, 2, "files"))
        report(Progress("converting", 1, 2, "tensors"))
    lines = screen().split("\n")
    assert len(lines) == 3
    assert lines[0].endswith("fetching  100%  2 of 2 files")
    assert lines[1].endswith("converting   50%  1 of 2 tensors")
    assert lines[2] == ""


def test_a_slow_thing_is_announced_and_the_line_taken_away(screen, monkeypatch):
    monkeypatch.setattr(shown, "SLOW_S", 0.0)
    with Notice("Loading embedded") as notice:
        notice._timer.join()
        assert screen() == "\rLoading embedded ..."
        notice.update("Reading")
        assert screen() == "\rReading ...         "
    assert screen() == "\r" + " " * len("Reading ...") + "\r"


def test_a_quick_thing_is_not_announced(screen):
    with Notice("Loading embedded") as notice:
        notice.update("Loading on")
    assert screen() == ""


def test_nothing_is_announced_without_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(shown, "SLOW_S", 0.0)
    with Notice("Loading embedded") as notice:
        assert notice._timer is None
    assert capsys.readouterr() == ("", "")
