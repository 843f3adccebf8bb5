"""Looking scorers up imports none of what they compute with."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
from msi_engine.plugins import find_scorers

find_scorers(["register", "archetype", "regex", "agreement"], {})
heavy = ("mlx", "numpy", "regex", "sacrebleu", "msi_scorers.features", "msi_scorers.gallery")
print([name for name in heavy if name in sys.modules])
"""


def test_nothing_heavy_is_imported_before_a_scorer_is_made():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]", done.stderr
