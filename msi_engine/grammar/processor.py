"""A grammar as a logits processor: what may not follow is masked."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import mlx.core as mx
import numpy as np

from msi_engine.errors import ConfigError
from msi_engine.grammar.states import GrammarStates

if TYPE_CHECKING:
    from llguidance import LLTokenizer

# Made once for a tokenizer and the tokens that end an answer: it takes half a second.
_VOCABULARIES: WeakKeyDictionary[Any, dict[frozenset[int], LLTokenizer]] = WeakKeyDictionary()


class GrammarProcessor:
    """An mlx-lm logits processor, a function of its arguments alone.

    Args:
        grammar: Text that llguidance reads.
        tokenizer: mlx-lm's ``TokenizerWrapper`` or a fast transformers tokenizer.
        eos_token_ids: Tokens that end an answer; let through where the grammar may end.
        prompt_length: Tokens before the answer, which the grammar does not see.

    Raises:
        ConfigError: If the tokenizer is of a kind that no grammar can be held to.
    """

    def __init__(
        self, grammar: str, tokenizer: Any, eos_token_ids: Collection[int], prompt_length: int
    ) -> None:
        self._states = GrammarStates(grammar, _vocabulary(tokenizer, eos_token_ids))
        self._prompt_length = prompt_length

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """Logits ``(1, V)`` with ``-inf`` for what may not follow ``tokens``, shape ``(n,)``."""
        answer = tuple(np.array(tokens[self._prompt_length :]).tolist())
        allowed = self._states.allowed(answer)
        mask = np.zeros(logits.shape[-1], bool)  # the logits may be wider than the vocabulary
        mask[: len(allowed)] = allowed[: len(mask)]
        return mx.where(mx.array(mask), logits, -mx.inf)


def _vocabulary(tokenizer: Any, eos_token_ids: Collection[int]) -> LLTokenizer:
    known, ends = _VOCABULARIES.setdefault(tokenizer, {}), frozenset(eos_token_ids)
    if ends not in known:
        known[ends] = _read_vocabulary(tokenizer, ends)
    return known[ends]


def _read_vocabulary(tokenizer: Any, eos_token_ids: Collection[int]) -> LLTokenizer:
    from llguidance import LLTokenizer

    if not eos_token_ids:
        raise ConfigError("a grammar needs an end-of-sequence token, and this model has none")
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ConfigError("a grammar needs a fast tokenizer (tokenizer.json); use another model")
    definition = {**json.loads(backend.to_str()), "padding": None, "truncation": None}
    try:
        return LLTokenizer(json.dumps(definition), eos_token=sorted(eos_token_ids))
    except ValueError as error:
        raise ConfigError(
            f"no grammar can be held to with this model's tokenizer: {' '.join(str(error).split())}"
        ) from error
