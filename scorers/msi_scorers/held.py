"""What evidence does by itself: the scorer that it makes active where none was named."""

from __future__ import annotations

from msi_engine import DecodeConfig

RAG = "rag"
WEIGHT = 10.0  # did best in the trials of laws and weights, as much more does as well


def held_to_evidence(config: DecodeConfig) -> DecodeConfig:
    """The options for an answer that has evidence.

    With `rag` at `WEIGHT`, if no scorer was named and there is a choice to be made: several paths
    under the law `mean`, whose weights that number suits. Otherwise ``config`` itself.
    """
    if config.scorers or config.law != "mean" or config.k == 1:
        return config
    return config.replace(scorers={RAG: WEIGHT})
