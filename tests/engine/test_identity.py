"""The decoder against a slow second implementation of the specification, and against mlx-lm.

On toy models under every option at random; on a real model under every law and collapse mode. The
full comparison of acceptance is `python -m benchmarks.identity`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from msi_engine import DecodeConfig, Engine
from msi_engine.boundary import make_boundaries
from msi_engine.events import Collapsed, Committed, Event, Finished
from msi_engine.path import PathView
from msi_engine.testing import ToyModel, ToyTokenizer, run_toy
from tests.reference.models import TableModel
from tests.reference.real import PROMPTS, Slow, against_mlx_lm
from tests.reference.records import compare
from tests.reference.slow import SlowDecoder

# Pieces that differ in case and white space only, parts of a character, sentence ends.
PIECES = (" a", " b", " A", "a", "b", ".", "\n", " ", b"\xc3", b"\xa9", " ab", "</s>")
PROMPT = (0, 3)
CHOICES: dict[str, Sequence[Any]] = {
    "k": (1, 2, 3, 4, 8),
    "max_tokens": (1, 2, 5, 12, 30),
    "law": ("paper", "mean", "posterior"),
    "length_penalty": (0.0, 0.5, 1.0, 2.0),
    "beta": (0.5, 1.0, 2.0),
    "boundary": ((), ("sentence",), ("paragraph",), ("sentence", "paragraph")),
    "segment_length": (1, 2, 4, 8, 32),
    "stop": ((), (), ("a b",), ("b.", "aa"), (" a a",)),
    "collapse": ("auto", "argmax", "sample", "token_vote", "mbr"),
    "vote_guard": (None, 0.0, 0.3, 1.0),
    "majority": (0.1, 0.5, 0.9, 1.0),
    "align_steps": (0, 1, 3, 8),
    "short_circuit": (1.0, 0.9, 0.7, 0.5),
    "spawn_min_p": (0.0, 0.02, 0.3),
    "dedup_tokens": (0, 1, 2, 4),
    "diversity": (0.0, 0.0, 0.5, 3.0),
    "score_every": (1, 1, 2, 5),
    "scorers": ({}, {"wit": 0.3}, {"wit": 2.0}),
}


class Wit:
    """A scorer that looks at everything it is given."""

    def score(self, paths: Sequence[PathView]) -> list[float]:
        return [
            0.3 * len(p.segment) + p.segment.endswith("a") - 0.01 * len(p.committed + p.prompt)
            for p in paths
        ]


def random_config(seed: int) -> DecodeConfig:
    rng = random.Random(seed)
    options = {name: rng.choice(values) for name, values in CHOICES.items()}
    if seed % 4 == 0:  # votes for none of the paths are rare among all that
        options |= {"collapse": "token_vote", "majority": 1.0, "short_circuit": 1.0}
        options |= {"spawn_min_p": 0.0, "k": rng.choice((3, 5, 8))}
    return DecodeConfig(**options)


def forbid_repeats(history: list[int], logits: Any) -> Any:
    """A logits processor: a token costs a nat for each time of late, and " ab" is masked."""
    for token in history[-6:]:
        logits[token] -= 1.0
    logits[10] = -float("inf")
    return logits


class PenalizedTable(TableModel):
    def processed(self, logits: Any, history: Sequence[int]) -> Any:
        return forbid_repeats(list(history), logits.copy())


def winners_of(events: Sequence[Event]) -> list[int | None]:
    return [e.winner for e in events if isinstance(e, Collapsed)]


@pytest.mark.parametrize("block", range(8))
def test_every_option_gives_what_the_reference_gives(block: int) -> None:
    ties = 0
    for seed in range(50 * block, 50 * block + 50):
        config = random_config(seed)
        tokenizer = ToyTokenizer(PIECES)
        model = ToyModel.seeded(
            len(PIECES), seed, order=1 + seed % 3, scale=(0.5, 1, 2, 4)[seed % 4]
        )
        penalized = seed % 5 == 0
        processors = [forbid_repeats] if penalized else []
        events = list(
            run_toy(
                config,
                model,
                tokenizer,
                prompt=PROMPT,
                scorers={"wit": lambda context: Wit()} if config.scorers else None,
                processors=processors,
            )
        )
        winners = winners_of(events)
        slow = SlowDecoder(
            (PenalizedTable if penalized else TableModel)(model.logits),
            tokenizer.vocabulary,
            make_boundaries(config.boundary),
            config,
            {"wit": Wit()},
            # What is drawn at random has tests of its own; here the same path goes on.
            pick=lambda segment, paths, shares, winners=winners: winners[segment],
        )
        answer = slow.generate(PROMPT, tokenizer.decode(PROMPT))
        if compare(events, answer) is not None:
            ties += 1
            continue
        text = "".join(e.text for e in events if isinstance(e, Committed))
        (finished,) = [e for e in events if isinstance(e, Finished)]
        assert (seed, text, finished.reason) == (seed, answer.text, answer.reason)
        assert finished.stats.output_tokens == len(answer.tokens)
    assert ties <= 5


# On the embedded model


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load("embedded")


PENALTIES = {"repetition_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": 0.2}
FILTERS = {"temperature": 1.1, "top_p": 0.95, "min_p": 0.02, "top_k": 40, "xtc_probability": 0.3}


@pytest.mark.real_model
@pytest.mark.parametrize("penalties", [{}, PENALTIES], ids=["plain", "penalties"])
@pytest.mark.parametrize(
    "sampling",
    [{}, {"temperature": 0.8, "seed": 0}, {**FILTERS, "seed": 5}],
    ids=["greedy", "sampled", "filtered"],
)
def test_one_path_is_what_mlx_lm_generates(
    engine: Engine, sampling: dict[str, Any], penalties: dict[str, Any]
) -> None:
    for prompt in (PROMPTS[0], PROMPTS[10]):
        against_mlx_lm(engine, prompt, {**sampling, **penalties, "max_tokens": 24})


@pytest.mark.real_model
@pytest.mark.parametrize(
    ("prompt", "mode", "options"),
    [
        (3, "argmax", {"k": 8, "short_circuit": 0.9, "diversity": 0.5}),
        (1, "sample", {"k": 4, "scorers": {"wit": 0.5}, "score_every": 4}),
        (5, "token_vote", {"k": 4, "boundary": (), "segment_length": 6, "spawn_min_p": 0.0}),
        (11, "mbr", {"k": 4, "repetition_penalty": 1.3}),
    ],
)
def test_many_paths_are_what_the_reference_gives(
    engine: Engine, prompt: int, mode: str, options: dict[str, Any]
) -> None:
    slow = Slow(engine, PROMPTS[prompt])  # logits that one law has asked for serve the others
    outcomes = [
        slow.against_engine({**options, "law": law, "collapse": mode, "max_tokens": 24})
        for law in ("paper", "mean", "posterior")
    ]
    assert sum(o.tie is not None for o in outcomes) <= 1
    assert all(o.collapses for o in outcomes)
