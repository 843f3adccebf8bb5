"""Prints the table ``[norms]`` of a file of exemplars: ``python -m msi_scorers.norms FILE``.

Kept in the file, the table holds the scale of the features still while entries are added or
changed. The file's own table is not looked at.
"""

from __future__ import annotations

import sys

from msi_scorers.exemplars import read_exemplars
from msi_scorers.gallery import measured_norms


def norms_table(path: str) -> str:
    """The table as TOML, to four digits after the point."""
    norms = measured_norms(read_exemplars(path))
    lines = [f"{name} = [{mean:.4f}, {deviation:.4f}]" for name, (mean, deviation) in norms.items()]
    return "\n".join(["[norms]  # mean and deviation of each feature", *lines])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m msi_scorers.norms FILE")
    sys.stdout.write(norms_table(sys.argv[1]) + "\n")
