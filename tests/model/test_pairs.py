"""Pairs of two sizes of one family, whose logits are padded to different widths."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm.generate import generate_step
from mlx_lm.models import gemma3_text
from tokenizers import Tokenizer

from msi_engine import DecodeConfig, Engine
from msi_engine.errors import ModelError, PromptError
from msi_engine.model import load_model, load_target
from msi_engine.service import ENGINE_THREAD

MakeModel = Callable[..., Path]
PROMPT = [40, 50, 60, 70]
PADDING = 24


@pytest.fixture(autouse=True)
def _own_home(msi_home: Path) -> None:
    pass


def resized(folder: Path, more: int, *, off: float = 0.0) -> Path:
    """Give a model ``more`` logits (or take some away), and nudge its weights.

    Logits that are added are greater than all others, wherever one looks.
    """
    weights = mx.load(str(folder / "model.safetensors"))
    keys = iter(mx.random.split(mx.random.key(9), len(weights)))
    for name, weight in weights.items():
        weights[name] = weight + off * mx.std(weight) * mx.random.normal(
            weight.shape, key=next(keys)
        )
    size = len(weights["lm_head.weight"])
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        weights[name] = weights[name][: size + more]
    if more > 0:
        for name in ("lm_head.weight", "model.embed_tokens.weight"):
            least, most = (mx.full((more, weights[name].shape[1]), x) for x in (-9.0, 9.0))
            rows = mx.where(mx.arange(more)[:, None] % 2 == 0, least, most)
            weights[name] = mx.concatenate([weights[name], rows])
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    config = json.loads((folder / "config.json").read_text())
    config["vocab_size"] = size + more
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def greedy(folder: Path, num_logits: int, num: int) -> list[int]:
    """mlx-lm's own answer in the first of its logits, whatever ends it left out."""

    def own() -> list[int]:
        def cut(_: mx.array, logits: mx.array) -> mx.array:
            return mx.where(mx.arange(logits.shape[-1]) < num_logits, logits, -mx.inf)

        model = load_model(str(folder)).model
        steps = generate_step(mx.array(PROMPT), model, max_tokens=num, logits_processors=[cut])
        return [int(token) for token, _ in steps]

    return ENGINE_THREAD.call(own)


@pytest.mark.parametrize("wider", ["draft", "target"])
def test_what_no_token_belongs_to_is_left_out(wider: str, tiny_model: MakeModel):
    draft, target = tiny_model("small"), tiny_model("large")
    size = json.loads((draft / "config.json").read_text())["vocab_size"]
    resized(draft, PADDING if wider == "draft" else 0)
    resized(target, PADDING if wider == "target" else 0, off=0.3)
    engine = Engine.load(str(draft))
    options = {"target": str(target), "max_tokens": 32, "k": 1}
    wanted = greedy(target, size, 32)
    assert greedy(draft, size, 32) != wanted
    ends = [i + 1 for i, token in enumerate(wanted) if token in engine.eos_token_ids]
    wanted = wanted[: ends[0]] if ends else wanted
    for window in (1, 4, 16):
        got = engine.generate(PROMPT, refine="verify", window=window, **options)
        assert list(got.tokens) == wanted
    for residency in ("resident", "stream"):
        sampled = {"temperature": 1.5, "target_residency": residency, "refine": "margin"}
        for k, seed in ((1, 1), (4, 2)):
            drawn = engine.generate(PROMPT, **{**options, **sampled, "k": k, "seed": seed})
            assert max(drawn.tokens) < size
    opinions = engine.opinions(PROMPT, wanted, DecodeConfig(target=str(target)), of="target")
    assert [o.token for o in opinions] == wanted


def test_a_prompt_token_that_one_of_them_lacks_is_refused(tiny_model: MakeModel):
    draft, target = resized(tiny_model("small"), PADDING), tiny_model("large")
    size = json.loads((target / "config.json").read_text())["vocab_size"]
    engine = Engine.load(str(draft))
    assert engine.generate([5, size], k=1, max_tokens=2).tokens
    with pytest.raises(PromptError, match=f"{size}"):
        engine.generate([5, size], k=1, max_tokens=2, refine="verify", target=str(target))


def test_a_pair_that_lacks_logits_of_its_tokens_is_refused(tiny_model: MakeModel):
    draft, target = tiny_model("small"), resized(tiny_model("large"), -8)
    size = json.loads((draft / "config.json").read_text())["vocab_size"]
    message = rf"differ in their tokens: one of them has logits of only {size - 8} of {size}"
    with pytest.raises(ModelError, match=message):
        load_target(load_model(str(draft)), name=str(target))


def gemma(folder: Path, size: int, *, silent: bool, off: float = 0.0) -> Path:
    """Make a tiny Gemma of a model's folder; ``silent`` leaves it to the code how wide it is."""
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "intermediate_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "sliding_window_pattern": 2,
    }
    args = gemma3_text.ModelArgs.from_dict({**text, "vocab_size": size})
    keys = iter(mx.random.split(mx.random.key(3), 100))
    weights = {}
    for name, array in tree_flatten(gemma3_text.Model(args).parameters()):
        if not name.startswith("lm_head"):
            rows = mx.random.normal((400, *array.shape[1:]), key=(key := next(keys)))[: len(array)]
            noise = mx.random.normal(rows.shape, key=mx.random.split(key)[1])
            padding = mx.full((len(array) - len(rows), *array.shape[1:]), 9.0)
            prefix = "language_model." if silent else ""
            weights[prefix + name] = mx.concatenate([rows + off * noise, padding])
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    said = {"model_type": "gemma3", "text_config": text} if silent else {**text, "vocab_size": size}
    (folder / "config.json").write_text(json.dumps({**said, "eos_token_id": 2}))
    return folder


def test_a_width_that_no_config_tells_is_the_models(tiny_model: MakeModel):
    """The larger ones of Gemma 3 leave it to the code; the smallest has 64 logits fewer."""
    size = json.loads((tiny_model("any") / "config.json").read_text())["vocab_size"]
    width = 262208
    target = gemma(tiny_model("large"), width, silent=True)
    draft = gemma(tiny_model("small"), size, silent=False, off=0.2)
    assert load_model(str(target)).vocab_size == width
    engine = Engine.load(str(draft))
    options = {"target": str(target), "max_tokens": 12, "k": 1, "refine": "verify"}
    wanted = greedy(target, size, 12)
    ends = [i + 1 for i, token in enumerate(wanted) if token in engine.eos_token_ids]
    for residency in ("resident", "stream"):
        got = engine.generate(PROMPT, target_residency=residency, **options)
        assert list(got.tokens) == (wanted[: ends[0]] if ends else wanted)
        drawn = engine.generate(
            PROMPT, target_residency=residency, **options, temperature=1.5, seed=1
        )
        assert max(drawn.tokens) < size
        assert drawn.stats.refinement.rollbacks > 0


@pytest.mark.parametrize("special", [True, False])
def test_only_a_special_token_may_be_beyond_the_logits_of_one(tiny_model: MakeModel, special: bool):
    draft, target = tiny_model("small"), resized(tiny_model("large"), PADDING)
    for folder in (draft, target):
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(["<image>"])
        tokenizer.save(str(folder / "tokenizer.json"))
    if special:
        assert load_target(load_model(str(draft)), name=str(target)).path == target
        return
    with pytest.raises(ModelError, match="one of them has logits of only"):
        load_target(load_model(str(draft)), name=str(target))
