"""Comparisons on a real model: with mlx-lm itself for K = 1, with the slow decoder for K > 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from msi_engine import DecodeConfig, Engine
from msi_engine.boundary import make_boundaries
from msi_engine.events import Collapsed, Committed, Event, Finished
from msi_engine.path import PathView
from msi_engine.service import ENGINE_THREAD
from tests.reference.models import FullCaches
from tests.reference.records import Answer, compare
from tests.reference.slow import TIE_LOGITS, SlowDecoder

PROMPTS = (
    "The capital of France is",
    "Once upon a time there was a fox who",
    "def fibonacci(n):\n    ",
    "Q: Why is the sky blue?\nA:",
    "Three things to pack for the mountains:\n1.",
    "Die Hauptstadt von Deutschland ist",
    "In a hole in the ground there lived a hobbit. Not a nasty, dirty, wet hole",
    "Les trois couleurs du drapeau sont",
    "The meeting is on Monday at 3 p.m. Dr. Smith will",
    "SELECT name, price FROM products WHERE",
    "<|im_start|>user\nWhat is a rainbow?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nWrite a haiku about rain.<|im_end|>\n<|im_start|>assistant\n",
    "Water boils at 100 degrees, and",
    '{"name": "Ada", "born": 1815, "fields": [',
    "Había una vez una niña que",
    "To be, or not to be, that is",
    "The sum of 12 and 30 is",
    "Dear Madam,\n\nthank you for your letter of 3 May.",
    "日本の首都は",
    "| city | people |\n|---|---|\n| Rome |",
)


class Wit:
    """A scorer with an opinion on every text."""

    def score(self, paths: Sequence[PathView]) -> list[float]:
        return [p.segment.count("e") - 0.05 * len(p.segment) + 0.001 * len(p.text) for p in paths]


@dataclass
class Outcome:
    """How far two runs were compared; ``tie`` says where rounding parted them, if it did."""

    tokens: int
    collapses: int = 0
    tie: str | None = None


def encode(engine: Engine, prompt: str) -> list[int]:
    return [int(t) for t in engine._held.loaded.tokenizer.encode(prompt)]


def run(engine: Engine, prompt: Sequence[int], config: DecodeConfig, **more: Any) -> list[Event]:
    """The engine's events, from an empty cache."""
    ENGINE_THREAD.call(engine._held.keeper.clear)
    return list(engine.stream(list(prompt), config, **more))


# K = 1


def against_mlx_lm(engine: Engine, prompt: str, options: Mapping[str, Any]) -> Outcome:
    """Raises AssertionError where a token differs and the two best logits are not close."""
    tokens = encode(engine, prompt)
    config = DecodeConfig(**{"k": 1, "max_tokens": 48, **options})
    events = run(engine, tokens, config)
    ours = [t for e in events if isinstance(e, Collapsed) for t in e.tokens]
    theirs = ENGINE_THREAD.call(lambda: _stream_generate(engine, tokens, config))
    for position, (token, lead) in enumerate(theirs):
        if position < len(ours) and ours[position] == token:
            continue
        if lead < TIE_LOGITS:
            return Outcome(position, tie="draw")
        raise AssertionError(
            f"token {position} after {prompt!r} is {ours[position : position + 1]} instead of "
            f"{token}, {lead:.5f} ahead"
        )
    if len(ours) != len(theirs):
        raise AssertionError(f"{len(ours)} tokens instead of {len(theirs)} after {prompt!r}")
    return Outcome(len(theirs))


def _stream_generate(
    engine: Engine, prompt: Sequence[int], config: DecodeConfig
) -> list[tuple[int, float]]:
    """mlx-lm's tokens, each with the lead of the best logit over the second."""
    import mlx.core as mx
    from mlx_lm import stream_generate
    from mlx_lm.sample_utils import make_sampler

    tokenizer = engine._held.loaded.tokenizer
    mx.random.seed(config.seed or 0)
    sampler = make_sampler(
        temp=config.temperature,
        top_p=config.top_p,
        min_p=config.min_p,
        min_tokens_to_keep=config.min_tokens_to_keep,
        top_k=config.top_k,
        xtc_probability=config.xtc_probability,
        xtc_threshold=config.xtc_threshold,
        xtc_special_tokens=tokenizer.encode("\n") + list(tokenizer.eos_token_ids),
    )
    responses = stream_generate(
        engine._held.loaded.model,
        tokenizer,
        list(prompt),
        max_tokens=config.max_tokens,
        sampler=sampler,
        logits_processors=_processors(config),
    )
    found = []
    for response in responses:
        second, first = np.partition(np.array(response.logprobs), -2)[-2:]
        found.append((int(response.token), float(first - second)))
    return found


def _processors(config: DecodeConfig) -> list[Any]:
    from mlx_lm.sample_utils import make_logits_processors

    processors: list[Any] = make_logits_processors(
        config.logit_bias,
        config.repetition_penalty,
        config.repetition_context_size,
        config.presence_penalty,
        config.presence_context_size,
        config.frequency_penalty,
        config.frequency_context_size,
    )
    return processors


# K > 1


class Slow:
    """The slow decoder on an engine's model; logits of one prompt are remembered."""

    def __init__(self, engine: Engine, prompt: str) -> None:
        self._engine, self._text = engine, prompt
        self._tokens = encode(engine, prompt)
        self._known: dict[tuple[int, ...], np.ndarray] = {}

    def against_engine(self, options: Mapping[str, Any]) -> Outcome:
        """Raises AssertionError where the two part, but for a tie."""
        config = DecodeConfig(**options)
        scorers = {"wit": lambda context: Wit()} if config.scorers else None
        events = run(self._engine, self._tokens, config, scorer_factories=scorers)
        answer = ENGINE_THREAD.call(lambda: self._decode(config, events))
        collapses = sum(isinstance(e, Collapsed) for e in events)
        outcome = Outcome(len(answer.tokens), collapses, compare(events, answer))
        if outcome.tie is None:
            (finished,) = [e for e in events if isinstance(e, Finished)]
            text = "".join(e.text for e in events if isinstance(e, Committed))
            if (text, finished.reason) != (answer.text, answer.reason):
                raise AssertionError(f"{text!r} instead of {answer.text!r}")
        return outcome

    def _decode(self, config: DecodeConfig, events: Sequence[Event]) -> Answer:
        winners = [e.winner for e in events if isinstance(e, Collapsed)]
        slow = SlowDecoder(
            FullCaches(self._engine._held.loaded.model, _processors(config), self._known),
            self._engine._held.vocabulary(""),
            make_boundaries(config.boundary),
            config,
            {"wit": Wit()},
            # The draw of mode `sample` has a test of its own; here the same path goes on.
            pick=lambda segment, paths, shares: winners[segment],
        )
        return slow.generate(self._tokens, self._text)
