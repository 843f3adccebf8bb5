"""Models as the reference sees them: a state for every path, one token at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Processor = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass
class State:
    """Everything a path has read, and what it says of the next token.

    ``logits`` are raw, float64 ``(V,)``; ``cache`` has read the first ``num_cached`` tokens.
    """

    tokens: tuple[int, ...]
    logits: np.ndarray
    cache: Any = None
    num_cached: int = 0


class Model(Protocol):
    def start(self, prompt: Sequence[int]) -> State: ...

    def feed(self, state: State, token: int) -> State: ...

    def fork(self, state: State) -> State: ...

    def processed(self, logits: np.ndarray, history: Sequence[int]) -> np.ndarray: ...


class TableModel:
    """A function from the tokens so far to logits; ``rule`` may be anything."""

    def __init__(self, rule: Callable[[tuple[int, ...]], np.ndarray]) -> None:
        self._rule = rule

    def start(self, prompt: Sequence[int]) -> State:
        return self._at(tuple(prompt))

    def feed(self, state: State, token: int) -> State:
        return self._at((*state.tokens, token))

    def fork(self, state: State) -> State:
        return copy.copy(state)

    def processed(self, logits: np.ndarray, history: Sequence[int]) -> np.ndarray:
        return logits

    def _at(self, tokens: tuple[int, ...]) -> State:
        return State(tokens, np.asarray(self._rule(tokens), np.float64))


class FullCaches:
    """An mlx-lm model; every path owns a whole cache, copied when it is spawned.

    Logits of a token sequence are remembered in ``known``, since greedy paths recur under every
    law: a state's cache catches up when something new is asked of it. Call on the thread that owns
    the model.
    """

    def __init__(
        self, model: Any, processors: Sequence[Any], known: dict[tuple[int, ...], np.ndarray]
    ) -> None:
        self._model = model
        self._processors = list(processors)
        self._known = known

    def start(self, prompt: Sequence[int]) -> State:
        from mlx_lm.models.cache import make_prompt_cache

        state = State(tuple(prompt), np.empty(0), make_prompt_cache(self._model))
        state.logits = self._read(state)
        return state

    def feed(self, state: State, token: int) -> State:
        state.tokens = (*state.tokens, token)
        state.logits = self._read(state)
        return state

    def fork(self, state: State) -> State:
        return State(state.tokens, state.logits, copy.deepcopy(state.cache), state.num_cached)

    def processed(self, logits: np.ndarray, history: Sequence[int]) -> np.ndarray:
        if not self._processors:
            return logits
        import mlx.core as mx

        row = mx.array(logits.astype(np.float32))[None]
        for process in self._processors:
            row = process(mx.array(list(history)), row)
        return np.array(row[0]).astype(np.float64)

    def _read(self, state: State) -> np.ndarray:
        if state.tokens not in self._known:
            import mlx.core as mx

            new = mx.array([state.tokens[state.num_cached :]])
            row = self._model(new, cache=state.cache)[0, -1].astype(mx.float32)
            state.num_cached = len(state.tokens)
            self._known[state.tokens] = np.array(row)
        return self._known[state.tokens].astype(np.float64)
