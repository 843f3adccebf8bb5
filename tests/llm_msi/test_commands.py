"""`llm msi`: pull, models, default, remove, doctor."""

import json

import click
import pytest

import msi_engine.model
from llm_msi.commands import msi as group
from llm_msi.commands import size
from llm_msi.plugin_checks import check_of
from msi_engine.model import Check
from msi_engine.plugins import PluginStatus


@pytest.fixture
def folder(store):
    """A real local folder in MLX format."""
    return store / "models" / "embedded" / "draft"


@pytest.mark.real_model
def test_a_local_folder_from_pull_to_remove(llm_cli, folder):
    pulled = llm_cli("msi", "pull", str(folder), "--alias", "local")
    assert pulled.out == 'local is ready: llm -m msi/local "..."\n'
    assert "MSI: msi/local" in llm_cli("models", "-q", "msi").out

    (record,) = json.loads(llm_cli("msi", "models", "--json").out)
    assert record["name"] == "local"
    assert record["source"] == str(folder)
    assert record["is_default"] is False

    assert llm_cli("msi", "default").out == "embedded\n"
    assert llm_cli("msi", "default", "local").out == "local\n"
    header, row = llm_cli("msi", "models").out.splitlines()
    assert header.split() == ["NAME", "SIZE", "PAIR", "SOURCE"]
    assert row.split()[:2] == ["*", "local"]
    assert row.endswith(str(folder))

    assert llm_cli("msi", "remove", "local").out == "local is removed\n"
    assert llm_cli("msi", "default").out == "embedded\n"
    assert "No models yet" in llm_cli("msi", "models").out
    assert "msi/local" not in llm_cli("models", "-q", "msi").out
    assert (folder / "config.json").is_file()


@pytest.mark.real_model
def test_a_pair_is_shown_as_one(llm_cli, folder):
    target = folder.parent / "target"
    llm_cli("msi", "pull", str(folder), "--target", str(target), "--alias", "two")
    (record,) = json.loads(llm_cli("msi", "models", "--json").out)
    assert (record["source"], record["target_source"]) == (str(folder), str(target))
    assert "draft + target" in llm_cli("msi", "models").out


@pytest.mark.real_model
def test_a_residual_needs_a_source_that_is_better_than_its_draft(llm_cli, folder):
    arguments = ("--target", "residual", "--draft-bits", "3", "--alias", "two")
    (line,) = llm_cli("msi", "pull", str(folder), *arguments, code=1).err.splitlines()[-1:]
    assert "fewer than 8 bits" in line
    (line,) = llm_cli("msi", "pull", str(folder), *arguments[2:], code=1).err.splitlines()[-1:]
    assert "draft_bits is for a draft that is made here" in line
    assert "No models yet" in llm_cli("msi", "models").out


@pytest.mark.real_model
def test_embedded_is_there_with_its_size(llm_cli, store, monkeypatch):
    monkeypatch.setenv("MSI_HOME", str(store))
    row = llm_cli("msi", "models").out.splitlines()[1]
    assert row.split()[:2] == ["*", "embedded"]
    assert "MB" in row
    assert "embedded is ready" in llm_cli("msi", "pull", "embedded").out


@pytest.mark.parametrize(
    "arguments",
    [
        ("pull", "/nowhere/at/all"),
        ("pull", "not a name"),
        ("default", "nobody"),
        ("remove", "nobody"),
    ],
)
def test_errors_are_one_line_and_exit_code_1(llm_cli, arguments):
    result = llm_cli("msi", *arguments, code=1)
    (line,) = result.err.splitlines()
    assert line.startswith("Error: ")
    assert arguments[1] in line
    assert result.out == ""


def test_quantize_and_target_exclude_each_other(llm_cli):
    result = llm_cli("msi", "pull", "a/b", "--quantize", "--target", "a/c", code=2)
    assert "leave --target out" in result.err


def test_every_command_says_what_it_does():
    for command in group.commands.values():
        assert command.help
        options = [p for p in command.params if isinstance(p, click.Option)]
        assert all(option.help for option in options)


@pytest.mark.real_model
def test_doctor_looks_at_this_machine(llm_cli, store, monkeypatch):
    monkeypatch.setenv("MSI_HOME", str(store))
    said = llm_cli("msi", "doctor").out
    for name in ("device", "BLAS", "memory", "embedded"):
        assert name in said
    names = {check["name"] for check in json.loads(llm_cli("msi", "doctor", "--json").out)}
    assert {"device", "memory"} <= names


@pytest.mark.parametrize(("status", "code"), [("ok", 0), ("warn", 0), ("fail", 1)])
def test_doctor_fails_where_a_check_fails_and_gives_the_advice(llm_cli, monkeypatch, status, code):
    checks = [Check("disk", "ok", "80 GB"), Check("memory", status, "1 GB", "close something")]
    monkeypatch.setattr(msi_engine.model, "doctor", lambda: checks)
    lines = llm_cli("msi", "doctor", code=code).out.splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["ok", "disk", "80", "GB"],
        [status, "memory", "1", "GB"],
        ["->", "close", "something"],
    ]
    assert "llm-msi" in lines[3]


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"scorers": {"tea": "", "cup": ""}}, "ok", "1.2; scorers tea, cup"),
        ({"boundaries": {"verse": ""}}, "ok", "1.2; boundaries verse"),
        ({"enabled": False}, "ok", "switched off"),
        ({"error": "ImportError: no tea"}, "warn", "1.2 is skipped: ImportError: no tea"),
    ],
)
def test_what_is_said_of_a_plugin(fields, status, said):
    check = check_of(PluginStatus("acme", "1.2", "acme = acme", **fields))
    assert (check.name, check.status) == ("plugin acme", status)
    assert said in check.detail
    assert bool(check.advice) == (status != "ok")


@pytest.mark.parametrize(
    ("nbytes", "words"), [(999, "0 MB"), (232_600_000, "233 MB"), (4_150_000_000, "4.2 GB")]
)
def test_sizes_in_words(nbytes, words):
    assert size(nbytes) == words
