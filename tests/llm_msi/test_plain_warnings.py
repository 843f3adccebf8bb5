"""Warnings of MSI at the terminal and in Python."""

import os
import subprocess
import sys
import warnings

import click
import pytest

from llm_msi.plain_warnings import plain_warnings
from msi_engine.plugins import PluginWarning


def warn_both():
    warnings.warn(PluginWarning("acme is\nskipped"), stacklevel=1)
    warnings.warn("from elsewhere", stacklevel=1)


def test_at_the_terminal_ours_take_a_line_and_others_stay_as_they_are(recwarn):
    from click.testing import CliRunner

    @click.command()
    def command():
        with plain_warnings():
            warn_both()
        warn_both()

    warnings.simplefilter("always")
    assert CliRunner().invoke(command).stderr == "Warning: acme is skipped\n"
    assert [w.category for w in recwarn] == [UserWarning, PluginWarning, UserWarning]


def test_in_python_a_warning_can_be_caught_as_ever():
    with plain_warnings(), pytest.warns(PluginWarning, match="acme"):
        warnings.warn(PluginWarning("acme"), stacklevel=1)


@pytest.mark.real_model
@pytest.mark.parametrize("mode", [(), ("--async",)])
def test_a_broken_plugin_costs_one_line(tmp_path, store, mode):
    info = tmp_path / "acme_broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[msi]\nplugin = no_such_module_at_all\n")
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "LLM_USER_PATH": str(tmp_path / "llm"),
        "MSI_HOME": str(store),
    }
    done = subprocess.run(
        [sys.executable, "-m", "llm", "-m", "msi", "-o", "scorers", "nobody", "Hi", *mode],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    warned, failed = done.stderr.splitlines()
    assert warned.startswith("Warning: plugin acme-broken 1.0 (plugin = no_such_module_at_all) is")
    assert failed.startswith("Error: no scorer 'nobody'; there are ")
    assert done.returncode == 1
