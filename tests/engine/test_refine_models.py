"""Refinement on real caches: every kind of cache of mlx-lm, and a fault at every point."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.generate import generate_step

from msi_engine import Engine
from msi_engine.bundle import Bundle
from msi_engine.cache import SharedPrefixCache
from msi_engine.decoder import Decoder
from msi_engine.drawing import Drawer
from msi_engine.errors import ConfigError, PromptTooLongError, UnsupportedModelError
from msi_engine.events import Collapsed, Committed
from msi_engine.feed import Accept, Reject
from msi_engine.growth import Growth
from msi_engine.outlet import Outlet
from msi_engine.prefix import PrefixKeeper
from msi_engine.refine import Refinement
from msi_engine.runner import Runner
from msi_engine.sweeper import Sweeper
from tests.engine.tiny_pair import EOS, PROMPT, engine_of, models

# Full attention, windows (passed by the answer), chunks, states, convolutions and mixtures.
# The number is the noise on the draft: so much that it is wrong often, and not always.
ARCHITECTURES = {
    "llama": 0.08,
    "qwen3": 0.08,
    "gemma3_text": 0.02,
    "gpt_oss": 0.08,
    "llama4": 0.08,
    "deepseek_v3": 0.08,
    "mamba2": 0.08,
    "qwen3_next": 0.08,
    "lfm2": 0.08,
    "recurrent_gemma": 0.08,
    "falcon_h1": 0.08,
}
NUM_TOKENS = 48


def greedy_of(model: Any, num: int, prompt: list[int] = PROMPT, **options: Any) -> list[int]:
    """mlx-lm's own greedy answer."""
    tokens: list[int] = []
    for token, _ in generate_step(mx.array(prompt), model, max_tokens=num, **options):
        tokens.append(int(token))
        if token == EOS:
            break
    return tokens


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_verified_text_is_the_targets_on_every_kind_of_cache(name: str) -> None:
    draft, target = models(name, ARCHITECTURES[name])
    engine = engine_of(draft, target)
    wanted = greedy_of(target, NUM_TOKENS)
    accepted = drafted = 0
    for window in (1, 4, 16, 64):
        got = engine.generate(PROMPT, k=1, refine="verify", window=window, max_tokens=NUM_TOKENS)
        assert (window, list(got.tokens)) == (window, wanted)
        accepted += got.stats.refinement.accepted
        drafted += got.stats.refinement.drafted
    assert 0.05 < accepted / drafted < 0.98  # the draft is of some use, and not the target


@pytest.mark.parametrize("start", [0, len(PROMPT) - 1, len(PROMPT), 30, 31])
def test_verified_text_is_the_targets_where_its_cache_is_quantised_on_the_way(start: int) -> None:
    """So few bits that it matters which tokens see a quantised cache."""
    draft, target = models("llama", 0.05, hidden_size=128, head_dim=32)
    quantised = {"kv_bits": 2, "kv_group_size": 32, "quantized_kv_start": start}
    wanted = greedy_of(target, 24, **quantised)
    assert wanted != greedy_of(target, 24)
    for window in (1, 5, 24):
        answer = engine_of(draft, target).generate(
            PROMPT, k=1, refine="verify", window=window, max_tokens=24, **quantised
        )
        assert (window, list(answer.tokens)) == (window, wanted)


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "mamba2"])
@pytest.mark.parametrize("mode", ["verify", "margin", "rescore"])
def test_many_paths_come_out_the_same_when_the_caches_are_reused(name: str, mode: str) -> None:
    """A second turn starts from what the first left behind, draft and target alike."""
    draft, target = models(name)
    options = {"k": 3, "refine": mode, "max_tokens": 24, "segment_length": 7}
    engine = engine_of(draft, target)
    first = engine.generate(PROMPT, **options)
    longer = [*PROMPT, *first.tokens, 17, 4]
    again = engine.generate(longer, **options)
    alone = engine_of(draft, target).generate(longer, **options)
    assert again.tokens == alone.tokens
    if name == "llama":  # the others cannot always go back to where the prompts part
        assert again.stats.prefilled_tokens < len(longer)


def test_rescoring_costs_one_sweep_a_collapse_and_gives_the_targets_logprobs() -> None:
    draft, target = models("llama")
    answer = engine_of(draft, target).generate(
        PROMPT, k=4, refine="rescore", collapse="argmax", max_tokens=30, segment_length=6
    )
    history = list(PROMPT)
    for collapse in answer.trace.collapses:
        counted = [p for p in collapse.paths if p.status != "dropped"]
        if len(counted) > 1:
            costs = {p.index: logprob(target, history, p.tokens) for p in counted}
            for p in counted:
                assert p.logprob == pytest.approx(costs[p.index], abs=1e-3)
            means = {p.index: costs[p.index] / len(p.tokens) for p in counted}
            assert collapse.winner == max(means, key=means.get)
        history += collapse.tokens
    assert 0 < answer.stats.refinement.sweeps <= len(answer.trace.collapses)


def logprob(model: Any, history: list[int], tokens: tuple[int, ...]) -> float:
    logits = model(mx.array([[*history, *tokens]]))[0].astype(mx.float32)
    logprobs = np.array(logits - mx.logsumexp(logits, axis=-1, keepdims=True))
    return float(sum(logprobs[len(history) - 1 + i, t] for i, t in enumerate(tokens)))


@pytest.mark.parametrize("name", ["llama", "mamba2", "gemma3_text"])
def test_a_sweep_that_breaks_off_leaves_the_target_as_it_was(name: str) -> None:
    _, target = models(name)
    cache = SharedPrefixCache.for_model(target)
    sweeper = Sweeper(cache, [], lambda: PROMPT, 512)
    cache.prefill(PROMPT[:-4], 512)  # three committed tokens are late
    wanted = [row.raw for row in sweeper.sweep([[3, 1, 4, 1, 5]])]
    sweeper.settle(Reject())
    layer = target.layers[-1]
    with raising_at(type(layer), "__call__", 1), pytest.raises(Fault):
        sweeper.sweep([[3, 1, 4, 1, 5]])
    again = [row.raw for row in sweeper.sweep([[3, 1, 4, 1, 5]])]
    np.testing.assert_array_equal(np.stack(again), np.stack(wanted))
    sweeper.settle(Accept(0, 2))
    assert cache.prefix_length == len(PROMPT) + 2


# A fault at every point


class Fault(Exception):
    """Raised where nobody expects it."""


@contextlib.contextmanager
def raising_at(owner: type, name: str, call: int) -> Iterator[list[int]]:
    """The given call of a method, counted from 1, raises; 0 only counts. Yields the count."""
    original: Callable[..., Any] = getattr(owner, name)
    calls = [0]

    def method(*args: Any, **keywords: Any) -> Any:
        calls[0] += 1
        if calls[0] == call:
            raise Fault(f"{owner.__name__}.{name}, call {call}")
        return original(*args, **keywords)

    setattr(owner, name, method)
    try:
        yield calls
    finally:
        setattr(owner, name, original)


POINTS: list[tuple[type, str]] = [
    *((SharedPrefixCache, n) for n in ("fork", "forward", "collapse", "park", "drop", "evaluate")),
    *((Sweeper, n) for n in ("sweep", "settle", "_opinions")),
    *((Runner, n) for n in ("run", "_apply", "_forward")),
    *((Refinement, n) for n in ("begin", "flagged", "judge", "account", "_redraw")),
    *((Decoder, n) for n in ("_sweep", "_verify", "_roll_back", "_commit", "_settle_target")),
    *((Decoder, n) for n in ("_spawn", "_finish")),
    *((Growth, n) for n in ("start", "step", "ending", "replay")),
    (Drawer, "verify_stream"),
    (Bundle, "reports"),
    (Outlet, "offer"),
    (PrefixKeeper, "keep"),
]


@pytest.mark.parametrize(("name", "k"), [("llama", 1), ("llama", 3), ("mamba2", 2)])
def test_a_fault_at_any_point_fails_cleanly_and_the_next_request_is_served(
    name: str, k: int
) -> None:
    draft, target = models(name, 0.3)
    options: dict[str, Any] = {
        "k": k,
        "refine": "verify",
        "window": 4,
        "segment_length": 5,
        "max_tokens": 8,
        "seed": 1,
    }
    engine = engine_of(draft, target)
    wanted = engine.generate(PROMPT, **options)
    assert wanted.stats.refinement.rollbacks > 0
    for owner, method in POINTS:
        with raising_at(owner, method, 0) as calls:
            assert engine.generate(PROMPT, **options).tokens == wanted.tokens
        reached = calls[0]
        # `park` and `drop` are for paths beside the first, `_redraw` and the like for what flips.
        assert reached or method in ("park", "drop")
        for call in sorted({1, 2, reached // 2, reached} & set(range(1, reached + 1))):
            committed = fails(engine, owner, method, call, options)
            assert wanted.text.startswith(committed)
            again = engine.generate(PROMPT, **options)
            assert (again.tokens, again.text) == (wanted.tokens, wanted.text), (owner, method, call)


def fails(engine: Engine, owner: type, method: str, call: int, options: dict[str, Any]) -> str:
    """Run into the fault; the text that was handed out before."""
    text = ""
    stream = engine.stream(PROMPT, **options)
    with raising_at(owner, method, call):
        while True:
            try:
                event = next(stream)
            except Fault:
                return text
            text += event.text if isinstance(event, Committed) else ""


def test_a_fault_leaves_no_bytes_behind() -> None:
    engine = engine_of(*models("llama"))
    options = {"k": 3, "refine": "verify", "max_tokens": 12, "segment_length": 5}
    pair = engine._held._pair[1]

    def kept() -> int:
        engine.generate(PROMPT, **options)
        caches = [keeper._kept.cache.nbytes for keeper in (pair.keeper, pair.target.keeper)]
        return sum(caches)

    before = kept()
    fails(engine, Sweeper, "_opinions", 2, options)
    assert pair.keeper._kept is None
    assert pair.target.keeper._kept is None
    assert kept() == before


@pytest.mark.parametrize("name", ["llama", "mamba2"])
@pytest.mark.parametrize("options", [{"k": 1, "refine": "verify"}, {"k": 3, "refine": "rescore"}])
def test_every_pass_after_the_prompt_is_paid_for(
    name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those too that take a recurrent state back."""
    draft, target = models(name, 0.3)
    engine = with_target_of(engine_of(draft, target), bytes_per_sweep=5)
    key, pair = engine._held._pair
    engine._held._pair = (key, replace(pair, target=replace(pair.target, draft_bytes=3)))
    passes = {id(draft): 0, id(target): 0}
    run = type(draft).__call__

    def counted(model: Any, *args: Any, **keywords: Any) -> Any:
        passes[id(model)] += 1
        return run(model, *args, **keywords)

    monkeypatch.setattr(type(draft), "__call__", counted)
    answer = engine.generate(PROMPT, window=6, segment_length=6, max_tokens=24, **options)
    cost = answer.stats.refinement
    assert cost.draft_bytes == 3 * (passes[id(draft)] - 1)  # the prompt's, but for its last token
    assert cost.target_bytes == 5 * (passes[id(target)] - 1)
    if name == "mamba2" and cost.rollbacks:
        assert passes[id(target)] - 1 > cost.sweeps


@pytest.mark.parametrize("late", [3, 256, 700])
def test_a_sweep_makes_logits_of_few_tokens_that_nobody_asked_about(late: int) -> None:
    """A stretch that was not flagged may be long, and logits are as wide as the vocabulary."""
    _, target = models("llama")
    history = [(7 * i) % EOS for i in range(20 + late)]
    row = [5, 9, 2, 41]
    cache = SharedPrefixCache.for_model(target, segment_length=32)
    cache.prefill(history[:20], 2048)
    sweeper = Sweeper(cache, [], lambda: history, 2048)
    lengths = []
    forward = cache.forward

    def noted(tokens: mx.array) -> mx.array:
        lengths.append(tokens.shape[1])
        return forward(tokens)

    cache.forward = noted
    got = np.stack([opinion.raw for opinion in sweeper.sweep([row])])
    wanted = target(mx.array([history + row]))[0, len(history) - 1 : -1]
    np.testing.assert_allclose(got, np.array(wanted), atol=1e-4)
    assert lengths[-1] < 260  # those before it are read for the cache alone
    assert sweeper.passes == (1 if late <= 256 else 2)


def test_given_up_in_the_middle_the_engine_serves_the_next() -> None:
    engine = engine_of(*models("llama"))
    options = {"k": 1, "refine": "verify", "window": 3, "max_tokens": 20}
    wanted = engine.generate(PROMPT, **options)
    for after in (1, 4, 9):
        events = engine.stream(PROMPT, **options)
        for _ in range(after):
            next(events)
        events.close()
        assert engine.generate(PROMPT, **options).tokens == wanted.tokens
    assert any(isinstance(e, Collapsed) for e in engine.stream(PROMPT, **options))


def test_an_option_that_a_model_refuses_does_not_cost_its_target() -> None:
    """Only files that have changed have the target read anew; this one has none to be read from."""
    engine = engine_of(*models("llama"))
    options = {"k": 1, "refine": "verify", "max_tokens": 8}
    before = engine.generate(PROMPT, **options)
    with pytest.raises(UnsupportedModelError, match="kv_bits cannot be used"):
        engine.generate(PROMPT, kv_bits=4, kv_group_size=32, **options)
    assert engine.generate(PROMPT, **options).tokens == before.tokens


@pytest.mark.parametrize("refine", ["off", "verify"])
def test_a_bias_of_a_token_that_the_model_lacks_is_refused(refine: str) -> None:
    """Some tokenizers have more tokens than the model gives logits of: it would be written past."""
    engine = engine_of(*models("llama"))
    loaded = replace(engine._held.loaded, vocab_size=90)
    key, pair = engine._held._pair
    engine._held.loaded = loaded
    engine._held._pair = (key, replace(pair, draft=loaded))
    for token in (90, EOS):
        with pytest.raises(ConfigError, match=f"token {token} .* ids go from 0 to 89"):
            engine.generate(PROMPT[:9], k=1, refine=refine, logit_bias={token: 5.0}, max_tokens=2)
    got = engine.generate(PROMPT[:9], k=1, refine=refine, logit_bias={89: 99.0}, max_tokens=1)
    assert got.tokens == (89,)


def with_target_of(engine: Engine, **values: Any) -> Engine:
    """The engine with other facts of its target."""
    assert engine._held._pair is not None
    key, pair = engine._held._pair
    model = replace(pair.target.model, **values)
    engine._held._pair = (key, replace(pair, target=replace(pair.target, model=model)))
    return engine


@pytest.mark.parametrize("options", [{"k": 1, "refine": "verify"}, {"k": 3, "refine": "margin"}])
def test_a_token_that_ends_an_answer_for_the_target_alone_ends_it(options: dict[str, Any]) -> None:
    draft, target = models("llama")
    on = engine_of(draft, target).generate(PROMPT, max_tokens=16, tau=1000.0, **options)
    end = on.tokens[4]
    first = on.tokens.index(end)
    engine = with_target_of(engine_of(draft, target), eos_token_ids=frozenset([end]))
    got = engine.generate(PROMPT, max_tokens=16, tau=1000.0, **options)
    if options["k"] == 1:
        assert got.tokens == on.tokens[: first + 1]
    assert got.tokens[-1] == end
    assert got.finish_reason == "eos"
    assert end not in got.tokens[:-1]


def test_the_shorter_context_of_the_two_is_what_a_prompt_has_to_fit() -> None:
    draft, target = models("llama")
    options = {"k": 1, "refine": "verify", "max_tokens": 16}
    room = with_target_of(engine_of(draft, target), context_length=len(PROMPT) + 3)
    answer = room.generate(PROMPT, **options)
    assert (len(answer.tokens), answer.finish_reason) == (3, "length")
    assert len(room.generate(PROMPT, k=1, max_tokens=16).tokens) == 16  # without the target
    none = with_target_of(engine_of(draft, target), context_length=len(PROMPT), name="the target")
    with pytest.raises(PromptTooLongError, match=f"{len(PROMPT)} tokens, and the target reads at"):
        none.generate(PROMPT, **options)
