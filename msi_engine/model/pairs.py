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


def check_pair(draft: Path, target: Path, *, trust_remote_code: bool = False) -> None:
    """Make sure that two models have the same tokenizer and logits of the same tokens.

    Same vocabulary, special tokens, splitting of a probing text, chat template, and as many logits.

    Args:
        draft: Folder of the draft.
        target: Folder of the target.
        trust_remote_code: Let the tokenizers' own Python code run.

    Raises:
        ModelError: Naming the first difference.
    """
    # Padding beyond the vocabulary may differ between sizes of one family; comparing two
    # distributions needs the same tokens.
    widths = [vocab_size(read_config(folder)) for folder in (draft, target)]
    different = []
    if _tokenizer_files(draft) != _tokenizer_files(target):
        first, second = (
            load_tokenizer(folder, trust_remote_code=trust_remote_code)
            for folder in (draft, target)
        )
        different = [what for what, read in _TRAITS if read(first) != read(second)]
    if not different and widths[0] != widths[1]:
        different = [f"the number of logits ({widths[0]} and {widths[1]})"]
    if different:
        raise ModelError(
            f"{draft.name} and {target.name} cannot be a pair: they differ in {different[0]}; "
            "take two precisions of one model, or two models of one family"
        )


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
