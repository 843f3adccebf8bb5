"""Nothing heavy is imported before it is used."""

import os
import subprocess
import sys

import pytest

HEAVY = (
    "mlx",
    "mlx_lm",
    "transformers",
    "torch",
    "sentence_transformers",
    "sentencex",
    "sacrebleu",
)

ACTIONS = {
    "llm --help": "run(['--help'])",
    "llm msi --help": "run(['msi', '--help'])",
    "llm models": "run(['models'])",
    "llm models --options": "run(['models', '--options', '-m', 'msi'])",
    "llm msi models": "run(['msi', 'models'])",
    "import msi_engine": "import msi_engine",
    "from msi_engine import Engine": "from msi_engine import DecodeConfig, Engine",
    "import msi_scorers": "import msi_scorers",
}

PRELUDE = """
import sys
from click.testing import CliRunner

def run(arguments):
    from llm.cli import cli
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
"""


def imported(action, tmp_path):
    """Top-level packages that a fresh interpreter has imported after an action."""
    code = f"{PRELUDE}\n{action}\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    environment = {
        **os.environ,
        "LLM_LOAD_PLUGINS": "llm-msi",
        "LLM_USER_PATH": str(tmp_path / "llm"),
        "MSI_HOME": str(tmp_path / "msi"),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("action", ACTIONS)
def test_imports_nothing_heavy(action, tmp_path):
    assert not imported(ACTIONS[action], tmp_path) & set(HEAVY)


def test_llm_help_does_not_import_the_engine(tmp_path):
    found = imported(ACTIONS["llm --help"], tmp_path)
    assert "llm_msi" in found
    assert "msi_engine" not in found


def test_the_probe_sees_what_is_imported(tmp_path):
    assert "mlx" in imported("import mlx.core", tmp_path)
