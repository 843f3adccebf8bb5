"""The documentation tells the truth: its tables are current and its code runs."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from llm_msi.commands import msi as commands
from llm_msi.options import Options
from msi_engine.config import PRESETS

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

ROOMS = ("msi_engine", "llm_msi", "scorers")

# `sh` blocks install something or need a model hub; `bash` and `python` blocks are run here.
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
SHELL = [text for kind, text in BLOCKS if kind == "bash"]
PYTHON = [text for kind, text in BLOCKS if kind == "python"]


def commands_of(text):
    """Commands of a block, without comments."""
    lines = (line.partition("  #")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


@pytest.fixture
def at_home(store, tmp_path, monkeypatch):
    """A newcomer's machine where the embedded model has been fetched, and answers are short."""
    from click.testing import CliRunner
    from llm.cli import cli

    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path / "llm"))
    monkeypatch.setenv("MSI_HOME", str(store))
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        return CliRunner().invoke(cli, list(arguments))

    call("models", "options", "set", "msi", "max_tokens", "12")
    return call


@pytest.fixture(scope="module")
def update():
    """The script that writes the generated parts."""
    spec = importlib.util.spec_from_file_location("update", ROOT / "scripts" / "update_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_generated_parts_are_current(update, name):
    written = (ROOT / name).read_text(encoding="utf-8")
    assert written == update.updated(name), "run: python scripts/update_docs.py"


def test_every_module_of_the_engine_says_what_it_is(update):
    rows = update.rooms_table().splitlines()[2:]
    assert len(rows) > 10
    assert not [row for row in rows if row.endswith("|  |")]


@pytest.mark.parametrize("name", Options.model_fields)
def test_every_option_is_in_the_readme(name):
    assert f"`{name}`" in README


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_in_the_readme(name):
    assert f"`{name}`" in README


@pytest.mark.parametrize("name", commands.commands)
def test_every_command_is_in_the_readme(name):
    assert f"llm msi {name}" in README


def test_every_variable_is_in_the_readme():
    sources = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    names = {name for path in sources for name in re.findall(r"\bMSI_[A-Z0-9_]+", path.read_text())}
    assert set(re.findall(r"^\| `(MSI_\w+)` \|", README, re.MULTILINE)) == names


@pytest.mark.parametrize("target", ["demo", "test", "lint", "bench"])
def test_every_target_is_documented_and_there(target):
    assert f"make {target}" in README
    assert f"make {target}" in CONTRIBUTING
    assert re.search(rf"^{target}:.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("text", [README, CONTRIBUTING], ids=["README", "CONTRIBUTING"])
def test_links_to_files_lead_somewhere(text):
    for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (ROOT / link).exists(), link


def test_every_block_says_what_it_is():
    assert {kind for kind, _ in BLOCKS} == {"sh", "bash", "python"}


def test_what_is_not_run_needs_an_installation_or_a_hub():
    for kind, text in BLOCKS:
        if kind == "sh":
            assert re.search(r"^(make |pip |llm install |llm msi pull \w+[-\w]*/)", text)


@pytest.mark.real_model
@pytest.mark.parametrize("text", SHELL, ids=[commands_of(text)[0] for text in SHELL])
def test_shell_examples_run(text, at_home):
    for command in commands_of(text):
        program, *arguments = shlex.split(command)
        assert program == "llm"
        result = at_home(*arguments)
        assert result.exit_code == 0, f"{command}: {result.output}"
        assert result.output.strip() or "clear" in command, command


@pytest.mark.real_model
@pytest.mark.parametrize("text", PYTHON, ids=range(len(PYTHON)))
def test_python_examples_run(text, at_home, capsys):
    exec(compile(text, "README.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.strip()
