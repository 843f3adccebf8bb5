"""Acceptance: many callers on one engine, and each gets what it would get alone."""

import asyncio
import gc
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import mlx.core as mx
import pytest
from langchain_core.exceptions import ModelTimeoutError

from langchain_msi import MSILLM, ChatMSI
from msi_engine import Engine
from msi_engine.errors import ScorerError
from msi_engine.testing import ToyEmbedder

PATIENCE = 120  # seconds after which something hangs; never reached by a test that passes
EVIDENCE = ["newer and wider", "the lowest of the low"]
PROMPTS = ["new", "low and wide", "the widest of the new", "newest"]
OPTIONS = [
    {"k": 1, "temperature": 0.9, "seed": 1},
    {"k": 4, "temperature": 0.9, "spawn_temperature": 1.0, "seed": 2},
    {"k": 3, "scorers": {"length": 0.5}, "segment_length": 5},
    {"k": 2, "evidence": EVIDENCE, "embedder": ToyEmbedder()},
    {"k": 4, "law": "paper", "collapse": "token_vote", "stop": ["e"]},
]


class Broken:
    """Fails at its third call."""

    def __init__(self):
        self.calls = itertools.count(1)

    def score(self, paths):
        if next(self.calls) == 3:
            raise RuntimeError("out of order")
        return [0.0 for _ in paths]


class Gate:
    """Says that a generation is under way, and waits there until it has been given up."""

    def __init__(self):
        self.reached, self.given_up = threading.Event(), threading.Event()
        self.calls = 0

    def score(self, paths):
        self.calls += 1
        if self.calls == 2:
            self.reached.set()
            assert self.given_up.wait(PATIENCE)
        return [0.0 for _ in paths]


def gated(llm):
    """The model with a gate among its scorers."""
    gate = Gate()
    return gate, llm.replace(scorers={"gate": 1.0}, custom_scorers={"gate": gate}, max_tokens=200)


def failing(llm):
    return llm.replace(scorers={"broken": 1.0}, custom_scorers={"broken": Broken()})


def text(answer):
    return getattr(answer, "content", answer)


def requests_to(llm, number):
    """Prompts and options, all different."""
    mixed = itertools.product(PROMPTS, OPTIONS)
    return [(llm.bind(**options), prompt) for prompt, options in itertools.islice(mixed, number)]


async def astreamed(llm, prompt):
    return "".join([text(part) async for part in llm.astream(prompt)])


async def acancelled(llm):
    gate, llm = gated(llm)
    task = asyncio.create_task(llm.ainvoke("new"))
    await asyncio.to_thread(gate.reached.wait, PATIENCE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.given_up.set()
    return gate


async def aclosed(llm):
    parts = llm.astream("new", max_tokens=200, segment_length=4)
    await anext(parts)
    await parts.aclose()


def closed(llm):
    parts = llm.stream("new", max_tokens=200, segment_length=4)
    next(parts)
    parts.close()


async def all_at_once(llm, number):
    """As many threads as tasks, their answers in order; some are given up, one of each fails."""
    wanted = requests_to(llm, number)
    with ThreadPoolExecutor(2 * number) as pool:
        loop = asyncio.get_running_loop()
        threads, tasks = [], []
        for at, (request, prompt) in enumerate(wanted):
            threads.append(loop.run_in_executor(pool, request.invoke, prompt))
            asking = astreamed(request, prompt) if at % 2 else request.ainvoke(prompt)
            tasks.append(asyncio.ensure_future(asking))
            if at % 4 == 0:
                threads.append(loop.run_in_executor(pool, closed, llm))
                tasks.append(asyncio.ensure_future(aclosed(llm)))
        bad = [
            loop.run_in_executor(pool, failing(llm).invoke, "new"),
            asyncio.ensure_future(failing(llm).ainvoke("new")),
        ]
        gates = [asyncio.ensure_future(acancelled(llm)) for _ in range(2)]
        answers = [await asyncio.gather(*group) for group in (threads, tasks)]
        errors = await asyncio.gather(*bad, return_exceptions=True)
        await asyncio.gather(*gates)
    return [[text(a) for a in group if a is not None] for group in answers], errors


@pytest.mark.parametrize("kind", [ChatMSI, MSILLM])
async def test_sixteen_threads_and_sixteen_tasks_get_what_each_would_get_alone(kind, tiny):
    await check_all_at_once(kind(model=tiny, max_tokens=20), 16)


@pytest.mark.real_model
async def test_the_same_on_the_embedded_model(home):
    await check_all_at_once(ChatMSI(model="embedded", max_tokens=4), 4)


async def check_all_at_once(llm, number):
    alone = [text(request.invoke(prompt)) for request, prompt in requests_to(llm, number)]
    assert len(set(alone)) > number // 2  # mixing any two up would be seen
    before = held_bytes(llm.model)
    (threads, tasks), errors = await all_at_once(llm, number)
    assert threads == alone
    assert tasks == alone
    assert [type(error) for error in errors] == [ScorerError] * 2
    assert held_bytes(llm.model) <= before


def held_bytes(model):
    """Bytes that MLX holds when nothing runs and no cache is kept for the next turn."""
    engine = Engine.load(model)  # queued behind whatever is still being given up
    engine._held.keeper.clear()
    gc.collect()
    mx.clear_cache()
    return mx.get_active_memory()


async def test_cancelling_a_task_stops_its_generation(tiny):
    llm = ChatMSI(model=tiny, k=2, segment_length=4)
    gate = await acancelled(llm)
    assert await llm.ainvoke("new", max_tokens=4)  # the engine is free
    assert gate.calls <= 3
    full, whole = gated(llm)
    full.given_up.set()
    whole.invoke("new")
    assert full.calls > 20


def test_leaving_a_stream_stops_its_generation(tiny):
    gate, llm = gated(ChatMSI(model=tiny, k=1, segment_length=4))
    parts = llm.stream("new")
    next(parts)
    assert gate.reached.wait(PATIENCE)
    parts.close()
    gate.given_up.set()
    assert ChatMSI(model=tiny, max_tokens=4).invoke("low")
    assert gate.calls <= 3


@pytest.mark.parametrize("kind", [ChatMSI, MSILLM])
async def test_who_waits_for_another_is_told_in_time(kind, tiny):
    gate, busy = gated(kind(model=tiny, k=2))
    first = asyncio.create_task(busy.ainvoke("new"))
    assert await asyncio.to_thread(gate.reached.wait, PATIENCE)
    hasty = kind(model=tiny, max_tokens=4, timeout=0.05)
    for error in await asyncio.gather(  # all before the engine is free
        asyncio.to_thread(hasty.invoke, "low"),
        asyncio.to_thread(lambda: list(hasty.stream("low"))),
        hasty.ainvoke("low"),
        astreamed(hasty, "low"),
        return_exceptions=True,
    ):
        assert isinstance(error, ModelTimeoutError)
        assert str(error) == "the answer was not finished within timeout = 0.05 s"
    assert not first.done()
    gate.given_up.set()
    assert await first
    assert hasty.replace(timeout=float(PATIENCE)).invoke("low")


@pytest.mark.parametrize("kind", [ChatMSI, MSILLM])
async def test_the_loop_goes_on_while_the_engine_works(kind, tiny):
    """Loading included: the model is loaded by the call."""
    gate, llm = gated(kind(model=tiny, k=2))
    task = asyncio.create_task(llm.ainvoke("new"))
    turns = 0
    while not gate.reached.is_set():
        await asyncio.sleep(0.001)
        turns += 1
    gate.given_up.set()
    assert await task
    assert turns > 1


@pytest.mark.parametrize("kind", [ChatMSI, MSILLM])
@pytest.mark.parametrize("concurrency", [None, 1, 3])
async def test_a_batch_is_the_same_whatever_the_concurrency(kind, concurrency, tiny):
    llm = kind(model=tiny, k=3, max_tokens=12, temperature=0.9, seed=1)
    alone = [text(llm.invoke(prompt)) for prompt in PROMPTS]
    config = {"max_concurrency": concurrency}
    assert [text(a) for a in llm.batch(PROMPTS, config)] == alone
    assert [text(a) for a in await llm.abatch(PROMPTS, config)] == alone


@pytest.mark.parametrize("kind", [ChatMSI, MSILLM])
async def test_one_failure_in_a_batch_is_its_own(kind, tiny):
    class Fussy:
        def score(self, paths):
            if "widest" in paths[0].prompt:
                raise ValueError("too wide")
            return [0.0 for _ in paths]

    llm = kind(
        model=tiny, k=2, max_tokens=4, scorers={"fussy": 1}, custom_scorers={"fussy": Fussy()}
    )
    for answers in (
        llm.batch(PROMPTS, return_exceptions=True),
        await llm.abatch(PROMPTS, return_exceptions=True),
    ):
        kinds = [isinstance(answer, ScorerError) for answer in answers]
        assert kinds == [False, False, True, False]
    with pytest.raises(ScorerError, match="too wide"):
        llm.batch(PROMPTS)
