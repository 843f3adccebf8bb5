"""A language model and a tokenizer small enough to enumerate, in NumPy and plain Python."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from msi_engine.text import Vocabulary

_PIECES = (" a", " b", " c", ".", "\n", "</s>")


class ToyModel:
    """Next-token logits as a pure function of the token history.

    Args:
        vocab_size: V, the width of the logits.
        rule: Logits for a history, shape ``(V,)``; ``-inf`` is allowed, NaN is not.

    Example:
        A model of three tokens that never repeats token 0 and else prefers it:

            model = ToyModel.from_table({(): [2.0, 0.0, 0.0], (0,): [-inf, 0.0, 0.0]})
    """

    def __init__(self, vocab_size: int, rule: Callable[[tuple[int, ...]], Any]) -> None:
        self.vocab_size = vocab_size
        self._rule = lru_cache(maxsize=None)(rule)

    @classmethod
    def from_table(cls, table: Mapping[tuple[int, ...], Sequence[float]]) -> ToyModel:
        """A hand-made model: the longest key that ends the history decides.

        Args:
            table: Ends of histories to logits. The key ``()`` is needed, for all others.

        Raises:
            ValueError: If the key ``()`` is missing or the rows differ in length.
        """
        if () not in table:
            raise ValueError("the table has no row for the key (); add one for all other histories")
        if len({len(row) for row in table.values()}) != 1:
            raise ValueError("the rows of the table differ in length; give each V logits")
        rows = {tuple(key): row for key, row in table.items()}
        longest = max(map(len, rows))

        def rule(history: tuple[int, ...]) -> Sequence[float]:
            for length in range(min(longest, len(history)), 0, -1):
                if history[-length:] in rows:
                    return rows[history[-length:]]
            return rows[()]

        return cls(len(rows[()]), rule)

    @classmethod
    def seeded(
        cls, vocab_size: int, seed: int = 0, *, order: int = 2, scale: float = 2.0
    ) -> ToyModel:
        """A random model: normal logits that depend on the last ``order`` tokens.

        Args:
            vocab_size: V.
            seed: The same seed gives the same model on every machine.
            order: Tokens that the model remembers; 0 is a constant distribution.
            scale: Standard deviation of the logits, nats.
        """

        def rule(history: tuple[int, ...]) -> np.ndarray:
            recent = history[max(len(history) - order, 0) :]
            rng = np.random.default_rng([seed, len(recent), *recent])
            return rng.normal(0.0, scale, vocab_size)

        return cls(vocab_size, rule)

    def logits(self, history: Sequence[int]) -> np.ndarray:
        """Logits after ``history``. Shape ``(V,)``, float32, the caller's own copy."""
        logits = np.array(self._rule(tuple(history)), np.float32)
        if logits.shape != (self.vocab_size,) or np.isnan(logits).any():
            raise ValueError(
                f"the rule gave {logits} after {tuple(history)}; it must give "
                f"{self.vocab_size} numbers"
            )
        return logits

    def logprobs(self, history: Sequence[int]) -> np.ndarray:
        """log_softmax of `logits` in float64, nats. Shape ``(V,)``."""
        logits = self.logits(history).astype(np.float64)
        shifted = logits - logits.max()
        return np.asarray(shifted - np.log(np.exp(shifted).sum()))


class ToyTokenizer:
    """A tokenizer whose token ids are positions in a list of pieces.

    Has what `Vocabulary` and the engine ask of a tokenizer and no more.

    Args:
        pieces: What each token stands for, all different. Text, or bytes where a token is only
            part of a character.
        eos: Token ids that end a sequence and have no text; the last piece if None.
    """

    def __init__(
        self, pieces: Sequence[str | bytes] = _PIECES, eos: Collection[int] | None = None
    ) -> None:
        self._pieces = [p.encode() if isinstance(p, str) else p for p in pieces]
        if len(set(self._pieces)) != len(self._pieces):
            raise ValueError(f"two pieces are equal in {list(pieces)}; token ids must be unique")
        self.all_special_ids = sorted([len(pieces) - 1] if eos is None else eos)
        self.vocabulary = Vocabulary(self, self.all_special_ids)

    @property
    def size(self) -> int:
        """V, the number of tokens."""
        return len(self._pieces)

    def get_vocab(self) -> dict[str, int]:
        """Token strings to ids."""
        return {piece.decode("latin-1"): token for token, piece in enumerate(self._pieces)}

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """The longest piece at each place; what no piece matches is left out."""
        data, tokens = text.encode(), []
        ordinary = [t for t in range(self.size) if t not in self.all_special_ids]
        while data:
            fitting = [t for t in ordinary if self._pieces[t] and data.startswith(self._pieces[t])]
            if not fitting:
                data = data[1:]
                continue
            best = max(fitting, key=lambda t: len(self._pieces[t]))
            tokens.append(best)
            data = data[len(self._pieces[best]) :]
        return tokens

    def decode(self, tokens: Sequence[int], **_: Any) -> str:
        """The pieces, joined; special tokens have no text."""
        ordinary = [t for t in tokens if t not in self.all_special_ids]
        return b"".join(self._pieces[t] for t in ordinary).decode(errors="replace")
