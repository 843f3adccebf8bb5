"""Where a grammar stands after a sequence of tokens. Pure of MLX.

A function of the tokens, whatever was asked before: paths diverge, are dropped and rolled back
without a word to it. Matchers of recent sequences are kept, so that one more token costs one step
of the grammar and not a walk through the answer.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from msi_engine.errors import ConfigError, DecodeError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_KEPT = 256  # more than two steps of 64 paths; a matcher of a long answer holds some kilobytes

Tokens = tuple[int, ...]


class GrammarStates:
    """The states of one grammar over one vocabulary.

    Args:
        grammar: Text that llguidance reads.
        tokenizer: The vocabulary, as llguidance has it.

    Raises:
        ConfigError: If the grammar does not go with the vocabulary.
    """

    def __init__(self, grammar: str, tokenizer: LLTokenizer) -> None:
        from llguidance import LLMatcher

        start = LLMatcher(tokenizer, grammar, log_level=0)
        if start.is_error():
            raise ConfigError(f"the grammar cannot be used: {_reason(start)}")
        self._size = tokenizer.vocab_size
        self._start = start
        self._kept: OrderedDict[Tokens, LLMatcher | None] = OrderedDict()

    def allowed(self, tokens: Tokens) -> np.ndarray:
        """Tokens that may follow. Shape ``(size of the vocabulary,)``, bool, the caller's own.

        Where the answer may end, end-of-sequence is among them; where it must, nothing else is.
        After tokens that the grammar does not allow, nothing is.

        Raises:
            DecodeError: If the grammar has become too large to go on with.
        """
        matcher = self._matcher(tokens)
        if matcher is None:
            return np.zeros(self._size, bool)
        packed = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        _check(matcher)
        return np.unpackbits(packed, count=self._size, bitorder="little").astype(bool)

    def _matcher(self, tokens: Tokens) -> LLMatcher | None:
        """The matcher that has read ``tokens``; None if it cannot have."""
        if tokens not in self._kept:
            self._kept[tokens] = self._read(tokens)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(tokens)
        return self._kept[tokens]

    def _read(self, tokens: Tokens) -> LLMatcher | None:
        known = tokens[:-1]
        if known not in self._kept:
            read = (k for k in self._kept if tokens[: len(k)] == k)
            known = max(read, key=len, default=())
        matcher = self._kept.get(known, self._start)
        if matcher is None:
            return None
        rest = list(tokens[len(known) :])
        if matcher.validate_tokens(rest) < len(rest):
            return None
        matcher = matcher.deep_copy()
        matcher.consume_tokens(rest)
        _check(matcher)
        return matcher


def _check(matcher: LLMatcher) -> None:
    if matcher.is_error():
        raise DecodeError(f"the grammar cannot go on: {_reason(matcher)}; simplify it")


def _reason(matcher: LLMatcher) -> str:
    """The library's error on one line, without the dump of its state and of the whole grammar."""
    reason = " ".join(matcher.get_error().split()).partition(" <state>")[0]
    return "no text that ends fits it" if reason == "NoExtensionBias" else reason
