"""Is one model a draft for another?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msi_engine.errors import ModelError

_PROBE = "Grüße, 3.14 naïve  cafés\n\tif x == 42: print('東京 🙂')\r\n"


def check_pair(draft: Path, target: Path) -> None:
    """Make sure that two models have the same tokenizer.

    Same vocabulary, special tokens, splitting of a probing text, and chat template.

    Args:
        draft: Folder of the draft.
        target: Folder of the target.

    Raises:
        ModelError: Naming the first difference.
    """
    from mlx_lm import utils

    load_tokenizer: Callable[[Path], Any] = utils.load_tokenizer
    first, second = (load_tokenizer(folder) for folder in (draft, target))
    for what, read in _TRAITS:
        if read(first) != read(second):
            raise ModelError(
                f"{draft.name} and {target.name} cannot be a pair: they differ in {what}"
            )


def _special_tokens(tokenizer: Any) -> Any:
    return tokenizer.special_tokens_map, sorted(tokenizer.all_special_ids)


_TRAITS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("vocabulary", lambda t: t.get_vocab()),
    ("special tokens", _special_tokens),
    ("how they split text", lambda t: t.encode(_PROBE)),
    ("chat template", lambda t: t.chat_template),
)
