"""The key-value cache of one generation: a prefix stored once, and short tails of K paths.

The prefix lives in mlx-lm's own caches, so that a single sequence costs and gives exactly what
mlx-lm costs and gives. A fork opens empty tails over it (nothing is copied), a collapse appends one
path's tail to it.

Memory is O(prefix + K x segment) at every moment. Tails grow in steps of ``segment_length``
columns, the prefix in mlx-lm's steps of 256; growing or closing gaps copies one layer at a time.
Window layers hold what mlx-lm's hold: the window, and after a prefill its last chunk; a collapse
copies the window. Models with attention code of their own, and latent attention over several tokens
at once, are given a layer's keys gathered for all paths: right, but K prefixes of that one layer
for the moment that it is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from msi_engine.cache import hook, support
from msi_engine.cache.fork import Fork
from msi_engine.cache.upstream import make_prompt_cache, trim_prompt_cache
from msi_engine.errors import CacheError, NotTrimmableError


class SharedPrefixCache:
    """Keys, values and states of one generation.

    It is *linear* (one sequence, the prefix) or *forked* (paths with tails over the prefix).
    Live paths always have tails of one length. Not for use from several threads at once.

    Attributes:
        prefix_length: Tokens in the prefix.
    """

    def __init__(
        self,
        model: Module,
        prefix: list[Any],
        *,
        segment_length: int,
        quantization: support.Quantization | None,
    ) -> None:
        """Use `for_model`, which checks the model first."""
        self.prefix_length = 0
        self._model = model
        self._prefix = prefix
        self._step = segment_length
        self._quantization = quantization
        self._fork: Fork | None = None
        self._modules: frozenset[ModuleType] | None = None  # where the hook goes
        self._intact = True

    @classmethod
    def for_model(
        cls,
        model: Module,
        *,
        segment_length: int = 32,
        max_kv_size: int | None = None,
        kv_bits: int | None = None,
        kv_group_size: int = 64,
        quantized_kv_start: int = 5000,
    ) -> SharedPrefixCache:
        """An empty cache for ``model``.

        Args:
            model: A model of mlx-lm, as loaded.
            segment_length: Columns by which tails grow; the usual longest segment.
            max_kv_size: Tokens of a sliding window over the cache. mlx-lm ignores it for models
                that make caches of their own; here it is refused for them.
            kv_bits: Bits of a quantised cache; None keeps it as it is.
            kv_group_size: Entries that share a scale.
            quantized_kv_start: Tokens from which on the cache is quantised.

        Raises:
            UnsupportedModelError: If this model, or this combination, cannot be served rightly.
        """
        quantization = None
        if kv_bits is not None:
            quantization = support.Quantization(kv_bits, kv_group_size, quantized_kv_start)
        if max_kv_size is not None:
            support.check_window(model)
        prefix = make_prompt_cache(model, max_kv_size)
        support.check(model, prefix, quantization)

        def opened() -> SharedPrefixCache:
            plain = make_prompt_cache(model)
            return cls(model, plain, segment_length=segment_length, quantization=None)

        support.check_proof(model, opened)
        return cls(model, prefix, segment_length=segment_length, quantization=quantization)

    # One sequence

    def prefill(
        self,
        tokens: Sequence[int],
        step_size: int,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Append ``tokens`` to the prefix in chunks of ``step_size`` and compute it.

        Logits are never computed. ``on_progress(done, total)`` is called after each chunk.

        Raises:
            CacheError: If paths are open.
        """
        self._require_linear("prefill")
        for start in range(0, len(tokens), step_size):
            chunk = mx.array(list(tokens[start : start + step_size]))[None]
            self.forward(chunk)
            self.evaluate()
            mx.clear_cache()
            if on_progress is not None:
                on_progress(min(start + step_size, len(tokens)), len(tokens))

    def forward(self, tokens: mx.array) -> mx.array:
        """Append tokens and return the logits after each of them, lazily.

        Args:
            tokens: Linear: shape ``(1, L)``. Forked: shape ``(len(live), L)``, row i belonging to
                path ``live[i]``. They need not be evaluated yet.

        Returns:
            Logits, shape ``(rows, L, V)``.

        Raises:
            CacheError: If no path is live, or the number of rows is wrong.
        """
        self._require_intact()
        rows = 1 if self._fork is None else len(self._fork.live)
        if rows == 0:
            raise CacheError("no path is live; branch or collapse")
        if tokens.ndim != 2 or tokens.shape[0] != rows or tokens.shape[1] == 0:
            raise CacheError(
                f"tokens must have shape ({rows}, L), one row for each sequence, "
                f"got {tuple(tokens.shape)}"
            )
        if self._fork is not None:
            return self._fork.forward(tokens, self._quantization)
        return self._append(tokens)

    def can_trim(self, num_tokens: int) -> bool:
        """Whether `trim` can take back that many tokens."""
        return (
            self._fork is None
            and 0 <= num_tokens <= self.prefix_length
            and all(support.can_trim(c, num_tokens) for c in self._prefix)
        )

    def trim(self, num_tokens: int) -> None:
        """Take back the last tokens of the prefix.

        Raises:
            NotTrimmableError: If a layer's state cannot be taken back that far.
            CacheError: If paths are open, or there are fewer tokens.
        """
        self._require_linear("trim")
        if not 0 <= num_tokens <= self.prefix_length:
            raise CacheError(f"cannot trim {num_tokens} of {self.prefix_length} tokens")
        if num_tokens == 0:
            return
        if not self.can_trim(num_tokens):
            kinds = sorted({type(c).__name__ for c in support.members(self._prefix)})
            raise NotTrimmableError(
                f"{num_tokens} tokens cannot be taken back from {', '.join(kinds)}; "
                "fork before tokens that may have to go"
            )
        trim_prompt_cache(self._prefix, num_tokens)
        self.prefix_length -= num_tokens

    # Paths

    @property
    def live(self) -> tuple[int, ...]:
        """Paths that the next `forward` steps, in row order; empty when linear."""
        return () if self._fork is None else tuple(self._fork.live)

    def fork(self, num_paths: int) -> None:
        """Open ``num_paths`` empty tails over the prefix, paths 0 to ``num_paths`` - 1.

        Raises:
            CacheError: If paths are open already, or there would be none.
        """
        self._require_linear("fork")
        if num_paths < 1:
            raise CacheError(f"a fork needs at least 1 path, got {num_paths}")
        if self._modules is None:
            self._modules = hook.defining_modules(self._model)
        hook.install(self._modules)
        self._fork = Fork(self._model, self._prefix, num_paths, self._step)

    def park(self, path: int) -> None:
        """Stop stepping a live path; its tail is kept until it is collapsed or dropped.

        Raises:
            CacheError: If the path is not live.
        """
        self._open("park").park(path)

    def drop(self, path: int) -> None:
        """Forget the tail of a live or parked path.

        Raises:
            CacheError: If there is no such path.
        """
        self._open("drop").drop(path)

    def branch(self) -> int:
        """A fresh live path with an empty tail at the fork point, when no path is live.

        It counts as one more path against the bound on memory while the parked ones are kept.

        Raises:
            CacheError: If the cache is linear or a path is live.
        """
        return self._open("branch").branch()

    def truncate_tails(self, length: int) -> None:
        """Take the tails of all live paths back to ``length`` tokens.

        A recurrent state is brought there by feeding the tokens again from the fork.

        Raises:
            CacheError: If the cache is linear or the tails are shorter.
        """
        self._open("truncate").truncate(length)

    def collapse(self, path: int, length: int | None = None) -> int:
        """Make a path's tail part of the prefix, forget all others, and be linear again.

        The tail is appended in place and computed. Only a recurrent model, when ``length`` is less
        than the tail, has to feed these tokens once more.

        Args:
            path: A live or parked path.
            length: How many of its tail's tokens to take; all when None.

        Returns:
            How many passes, since the fork, have fed tokens again to take a recurrent state back.

        Raises:
            CacheError: If there is no such path, or its tail is shorter.
        """
        fork = self._open("collapse")
        self.prefix_length += fork.commit(path, length)
        self._fork = None
        self.evaluate()
        return fork.replays

    def abandon(self) -> None:
        """Forget all paths and be linear again; the prefix is as it was before the fork."""
        self._fork = None

    @property
    def is_intact(self) -> bool:
        """False once a pass over the prefix has broken off half-way; the cache is then useless."""
        return self._intact

    # Memory

    @property
    def nbytes(self) -> int:
        """Bytes allocated now, prefix and tails."""
        prefix: int = sum(c.nbytes for c in support.members(self._prefix) if not c.empty())
        return prefix + (0 if self._fork is None else self._fork.nbytes)

    def evaluate(self) -> None:
        """Compute everything held, and nothing else (no logits)."""
        mx.eval([c.state for c in self._prefix], [] if self._fork is None else self._fork.arrays())

    def _append(self, tokens: mx.array) -> mx.array:
        self._intact = False  # stays so if the model raises half-way: some layers have the tokens
        logits: mx.array = self._model(tokens, cache=self._prefix)
        self._intact = True
        self.prefix_length += tokens.shape[1]
        if self._quantization is not None:
            self._prefix[:] = [self._quantization.applied(c) for c in self._prefix]
        return logits

    def _open(self, what: str) -> Fork:
        self._require_intact()
        if self._fork is None:
            raise CacheError(f"cannot {what}: no paths are open; fork first")
        return self._fork

    def _require_linear(self, what: str) -> None:
        self._require_intact()
        if self._fork is not None:
            raise CacheError(f"cannot {what} while paths are open; collapse first")

    def _require_intact(self) -> None:
        if not self._intact:
            raise CacheError(
                "a forward pass broke off half-way through the layers; make a new cache"
            )
