"""What is shipped: the wheel's content, versions that agree, a clean install's promises."""

import ast
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# Import name -> distribution, where the two differ.
DISTRIBUTIONS = {
    "yaml": "pyyaml",
    "mlx_lm": "mlx-lm",
    "huggingface_hub": "huggingface-hub",
    "semantic_text_splitter": "semantic-text-splitter",
    "sentence_transformers": "sentence-transformers",
    "langchain_core": "langchain-core",
    "vl_convert": "vl-convert-python",
}

# Needed by a dependency that we name, and documented as its own requirement.
BROUGHT_ALONG = {
    "click": "llm",
    "sqlite_utils": "llm",
    "transformers": "mlx-lm",
    "torch": "sentence-transformers",
    "huggingface_hub": "huggingface-hub",
    "filelock": "huggingface-hub",
    "tokenizers": "transformers",
    "safetensors": "transformers",
}


def packages():
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]
    return [ROOT / path for path in wheel["wheel"]["packages"]]


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.partition(".")[0]


def test_every_package_that_is_here_is_in_the_wheel_and_nothing_else():
    names = {path.name for path in packages()}
    assert names == {"msi_engine", "llm_msi", "langchain_msi", "msi_scorers"}
    assert all((path / "__init__.py").is_file() for path in packages())
    assert all((path / "py.typed").is_file() for path in packages())


def test_the_changelog_begins_with_this_version():
    versions = re.findall(r"^## \[(\d[^]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == PROJECT["version"]


def test_the_installed_version_is_this_one():
    assert importlib.metadata.version("llm-msi") == PROJECT["version"]


@pytest.mark.parametrize("group", ["llm", "msi"])
def test_entry_points_lead_to_modules(group):
    for point in importlib.metadata.entry_points(group=group):
        if point.dist.name == "llm-msi":
            assert point.load().__name__ == PROJECT["entry-points"][group][point.name]


def test_every_import_is_a_declared_dependency():
    extras = PROJECT["optional-dependencies"].values()
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]
    declared = {re.match(r"[\w-]+", line)[0].lower() for line in lines}
    ours = {path.name for path in packages()}
    undeclared = {
        (name, str(file.relative_to(ROOT)))
        for package in packages()
        for file in package.rglob("*.py")
        for name in imports_of(file)
        if name not in ours
        and name not in sys.stdlib_module_names
        and name not in BROUGHT_ALONG
        and DISTRIBUTIONS.get(name, name) not in declared
    }
    assert not undeclared


def test_the_licence_is_the_one_declared():
    assert PROJECT["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "LICENSE", "Makefile"])
def test_the_source_distribution_has_what_it_needs(name):
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert name in content["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert (ROOT / name).is_file()


def test_continuous_integration_can_start():
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert "make test" in script.read_text()


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(
    ("python", "said"),
    [("no-such-python", "no-such-python is not there"), ("old", "is 3.9.2")],
)
def test_make_says_in_one_line_that_python_will_not_do(python, said, tmp_path):
    if python == "old":
        python = str(tmp_path / "python")
        Path(python).write_text("#!/bin/sh\necho 3.9.2\n")
        Path(python).chmod(0o755)
    command = ["make", "-C", str(ROOT), "--no-print-directory", "demo", f"PYTHON={python}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert "MSI needs Python 3.11 or newer" in line
    assert said in line
    assert done.stdout == ""
