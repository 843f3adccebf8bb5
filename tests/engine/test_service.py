"""The engine thread: order, errors, giving up, nesting, and the end of the process."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator

import pytest

from msi_engine import service
from msi_engine.errors import CancelledError, OutOfTimeError, ScorerError
from msi_engine.service import EngineThread, Job

PATIENCE = 60  # seconds after which something hangs; never reached by a test that passes


@pytest.fixture
def engine() -> Iterator[EngineThread]:
    engine = EngineThread()
    yield engine
    assert engine.call(lambda: "alive") == "alive"  # whatever a test did to it
    engine._shut_down()
    assert not engine._thread.is_alive()


class Gate:
    """Work that yields, says so, and waits to be let on."""

    def __init__(self, values: int = 1) -> None:
        self.started, self.let_on, self.closed = (threading.Event() for _ in range(3))
        self._values = values

    def __call__(self) -> Iterator[int]:
        try:
            for value in range(self._values):
                yield value
                self.started.set()
                assert self.let_on.wait(PATIENCE)
        finally:
            self.closed.set()


def in_thread(function) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def join(threads) -> None:
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def occupy(engine: EngineThread) -> tuple[Gate, threading.Thread]:
    """Keep the engine busy until the gate is opened."""
    gate = Gate()
    thread = in_thread(lambda: list(engine.stream(gate)))
    assert gate.started.wait(PATIENCE)
    return gate, thread


def waiting(engine: EngineThread) -> int:
    return engine._jobs.qsize()


def until(condition) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_all_jobs_run_on_one_thread_that_is_not_the_callers(engine):
    seen = []
    join([in_thread(lambda: seen.append(engine.call(threading.get_ident))) for _ in range(8)])
    assert len(seen) == 8
    assert len(set(seen)) == 1
    assert threading.get_ident() not in seen


def test_jobs_of_sixteen_threads_run_whole_and_in_the_order_of_arrival(engine):
    gate, first = occupy(engine)
    log: list[tuple[int, int]] = []
    received: dict[int, list[int]] = {}

    def work(number):
        def values():
            for value in range(5):
                log.append((number, value))
                yield number * 10 + value
                time.sleep(0)  # an invitation to interleave

        return values

    def caller(number):
        received[number] = list(engine.stream(work(number)))

    threads = []
    order = [7, 3, 15, 0, 9, 12, 1, 4, 14, 2, 8, 11, 5, 13, 6, 10]
    for place, number in enumerate(order):
        threads.append(in_thread(lambda n=number: caller(n)))
        until(lambda count=place + 1: waiting(engine) == count)
    gate.let_on.set()
    join([first, *threads])
    assert log == [(number, value) for number in order for value in range(5)]
    assert received == {n: [n * 10 + v for v in range(5)] for n in order}


def test_an_error_comes_back_with_its_type_and_after_the_values_before_it(engine):
    def work():
        yield 1
        raise ScorerError("rag", "broke")

    stream = engine.stream(work)
    assert next(stream) == 1
    with pytest.raises(ScorerError, match="broke") as caught:
        next(stream)
    assert caught.value.scorer_name == "rag"
    assert any(entry.name == "work" for entry in caught.traceback)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_no_kind_of_error_kills_the_engine(engine, error):
    def fail():
        raise error("stop")

    with pytest.raises(error):
        engine.call(fail)
    assert engine.call(lambda: 1) == 1


def test_work_that_cannot_even_start_is_an_error_of_its_caller(engine):
    def work():
        raise ValueError("no such thing")

    with pytest.raises(ValueError, match="no such thing"):
        list(engine.stream(work))


def test_failing_jobs_do_not_disturb_others(engine):
    results = {}

    def work(number):
        yield number
        if number % 2:
            raise ValueError(number)
        yield -number

    def caller(number):
        try:
            results[number] = list(engine.stream(lambda: work(number)))
        except ValueError as error:
            results[number] = error.args[0]

    join([in_thread(lambda n=n: caller(n)) for n in range(16)])
    assert results == {n: n if n % 2 else [n, -n] for n in range(16)}


def test_closing_an_iterator_in_the_middle_stops_the_work_and_frees_the_engine(engine):
    gate = Gate(values=1000)
    stream = engine.stream(gate)
    assert next(stream) == 0
    stream.close()
    gate.let_on.set()
    assert gate.closed.wait(PATIENCE)
    assert engine.call(lambda: "next") == "next"


def test_an_iterator_that_is_forgotten_gives_its_job_up(engine):
    gate = Gate(values=10**9)
    stream = engine.stream(gate)
    assert next(stream) == 0
    del stream
    gate.let_on.set()
    assert gate.closed.wait(PATIENCE)


def test_a_job_given_up_while_it_waits_never_starts(engine):
    gate, first = occupy(engine)
    ran, ends = [], []
    job = Job(lambda: iter(ran.append("given up") or ()), ends.append)
    engine.submit(job)
    after = in_thread(lambda: ran.append(engine.call(lambda: "after")))
    until(lambda: waiting(engine) == 2)
    job.cancel()
    gate.let_on.set()
    join([first, after])
    assert ran == ["after"]
    assert [type(end.error) for end in ends] == [CancelledError]


def test_a_job_given_up_while_it_runs_delivers_nothing_more_and_is_cleaned_up(engine):
    delivered, gate = [], Gate(values=3)
    job = Job(gate, delivered.append)
    engine.submit(job)
    assert gate.started.wait(PATIENCE)
    job.cancel()
    gate.let_on.set()
    assert engine.call(lambda: "next") == "next"
    assert gate.closed.is_set()
    value, end = delivered
    assert value == 0
    assert isinstance(end.error, CancelledError)


def test_a_job_may_use_the_engine_itself(engine):
    def inner():
        yield "a"
        yield engine.call(lambda: threading.current_thread().name)

    def outer():
        yield from engine.stream(inner)
        with pytest.raises(ValueError, match="inside"):
            engine.call(lambda: int("inside"))
        yield "end"

    assert list(engine.stream(outer)) == ["a", "msi-engine", "end"]


def test_closing_the_outer_job_closes_the_one_inside(engine):
    gate = Gate(values=1000)
    stream = engine.stream(lambda: engine.stream(gate))
    assert next(stream) == 0
    stream.close()
    gate.let_on.set()
    assert gate.closed.wait(PATIENCE)


def test_async_values_errors_and_many_at_once(engine):
    def work(number):
        yield number
        if number == 3:
            raise ScorerError("x", "three")
        yield number + 100

    async def one(number):
        return [value async for value in engine.astream(lambda: work(number))]

    async def all_of_them():
        return await asyncio.gather(*map(one, range(6)), return_exceptions=True)

    results = asyncio.run(all_of_them())
    assert isinstance(results.pop(3), ScorerError)
    assert results == [[n, n + 100] for n in range(6) if n != 3]


def test_waiting_for_the_engine_does_not_block_the_loop(engine):
    gate, first = occupy(engine)

    async def main():
        async def answer():
            return [value async for value in engine.astream(lambda: iter_of("answer"))]

        task = asyncio.create_task(answer())
        while waiting(engine) == 0:
            await asyncio.sleep(0)  # the loop runs while the job waits
        gate.let_on.set()
        return await task

    assert asyncio.run(main()) == ["answer"]
    join([first])


def iter_of(*values):
    yield from values


@pytest.mark.parametrize("how", ["task", "aclose", "timeout"])
def test_async_cancellation_frees_the_engine(engine, how):
    gate = Gate(values=1000)

    async def consume():
        async with contextlib.aclosing(engine.astream(gate)) as values:
            async for _ in values:
                if how == "aclose":
                    return

    async def main():
        task = asyncio.create_task(consume())
        while not gate.started.is_set():
            await asyncio.sleep(0.001)
        if how == "timeout":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(task, 0)
            return
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(main())
    gate.let_on.set()
    assert gate.closed.wait(PATIENCE)
    assert engine.call(lambda: "next") == "next"


def test_a_loop_that_was_closed_under_a_job_frees_the_engine(engine):
    gate = Gate(values=10**9)
    loop = asyncio.new_event_loop()
    values = engine.astream(gate)
    assert loop.run_until_complete(anext(values)) == 0
    loop.close()  # nobody has closed the iterator
    gate.let_on.set()
    assert gate.closed.wait(PATIENCE)
    assert engine.call(lambda: "next") == "next"


def received_from(engine, way, work, end):
    """All values of a job that has until ``end``."""
    if way == "stream":
        return list(engine.stream(work, end))

    async def values():
        return [value async for value in engine.astream(work, end)]

    return asyncio.run(values())


BOTH_WAYS = pytest.mark.parametrize("way", ["stream", "astream"])


@BOTH_WAYS
@pytest.mark.parametrize("patience", [0.0, 0.05, -1.0])
def test_who_cannot_wait_leaves_the_queue_and_the_others_keep_their_places(engine, way, patience):
    gate, first = occupy(engine)
    ran = []

    def work():
        ran.append("late")
        yield 1

    others = []
    for number in range(2):
        others.append(in_thread(lambda n=number: engine.call(lambda: ran.append(n))))
        until(lambda count=2 * number + 1: waiting(engine) == count)
        with pytest.raises(OutOfTimeError):  # the gate is shut: nobody could have been served
            received_from(engine, way, work, time.monotonic() + patience)
    gate.let_on.set()
    join([first, *others])
    assert ran == [0, 1]
    assert received_from(engine, way, work, time.monotonic() + PATIENCE) == [1]


@BOTH_WAYS
def test_a_job_whose_time_is_over_while_it_runs_is_stopped(engine, way, monkeypatch):
    gate, waits = Gate(values=1000), itertools.chain([PATIENCE, 0.0], itertools.repeat(PATIENCE))
    monkeypatch.setattr(service, "_seconds", lambda end: next(waits))
    with pytest.raises(OutOfTimeError):  # at the second value, for which the gate is not opened
        received_from(engine, way, gate, 0.0)
    gate.let_on.set()
    assert gate.closed.wait(PATIENCE)
    assert engine.call(lambda: "next") == "next"


def run_to_the_end(body: str) -> subprocess.CompletedProcess[str]:
    """A process with an engine, from its first line to its exit. A hang is a TimeoutExpired."""
    head = """
        import atexit, itertools, sys, threading, time
        from msi_engine.errors import CancelledError
        from msi_engine.service import ENGINE_THREAD

        def forever():
            for n in itertools.count():
                yield n
                time.sleep(0.001)
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_exit_with_a_job_running_does_not_hang():
    done = run_to_the_end(
        """
        stream = ENGINE_THREAD.stream(forever)
        print(next(stream))
        keep = stream, [stream]  # never closed
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


@pytest.mark.parametrize("asked_again", [False, True])
def test_exit_in_the_middle_of_a_pass_waits_a_while_and_does_not_crash(asked_again):
    done = run_to_the_end(
        f"""
        import os, signal
        import mlx.core as mx
        from msi_engine import service

        def long_pass():
            big = mx.random.uniform(shape=(1024, 1024))
            yield 0
            for _ in range(100_000):
                big = big @ big
            mx.eval(big)
            yield 1

        def interrupt():  # a second Ctrl-C, once the interpreter is on its way out
            while not ENGINE_THREAD._stopping:
                time.sleep(0.01)
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGINT)

        if {asked_again}:
            threading.Thread(target=interrupt, daemon=True).start()
        service._PATIENCE_S = {PATIENCE} if {asked_again} else 0.5
        stream = ENGINE_THREAD.stream(long_pass)
        print(next(stream), end="")
        time.sleep(1)
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "0", "")


def test_giving_a_load_up_ends_what_it_fetches_and_its_reports():
    done = run_to_the_end(
        """
        import os, signal, types
        from msi_engine import engine
        from msi_engine.model import Progress

        def fetch_for_ever(name, on_progress, **options):
            for done in itertools.count():
                on_progress(Progress("fetching", done, None, "B"))
                time.sleep(0.01)

        def tell(progress):
            told.append(progress)
            if len(told) == 3:
                os.kill(os.getpid(), signal.SIGINT)

        told = []
        engine.load_model = fetch_for_ever
        nowhere = types.SimpleNamespace(path=None, draft=None, target=None)
        engine.resolve = lambda name: nowhere
        try:
            engine.Engine.load("x", tell)
        except KeyboardInterrupt:
            so_far = len(told)
            print(ENGINE_THREAD.call(lambda: "free"), len(told) <= so_far + 1)
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "free True\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_is_told_that_it_has_no_engine():
    done = run_to_the_end(
        """
        import os
        from msi_engine.errors import ModelError

        print(ENGINE_THREAD.call(lambda: "parent"), flush=True)
        child = os.fork()
        if child == 0:
            try:
                ENGINE_THREAD.call(lambda: "child")
            except ModelError as error:
                print(error, flush=True)
        else:
            print(os.waitpid(child, 0)[1], ENGINE_THREAD.call(lambda: "still there"))
        """
    )
    parent, child, last = done.stdout.splitlines()
    assert (done.returncode, parent, last) == (0, "parent", "0 still there")
    assert "forked process" in child


def test_exit_gives_up_the_jobs_that_wait_and_tells_their_callers():
    done = run_to_the_end(
        """
        stream = ENGINE_THREAD.stream(forever)
        next(stream)
        started, told = [], threading.Event()

        def waits():
            def work():
                started.append(1)
                yield from forever()
            try:
                list(ENGINE_THREAD.stream(work))
            except CancelledError:
                told.set()

        # Registered first, so it is run last: after the engine has stopped.
        def report():
            print("told" if told.wait(30) else "not told", started)

        for _ in range(3):
            threading.Thread(target=waits, daemon=True).start()
        while ENGINE_THREAD._jobs.qsize() < 3:
            time.sleep(0.001)
        atexit.unregister(ENGINE_THREAD._shut_down)
        atexit.register(report)
        atexit.register(ENGINE_THREAD._shut_down)
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "told []\n", "")


def test_exit_keeps_its_code_and_work_after_it_is_refused():
    done = run_to_the_end(
        """
        def late():
            try:
                ENGINE_THREAD.call(lambda: 1)
            except CancelledError as error:
                print(error)

        atexit.register(late)
        next(ENGINE_THREAD.stream(forever))
        sys.exit(3)
        """
    )
    expected = "the interpreter is exiting, and the engine with it\n"
    assert (done.returncode, done.stdout, done.stderr) == (3, expected, "")


def test_a_process_that_never_used_the_engine_starts_no_thread():
    done = run_to_the_end("print(threading.active_count())")
    assert (done.returncode, done.stdout) == (0, "1\n")
