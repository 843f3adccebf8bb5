"""A scorer that takes a second, in an installed package: what becomes of an answer."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from llm_msi.answer import slow_scorers
from msi_engine.events import Stats

CODE = """
    import os, time
    from msi_engine import hookimpl

    class Slow:
        def score(self, paths):
            with open(os.environ["CALLS"], "a") as calls:
                calls.write("x")
            time.sleep(1)
            return [float(len(path.segment)) for path in paths]

    @hookimpl
    def register_scorers(register):
        register("slow", lambda context: Slow(), description="Takes a second")
"""


@pytest.fixture
def slow(user, store, tmp_path):
    """Start `llm` in a process that sees the package: ``slow("-m", "msi", ...)``."""
    site, calls = tmp_path / "site", tmp_path / "calls"
    info = site / "acme_slow-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "acme_slow.py").write_text(textwrap.dedent(CODE))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-slow\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[msi]\nplugin = acme_slow\n")
    calls.touch()
    places = {"MSI_HOME": str(store), "PYTHONPATH": str(site), "CALLS": str(calls)}

    def start(*arguments):
        return subprocess.Popen(
            [sys.executable, "-m", "llm", *arguments],
            env={**os.environ, **places},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    start.calls = calls
    return start


ASKED = ("-m", "msi", "Tell a story.", "-o", "k", "2", "-o", "spawn_min_p", "0")


@pytest.mark.real_model
def test_every_call_is_waited_for_counted_and_timed(slow):
    process = slow(*ASKED, "-o", "max_tokens", "3", "-o", "scorers", "slow=1")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out.strip()
    calls = len(slow.calls.read_text())
    assert calls == 3
    log, _ = slow("logs", "-n", "1", "--json").communicate(timeout=60)
    stats = json.loads(log)[0]["response_json"]["stats"]
    assert stats["scorer_calls"] == {"slow": calls}
    assert stats["scorer_s"]["slow"] >= calls
    explained, _ = slow("msi", "explain").communicate(timeout=60)
    assert re.search(r"3 calls; \d+\.\d\d s", " ".join(explained.split()))


@pytest.mark.real_model
def test_asked_seldom_it_costs_little_and_says_the_same(slow):
    process = slow(
        *ASKED, "-o", "max_tokens", "3", "-o", "scorers", "slow=1", "-o", "score_every", "16"
    )
    seldom, _ = process.communicate(timeout=120)
    assert len(slow.calls.read_text()) == 1
    often, _ = slow(*ASKED, "-o", "max_tokens", "3", "-o", "scorers", "slow=1").communicate()
    assert seldom == often


@pytest.mark.real_model
def test_ctrl_c_waits_for_one_call_at_most(slow):
    process = slow(*ASKED, "-o", "max_tokens", "400", "-o", "scorers", "slow=1")
    while len(slow.calls.read_text()) < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    before = len(slow.calls.read_text())
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.strip() == "Aborted!"
    assert len(slow.calls.read_text()) <= before + 1


def test_it_is_named_where_most_of_the_time_went_to_it():
    stats = Stats(decode_s=13.0, scorer_calls={"slow": 12, "rag": 12})
    stats.scorer_s = {"slow": 12.3, "rag": 0.5}
    assert slow_scorers(stats) == (
        "Of 13 s of writing 12 went to the scorer slow (12 calls); "
        "-o score_every 16 asks it less often"
    )
    stats.scorer_s = {"slow": 6.0, "rag": 0.5}
    assert slow_scorers(stats) is None
    stats.scorer_s, stats.decode_s = {"slow": 1.5, "rag": 0.1}, 1.7  # nobody waits for that
    assert slow_scorers(stats) is None
