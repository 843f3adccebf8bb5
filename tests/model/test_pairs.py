"""Pairs of two sizes of one family, whose logits are padded to different widths."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step

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
