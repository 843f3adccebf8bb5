"""The whole engine on the embedded model: threads, loops, cancelling, reuse, bad requests."""

import asyncio
import contextlib
import dataclasses
import gc
from concurrent.futures import ThreadPoolExecutor

import mlx.core as mx
import numpy as np
import pytest

from msi_engine import DecodeConfig, Engine
from msi_engine.errors import ConfigError, DecodeError, MSIError, PromptError, ScorerError
from msi_engine.events import Collapsed, Committed, Finished, Prefilled, Spawned, Stepped

pytestmark = pytest.mark.real_model

QUESTION = [{"role": "user", "content": "Why is the sky blue?"}]
STORY = "Once upon a time there was a fox who"


@pytest.fixture(scope="module")
def engine():
    return Engine.load("embedded")


@pytest.fixture
def fresh(engine):
    """The engine with nothing in its prefix cache."""
    engine._held.keeper.clear()
    return engine


def text_of(events):
    return "".join(e.text for e in events if isinstance(e, Committed))


def test_every_way_of_asking_gives_the_same_text(engine):
    options = {"k": 4, "max_tokens": 40, "temperature": 0.8, "spawn_temperature": 1.0, "seed": 0}

    async def asynchronous():
        streamed = [e async for e in engine.astream(STORY, **options)]
        return (await engine.agenerate(STORY, **options)).text, text_of(streamed)

    texts = {engine.generate(STORY, **options).text, text_of(engine.stream(STORY, **options))}
    texts |= set(asyncio.run(asynchronous()))
    assert len(texts) == 1
    assert texts != {""}


def test_threads_with_mixed_requests_each_get_what_they_get_alone(engine):
    requests = [
        (STORY, {"k": k, "max_tokens": 12 + 2 * i, "seed": i, "temperature": 0.5 * (i % 2)})
        for i, k in enumerate((1, 4, 2, 8, 1, 3, 4, 1))
    ]
    alone = [engine.generate(prompt, **options).text for prompt, options in requests]
    with ThreadPoolExecutor(len(requests)) as pool:
        together = pool.map(lambda r: engine.generate(r[0], **r[1]).text, requests)
        assert list(together) == alone


def test_the_events_tell_the_answer_the_tokens_and_the_credences(engine):
    events = list(engine.stream(QUESTION, k=4, max_tokens=48))
    collapses = [e for e in events if isinstance(e, Collapsed)]
    assert isinstance(events[0], Prefilled)
    assert isinstance(events[-1], Finished)
    assert next(e for e in events if isinstance(e, Spawned)).segment == 0
    tokens = [t for c in collapses for t in c.tokens]
    assert engine.tokenizer.decode(tokens, skip_special_tokens=True) == text_of(events)
    assert events[-1].stats.output_tokens == len(tokens)
    for collapse in collapses:
        assert sum(p.credence for p in collapse.paths) == pytest.approx(1)
    for step in (e for e in events if isinstance(e, Stepped)):
        assert sum(step.credences) == pytest.approx(1)
        assert 0 <= step.entropy <= np.log(len(step.paths)) + 1e-9


def test_a_second_turn_prefills_only_what_is_new(fresh):
    first = fresh.generate(QUESTION, k=4, max_tokens=24)
    chat = [*QUESTION, {"role": "assistant", "content": first.text}]
    chat.append({"role": "user", "content": "Say it in one word."})
    again = fresh.generate(chat, k=4, max_tokens=12)
    assert first.stats.prefilled_tokens == first.stats.prompt_tokens
    new = again.stats.prompt_tokens - first.stats.prompt_tokens - first.stats.output_tokens
    assert again.stats.prefilled_tokens <= new + 4  # the template closes the answer's turn
    fresh._held.keeper.clear()
    assert fresh.generate(chat, k=4, max_tokens=12).text == again.text


@pytest.mark.parametrize("k", [1, 4])
def test_giving_up_in_the_middle_leaves_the_engine_as_it_was(engine, k):
    whole = engine.generate(STORY, k=k, max_tokens=48).text
    events = engine.stream(STORY, k=k, max_tokens=48)
    for event in events:
        if isinstance(event, Committed):
            break
    events.close()
    assert engine.generate(STORY, k=k, max_tokens=48).text == whole


def test_a_cancelled_task_frees_the_engine(engine):
    async def give_up():
        task = asyncio.create_task(engine.agenerate(STORY, k=8, max_tokens=4000, seed=1))
        await asyncio.sleep(0.5)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return await engine.agenerate(STORY, k=1, max_tokens=4)

    answer = asyncio.run(give_up())
    assert answer.stats.output_tokens == 4


def test_the_cache_never_holds_more_than_prefix_and_tails(fresh):
    """Counted through a whole generation, spawns and collapses included (30 layers, 2 x 3 x 64)."""
    token_bytes = 30 * 2 * 3 * 64 * 4
    step = 256  # allocation step of the prefix
    config = DecodeConfig(k=8, max_tokens=40, segment_length=8, spawn_min_p=0)
    done = fresh.generate(STORY, config)
    prefix = done.stats.prompt_tokens + done.stats.output_tokens
    tails = config.k * 2 * config.segment_length  # a tail's capacity may be twice its content
    assert done.stats.collapses > 3
    assert done.stats.peak_cache_bytes <= (-(-prefix // step) * step + tails) * token_bytes


def test_generations_leave_no_memory_behind(fresh):
    def held():
        fresh._held.keeper.clear()
        gc.collect()
        mx.clear_cache()
        return mx.get_active_memory()

    fresh.generate(STORY, k=4, max_tokens=8)
    before = held()
    for seed in range(2):
        fresh.generate(STORY, k=8, max_tokens=12, segment_length=4, temperature=1.0, seed=seed)
    events = fresh.stream(STORY, k=8, max_tokens=24)
    next(events)
    events.close()
    fresh.generate(STORY, k=1, max_tokens=1)
    assert held() <= before + 1_000_000


def test_a_processor_works_on_every_path(engine):
    banned = set(range(0, engine.tokenizer.vocab_size, 2))
    mask = mx.array([-np.inf if i in banned else 0.0 for i in range(engine.tokenizer.vocab_size)])

    def odd_only(tokens, logits):
        return logits + mask

    for k in (1, 6):
        events = engine.stream(STORY, k=k, max_tokens=24, logits_processors=[odd_only])
        drawn = {t for e in events if isinstance(e, Collapsed) for p in e.paths for t in p.tokens}
        assert drawn
        assert not drawn & banned


@pytest.mark.parametrize("short_circuit", [1.0, 0.6])
def test_a_processor_sees_the_tokens_of_its_own_path(engine, short_circuit):
    """With a short circuit the survivor, whichever it is, runs on alone on the prefix."""
    prompt = tuple(engine.tokenizer.encode(STORY))
    seen = set()

    def note(tokens, logits):
        seen.add(tuple(tokens.tolist()))
        return logits

    options = {"k": 3, "max_tokens": 16, "segment_length": 5, "majority": 1, "law": "paper"}
    drawing = {"temperature": 1.0, "spawn_temperature": 3.0, "seed": 2}
    events = engine.stream(
        STORY,
        **options,
        **drawing,
        short_circuit=short_circuit,
        logits_processors=[note],
    )
    collapses = [e for e in events if isinstance(e, Collapsed)]
    committed = prompt
    expected = {prompt}
    for collapse in collapses:
        for path in collapse.paths:
            expected |= {committed + path.tokens[:n] for n in range(1, len(path.tokens) + 1)}
        assert {committed + collapse.tokens[:n] for n in range(1, len(collapse.tokens))} <= seen
        committed += collapse.tokens
    assert seen <= expected
    if short_circuit < 1:
        assert any(c.note == "short circuit" and c.winner for c in collapses)


@pytest.mark.parametrize("k", [1, 4])
def test_masking_everything_is_one_clear_error_and_the_engine_goes_on(engine, k):
    with pytest.raises(DecodeError, match=r"mask every token|leave no token") as caught:
        engine.generate(STORY, k=k, logits_processors=[lambda t, logits: logits - mx.array(np.inf)])
    assert "\n" not in str(caught.value)
    assert engine.generate(STORY, k=k, max_tokens=3).text


def _no_number(tokens, logits):
    return mx.where(mx.arange(logits.shape[-1]) == 7, mx.nan, logits)


@pytest.mark.parametrize(
    ("processor", "said"),
    [
        (_no_number, "are not numbers"),
        (lambda tokens, logits: logits[:, :5], "must return logits of shape"),
        (lambda tokens, logits: logits[0], "must return logits of shape"),
        (lambda tokens, logits: None, "got NoneType"),
    ],
)
@pytest.mark.parametrize("k", [1, 4])
def test_what_a_processor_returns_is_looked_at(engine, k, processor, said):
    with pytest.raises(DecodeError, match=said):
        engine.generate(STORY, k=k, max_tokens=3, logits_processors=[processor])


@pytest.mark.parametrize(("value", "weight"), [(float("nan"), 0.0), (1e308, 10.0), (1e99, -1e5)])
def test_a_signal_that_no_weight_can_hold_is_refused(engine, value, weight):
    class Wild:
        def score(self, paths):
            return [value] * len(paths)

    with pytest.raises(ScorerError, match="scorer 'wild': returned"):
        engine.generate(
            STORY, k=2, scorers={"wild": weight}, scorer_factories={"wild": lambda _: Wild()}
        )


def test_what_a_scorer_raises_is_told_in_one_line(engine):
    class Broken:
        def score(self, paths):
            raise ValueError("first line\nsecond line")

    with pytest.raises(ScorerError, match=r"ValueError: first line second line$"):
        engine.generate(
            STORY, k=2, scorers={"broken": 1.0}, scorer_factories={"broken": lambda _: Broken()}
        )


def test_bad_requests_are_one_line_errors(engine, caplog):
    too_long = "word " * (engine.context_length + 10)
    for prompt, options, kind in [
        ("", {}, PromptError),
        ([], {}, PromptError),
        ([2**31], {}, PromptError),
        (too_long, {}, PromptError),
        (STORY, {"k": 0}, ConfigError),
        (STORY, {"k": 10_000}, ConfigError),
        (STORY, {"law": "murphy"}, ConfigError),
        (STORY, {"stop": ("",)}, ConfigError),
        (STORY, {"boundary": ("moon",)}, ConfigError),
        (STORY, {"scorers": {"nobody": 1.0}}, ConfigError),
        (STORY, {"nonsense": 1}, ConfigError),
        (STORY, {"logit_bias": {10_000_000: 1.0}}, ConfigError),
    ]:
        with pytest.raises(kind) as caught:
            engine.generate(prompt, **{"max_tokens": 2, **options})
        assert isinstance(caught.value, MSIError)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400
    assert not caplog.records  # the error is all there is to read


def test_a_scorer_that_cannot_be_made_is_one_line_that_names_it(engine):
    def broken(context):
        raise RuntimeError("no such file\nor folder")

    with pytest.raises(
        ScorerError, match="'mine': not made: RuntimeError: no such file or"
    ) as caught:
        engine.generate(STORY, scorers={"mine": 1.0}, scorer_factories={"mine": broken})
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_the_budget_is_what_the_context_leaves(engine):
    prompt, room = engine.tokenizer.encode(STORY), 5
    loaded = dataclasses.replace(engine._held.loaded, context_length=len(prompt) + room)
    answer = Engine(loaded).generate(prompt, k=1, max_tokens=100)
    assert answer.stats.output_tokens == room
    assert answer.finish_reason == "length"
    with pytest.raises(PromptError, match=f"{len(prompt) + room} tokens"):
        Engine(loaded).generate(prompt + prompt[:room], k=1)


def test_counts_beyond_the_vocabulary_are_no_filter(engine):
    options = {"k": 1, "max_tokens": 8, "temperature": 0.7, "seed": 3}
    wide = {"top_k": 1_000_000, "min_p": 1e-9, "min_tokens_to_keep": 100_000}
    for k in (1, 3):
        plain = engine.generate(STORY, **{**options, "k": k})
        assert engine.generate(STORY, **{**options, **wide, "k": k}).tokens == plain.tokens
