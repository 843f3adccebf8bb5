"""A tokenizer's vocabulary: which form decodes it, and which tokens end a word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from msi_engine.text.detokenizer import Detokenizer, Form
from msi_engine.text.table import Table, layout_of
from msi_engine.text.window import Window

_PROBES = 512  # tokens on which the table is compared with the tokenizer's own decoder


class Vocabulary:
    """How the tokens of one tokenizer become text. Make it once per tokenizer: tables are kept.

    Attributes:
        size: One more than the greatest token id. The model's logits may be wider.
        eos_token_ids: Tokens that end a sequence.
    """

    def __init__(
        self, tokenizer: Any, eos_token_ids: Iterable[int], *, special_texts: bool = False
    ) -> None:
        """Read the tokenizer's vocabulary.

        Args:
            tokenizer: mlx-lm's ``TokenizerWrapper`` or a transformers tokenizer.
            eos_token_ids: Tokens that end a sequence; they have no text.
            special_texts: Other special tokens have a text, too. Some models mark the calls of
                tools with them.
        """
        self.eos_token_ids = frozenset(eos_token_ids)
        self.size = max(tokenizer.get_vocab().values(), default=-1) + 1
        self._form = _form_of(tokenizer, self._textless(tokenizer, special_texts), self.size)
        self._masks: dict[int, np.ndarray] = {}

    def _textless(self, tokenizer: Any, special_texts: bool) -> frozenset[int]:
        """Tokens that have no text."""
        if special_texts:
            ends = (tokenizer.bos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id)
            return self.eos_token_ids | {t for t in ends if t is not None}
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            return self.eos_token_ids | frozenset(getattr(tokenizer, "all_special_ids", ()))
        added = backend.get_added_tokens_decoder()
        return self.eos_token_ids | {t for t, token in added.items() if token.special}

    def detokenizer(self, context_tokens: Sequence[int] = ()) -> Detokenizer:
        """Start a text that continues ``context_tokens``.

        The context decides the white space at the join. A character that it leaves incomplete
        is completed in the new text. Only its end is read, so a long context costs nothing.
        """
        return self._form.detokenizer(context_tokens)

    @cached_property
    def end_mask(self) -> np.ndarray:
        """Tokens that begin with white space or a newline, or are EOS. Shape ``(size,)``, bool."""
        mask = np.fromiter(
            (self._form.begins_with_space(t) for t in range(self.size)), bool, self.size
        )
        mask[[t for t in self.eos_token_ids if t < self.size]] = True
        mask.setflags(write=False)
        return mask

    def end_mask_for(self, size: int) -> np.ndarray:
        """`end_mask` fitted to logits of width ``size``: cut, or padded with False."""
        if size not in self._masks:
            mask = np.zeros(size, bool)
            mask[: self.size] = self.end_mask[:size]
            mask.setflags(write=False)
            self._masks[size] = mask
        return self._masks[size]


def _form_of(tokenizer: Any, skipped: frozenset[int], size: int) -> Form:
    """The fastest form that decodes as the tokenizer does."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    window = Window(tokenizer, skipped)
    if backend is None:
        return window
    layout = layout_of(backend)
    if layout is None or not _decodes_plainly(tokenizer):
        return window
    table = Table(backend, layout, skipped)
    # The table is our reading of the decoder; where it differs from the decoder it is not used.
    probes = [t for t in range(0, size, max(1, size // _PROBES)) if table.is_whole(t)]
    detokenizer = table.start(first=True)
    text = "".join(map(detokenizer.push, probes)) + detokenizer.flush()
    return table if text == window.decode(probes) else window


def _decodes_plainly(tokenizer: Any) -> bool:
    """False for a subclass that changes the text after the decoder, as mlx-lm has one."""
    owner = type(getattr(tokenizer.decode, "__self__", tokenizer))
    return all(
        getattr(owner, name).__module__.startswith("transformers.tokenization_")
        for name in ("decode", "_decode")
        if hasattr(owner, name)
    )
