"""Is one model a draft for another?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msi_engine.errors import ModelError
from msi_engine.model.files import read_config
from msi_engine.model.load import load_tokenizer, vocab_size

DRAFT_GROUP_SIZE = 64
"""Of every draft that is made here."""

_FILES = (
    *("tokenizer*", "vocab.*", "merges.txt", "*tokens*.json", "*.tiktoken", "chat_template*"),
    *("*.jinja", "*.py"),
)
_PROBE = "Grüße, 3.14 naïve  cafés\n\tif x == 42: print('東京 🙂')\r\n"


def check_pair(
    draft: Path,
    target: Path,
    sizes: tuple[int | None, int | None] | None = None,
    *,
    trust_remote_code: bool = False,
) -> None:
    """Make sure that two models have the same tokenizer, and logits of all its tokens.

    Same vocabulary, special tokens, splitting of a probing text, and chat template. Sizes of one
    family may differ in how many logits they give beyond their tokens (see `common_logits`). Only
    special tokens that end nothing, as those that stand for images, may be beyond those of one.

    Args:
        draft: Folder of the draft.
        target: Folder of the target.
        sizes: How many logits each gives; None takes the word of their configs.
        trust_remote_code: Let the tokenizers' own Python code run.

    Raises:
        ModelError: Naming the first difference.
    """
    if sizes is None:
        sizes = vocab_size(read_config(draft)), vocab_size(read_config(target))
    common = common_logits(*sizes)
    different = []
    if common is not None or _tokenizer_files(draft) != _tokenizer_files(target):
        first, second = (
            load_tokenizer(folder, trust_remote_code=trust_remote_code)
            for folder in (draft, target)
        )
        different = [what for what, read in _TRAITS if read(first) != read(second)]
        tokens = _writable(first)
        if common is not None and common < tokens:
            different.append(f"their tokens: one of them has logits of only {common} of {tokens}")
    if different:
        raise ModelError(
            f"{draft.name} and {target.name} cannot be a pair: they differ in {different[0]}; "
            "take two precisions of one model, or two models of one family"
        )


def common_logits(draft: int | None, target: int | None) -> int | None:
    """How many logits two models both give, the first of each; None if they give as many.

    What one gives beyond them belongs to no token: matrices are padded to a round size, and the
    sizes of one family to different ones. The other has no embedding of it, either.

    Args:
        draft: How many the draft gives; None if nobody knows.
        target: The same of the target.
    """
    if draft is None or target is None or draft == target:
        return None
    return min(draft, target)


def _writable(tokenizer: Any) -> int:
    """One more than the greatest token that a model may have to write."""
    added = tokenizer.added_tokens_decoder.items()
    silent = {token for token, how in added if how.special} - set(tokenizer.eos_token_ids)
    return max(set(tokenizer.get_vocab().values()) - silent, default=-1) + 1


def _tokenizer_files(folder: Path) -> dict[str, bytes]:
    """All that a tokenizer is made of; of two folders with the same, none need be made."""
    paths = (path for pattern in _FILES for path in folder.glob(pattern))
    return {path.name: path.read_bytes() for path in paths}


def _special_tokens(tokenizer: Any) -> Any:
    return tokenizer.special_tokens_map, sorted(tokenizer.all_special_ids)


_TRAITS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("vocabulary", lambda t: t.get_vocab()),
    ("special tokens", _special_tokens),
    ("how they split text", lambda t: t.encode(_PROBE)),
    ("chat template", lambda t: t.chat_template),
)
