"""The loop on a toy model: what may not depend on how it is run, and how answers end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from msi_engine import DecodeConfig
from msi_engine.errors import DecodeError
from msi_engine.events import Collapsed, Committed, Event, Finished, Spawned, Stepped
from msi_engine.path import PathView
from msi_engine.testing import ToyModel, ToyTokenizer, run_toy

INF = float("inf")


def text_of(events: Sequence[Event]) -> str:
    return "".join(e.text for e in events if isinstance(e, Committed))


def of_type(events: Sequence[Event], kind: type) -> list[Any]:
    return [e for e in events if isinstance(e, kind)]


# Stop strings

STOP_PIECES = (" a", "a", "b", "ab", "ba", " ", ".", "</s>")


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("seed", range(40))
def test_no_part_of_a_stop_string_is_ever_emitted(k: int, seed: int) -> None:
    """A path left alone offered its text after the stop: the first "a" of a stop "aa" leaked."""
    stop = (("aa",), ("aba", "b."), ("a a", " a."), ("ab",))[seed % 4]
    config = DecodeConfig(
        k=k, max_tokens=40, stop=stop, segment_length=1 + seed % 5, boundary=(), collapse="argmax"
    )
    model = ToyModel.seeded(len(STOP_PIECES), seed, scale=1.0)
    tokenizer = ToyTokenizer(STOP_PIECES)
    events = list(run_toy(config, model, tokenizer))
    text = text_of(events)
    tokens = [t for e in of_type(events, Collapsed) for t in e.tokens]
    whole = tokenizer.decode(tokens)
    places = [whole.find(s) for s in stop if s in whole]
    assert text == whole[: min(places, default=len(whole))]
    assert (of_type(events, Finished)[0].reason == "stop") == bool(places)
    # What is emitted before the end must not have to be taken back.
    for n in range(len(events)):
        assert text.startswith(text_of(events[:n]))
