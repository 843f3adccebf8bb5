"""An engine on a random model of two layers with a tokenizer of any family, for tests of text."""

from __future__ import annotations

from pathlib import Path

from msi_engine import Engine
from msi_engine.model.load import LoadedModel
from tests.engine.toy_tokenizers import tokenizer_of

PADDING = 19  # logits beyond the tokenizer's vocabulary, as real models have them


def tiny_engine(family: str = "byte_level", *, seed: int = 0) -> Engine:
    """Two layers, random weights, a context of 8192; logits wider than the vocabulary."""
    import mlx.core as mx
    from mlx.utils import tree_map
    from mlx_lm.models import llama
    from mlx_lm.tokenizer_utils import TokenizerWrapper

    tokenizer = tokenizer_of(family)
    width = len(tokenizer) + PADDING
    config = {
        "model_type": "llama",
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "vocab_size": width,
        "tie_word_embeddings": False,
    }
    model = llama.Model(llama.ModelArgs.from_dict(config))
    keys = iter(mx.random.split(mx.random.key(seed), 100))
    model.update(
        tree_map(
            lambda a: mx.random.normal(a.shape, key=next(keys)) * 0.3 + (a.ndim == 1),
            model.parameters(),
        )
    )
    mx.eval(model.parameters())
    loaded = LoadedModel(
        model=model,
        tokenizer=TokenizerWrapper(tokenizer),
        name=f"tiny-{family}",
        path=Path(f"tiny-{family}"),
        context_length=8192,
        vocab_size=width,
        eos_token_ids=frozenset([tokenizer.eos_token_id]),
        nbytes=0,
        has_chat_template=False,
    )
    return Engine(loaded)
