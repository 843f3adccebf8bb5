"""Rebuild a Hugging Face tokenizer from the metadata of a GGUF file.

Knows byte-level BPE with the pre-tokenizers of GPT-2 and of SmolLM. Imports neither mlx nor
transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msi_engine.errors import UnsupportedModelError

_CONTROL = 3  # GGUF's token type of special tokens
_USER_DEFINED = 4

_BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}
_PRE_TOKENIZERS: dict[str, dict[str, Any]] = {
    "gpt-2": _BYTE_LEVEL,
    # Digits stand alone, then GPT-2's rules.
    "smollm": {
        "type": "Sequence",
        "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL],
    },
}


def tokenizer_files(metadata: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The content of ``tokenizer.json`` and ``tokenizer_config.json``.

    Args:
        metadata: The GGUF file's metadata as plain Python values.

    Raises:
        UnsupportedModelError: If it is another kind of tokenizer.
    """
    kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind != "gpt2" or pre not in _PRE_TOKENIZERS:
        raise UnsupportedModelError(
            f"GGUF tokenizer {kind!r} with pre-tokenizer {pre!r} cannot be rebuilt; "
            f"known: gpt2 with {', '.join(_PRE_TOKENIZERS)}"
        )
    return {
        "tokenizer.json": _tokenizer(metadata, _PRE_TOKENIZERS[pre]),
        "tokenizer_config.json": _config(metadata),
    }


def _tokenizer(metadata: Mapping[str, Any], pre_tokenizer: dict[str, Any]) -> dict[str, Any]:
    tokens = metadata["tokenizer.ggml.tokens"]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": list(_added_tokens(metadata).values()),
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [merge.split(" ", 1) for merge in metadata["tokenizer.ggml.merges"]],
        },
    }


def _added_tokens(metadata: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """Tokens that are matched as a whole in text, by id."""
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    return {
        i: {
            "id": i,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == _CONTROL,
        }
        for i, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (_CONTROL, _USER_DEFINED)
    }


def _config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    tokens = metadata["tokenizer.ggml.tokens"]

    def token(role: str) -> str | None:
        index = metadata.get(f"tokenizer.ggml.{role}_token_id")
        return None if index is None else tokens[index]

    added = _added_tokens(metadata)
    return {
        # The generic class takes tokenizer.json as it is; GPT2Tokenizer would put its own
        # pre-tokenizer in the place of ours.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": metadata["llama.context_length"],
        "bos_token": token("bos"),
        "eos_token": token("eos"),
        "pad_token": token("padding"),
        "unk_token": token("unknown"),
        "additional_special_tokens": [t["content"] for t in added.values() if t["special"]],
        "added_tokens_decoder": {
            str(i): {k: v for k, v in t.items() if k != "id"} for i, t in added.items()
        },
        "chat_template": metadata.get("tokenizer.chat_template"),
    }
