"""What evidence does by itself: the scorer that it makes active where none was named."""

from __future__ import annotations

from msi_engine import DecodeConfig
from msi_engine.passages import evidence_of
from msi_engine.prompt import Prompt
from msi_scorers import embedders
from msi_scorers.scripts import is_latin

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


def held_to_prompt(
    config: DecodeConfig, prompt: Prompt, *, has_embedder: bool = False
) -> DecodeConfig:
    """The options for an answer to which no evidence is given, but perhaps by its prompt.

    As `held_to_evidence` if the prompt holds passages (see `msi_engine.passages`) and there is
    an embedder: one that the caller has, or the packaged one for what it can read. Nobody has
    asked for it in so many words, so ``config`` itself where scorers or a way of collapsing were
    chosen, be it none.
    """
    if config.model_fields_set & {"scorers", "collapse"}:
        return config
    if not has_embedder and not embedders.is_installed():
        return config
    passages = evidence_of(prompt, config, ())
    if not passages or not (has_embedder or is_latin(passage.text for passage in passages)):
        return config
    return held_to_evidence(config)
