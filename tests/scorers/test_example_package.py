"""The example package for authors of scorers: installed from its folder, as a reader would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "msi-scorer-example"


def run(*arguments, site="", cwd=None):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MSI_", "PYTEST_"))}
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**clean, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the package installed by pip, without a network."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("example")
    source, target = folder / "source", folder / "site"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "msi_scorer_example.py"):
        (source / name).write_bytes((EXAMPLE / name).read_bytes())
    install = (
        "install --quiet --no-deps --no-index --no-build-isolation --disable-pip-version-check"
    )
    run("-m", "pip", *install.split(), "--target", str(target), str(source), cwd=folder)
    return target


def test_it_is_found_and_reported(site, tmp_path):
    script = """
        import json
        from msi_engine.plugins import find_scorers, plugin_report
        from msi_engine.scorer import ScoreContext
        from msi_engine.testing import check_scorer

        factory = find_scorers(["plain-words"], {})["plain-words"]
        check_scorer(factory)
        check_scorer(factory, options={"longest": 3})
        status = plugin_report()[-1]
        print(json.dumps([status.distribution, status.version, dict(status.scorers), status.error]))
    """
    assert json.loads(run("-c", textwrap.dedent(script), site=site, cwd=tmp_path)) == [
        "msi-scorer-example",
        "1.0",
        {"plain-words": "Prefers short words"},
        None,
    ]


def test_its_own_tests_pass(site, tmp_path):
    options = ("-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path))
    tests = str(EXAMPLE / "tests")
    said = run("-m", "pytest", *options, tests, site=site, cwd=tmp_path)
    assert "4 passed" in said


def test_without_installation_there_is_nothing(tmp_path):
    script = "from msi_engine.plugins import *; print([s.distribution for s in plugin_report()])"
    assert "msi-scorer-example" not in run("-c", script, cwd=tmp_path)
