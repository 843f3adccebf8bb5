"""Fixtures of the model tests: a home folder of their own, and tiny random models."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from msi_engine.model import prepare_backend

prepare_backend()
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def msi_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder for this test alone."""
    home = tmp_path / "home"
    monkeypatch.setenv("MSI_HOME", str(home))
    return home


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Make a folder with a random model of two layers, in float32."""

    def make(name: str = "tiny", *, seed: int = 0, words: str = WORDS, template: str = TEMPLATE):
        folder = tmp_path_factory.mktemp("models") / name
        folder.mkdir()
        vocab_size = write_tokenizer(folder, words, template)
        write_weights(folder, vocab_size, seed)
        return folder

    return make


WORDS = "low lower lowest new newer newest wide wider widest the of and a to in"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
)


def write_tokenizer(folder: Path, words: str, template: str) -> int:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([words] * 3, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "bos_token": "<|im_start|>",
        "chat_template": template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return tokenizer.get_vocab_size()


def write_weights(folder: Path, vocab_size: int, seed: int) -> None:
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.models import llama

    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "vocab_size": vocab_size,
        "max_position_embeddings": 256,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "eos_token_id": 2,
    }
    model = llama.Model(llama.ModelArgs.from_dict(config))
    weights = {}
    key = mx.random.key(seed)
    for name, array in tree_flatten(model.parameters()):
        key, used = mx.random.split(key)
        weights[name] = mx.random.normal(array.shape, key=used) * 0.1 + (array.ndim == 1)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config))
