"""The engine thread: all MLX work of a process happens on one dedicated thread.

Lazy MLX arrays cannot cross threads, and a GPU gains nothing from two at once. Callers on any
thread, or in any event loop, submit jobs; jobs run in the order of arrival. A job that yields
streams its values; giving it up stops it at its next value.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import queue
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from msi_engine.errors import CancelledError, ModelError, OutOfTimeError

_PATIENCE_S = 10.0  # at exit, for the pass under way: nothing can interrupt it

T = TypeVar("T")
Work = Callable[[], Generator[T, None, None]]


@dataclass(frozen=True, slots=True)
class _End:
    """The last thing that a job delivers: its error, if it failed."""

    error: BaseException | None


class Job(Generic[T]):
    """One piece of work on the engine thread, and where its values go.

    Args:
        work: Called on the engine thread; its values are delivered one by one.
        deliver: Called on the engine thread with each value, then with an `_End`.
    """

    def __init__(self, work: Work[T], deliver: Callable[[T | _End], None]) -> None:
        self._work = work
        self._deliver = deliver
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Give the job up: it stops before its next value, or never starts."""
        self._cancelled.set()

    def run(self) -> None:
        """Do the work; nothing escapes but through ``deliver``."""
        error: BaseException | None = None
        try:
            self._check()
            self._run()
        except BaseException as caught:
            error = caught
        self._deliver(_End(error))

    def _run(self) -> None:
        values = self._work()
        with contextlib.closing(values) as values:
            for value in values:
                self._check()
                self._deliver(value)

    @property
    def cancelled(self) -> bool:
        """Whether the job has been given up."""
        return self._cancelled.is_set()

    def _check(self) -> None:
        if self.cancelled:
            raise CancelledError("the generation was given up")


class EngineThread:
    """A daemon thread that runs jobs one after the other; started by the first."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job[Any] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pid = 0  # of the process that has the thread
        self._running: Job[Any] | None = None
        self._stopping = False
        self._ended = threading.Event()  # a join that is interrupted takes the thread for dead

    def submit(self, job: Job[Any]) -> None:
        """Queue a job behind those that wait.

        Raises:
            CancelledError: If the interpreter is exiting; nobody would run the job.
            ModelError: If this process was forked from one with an engine, which it has not.
        """
        if self._is_anothers():
            raise ModelError(
                "a forked process cannot use the engine of the process that it came from; "
                "fork before the first use, or start processes with multiprocessing's 'spawn'"
            )
        with self._lock:
            if self._stopping:
                raise CancelledError("the interpreter is exiting, and the engine with it")
            if self._thread is None:
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._loop, name="msi-engine", daemon=True)
                self._thread.start()
                atexit.register(self._shut_down)
            self._jobs.put(job)

    def stream(self, work: Work[T], until: float | None = None) -> Generator[T]:
        """Run ``work`` and yield its values; closing the iterator gives the job up.

        Args:
            work: See `Job`.
            until: On the clock of ``time.monotonic``: how long a value is waited for, be it that
                others are served first. None waits for ever.

        Raises:
            OutOfTimeError: If there is none by then; the job is given up.
        """
        if threading.current_thread() is self._thread:
            yield from work()  # called by a job, say by a scorer that asks a model
            return
        values: queue.SimpleQueue[T | _End] = queue.SimpleQueue()
        job = Job(work, values.put)
        self.submit(job)
        try:
            while not isinstance(value := _next(values, until), _End):
                yield value
            if value.error is not None:
                raise value.error
        finally:
            job.cancel()

    async def astream(self, work: Work[T], until: float | None = None) -> AsyncGenerator[T]:
        """`stream` for an event loop, which it never blocks."""
        loop = asyncio.get_running_loop()
        values: asyncio.Queue[T | _End] = asyncio.Queue()

        def deliver(value: T | _End) -> None:
            try:
                loop.call_soon_threadsafe(values.put_nowait, value)
            except RuntimeError:  # the loop is closed: nobody listens any more
                job.cancel()

        job = Job(work, deliver)
        self.submit(job)
        try:
            while not isinstance(value := await _anext(values, until), _End):
                yield value
            if value.error is not None:
                raise value.error
        finally:
            job.cancel()

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the engine thread and return its result."""

        def once() -> Generator[T]:
            yield function()

        return next(iter(list(self.stream(once))))

    def while_wanted(self, tell: Callable[[T], None]) -> Callable[[T], None]:
        """A callback of the running job that stops it, or at least is silent, once it is given up.

        Args:
            tell: What is called until then, from the engine thread or a helper of the job.
        """
        job = self._running

        def told(value: T) -> None:
            if job is None or not job.cancelled:
                tell(value)
            elif threading.current_thread() is self._thread:
                raise CancelledError("the work was given up")

        return told

    def _loop(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._running = job
            if self._stopping:  # looked at after `_running` is set, where `_shut_down` looks
                job.cancel()
            job.run()
            self._running = None
        _release_streams()
        self._ended.set()

    def _is_anothers(self) -> bool:
        return self._thread is not None and self._pid != os.getpid()

    def _shut_down(self) -> None:
        """Stop at interpreter exit, so that no MLX work runs while the process is torn down."""
        if self._is_anothers():
            return
        with self._lock:
            self._stopping = True
            self._jobs.put(None)
        running = self._running
        if running is not None:
            running.cancel()
        if self._thread is None:
            return
        with contextlib.suppress(KeyboardInterrupt):  # asked twice to end: wait no longer
            self._ended.wait(_PATIENCE_S)
        if not self._ended.is_set():
            _exit_now()
        self._thread.join()


def _next(values: queue.SimpleQueue[T], until: float | None) -> T:
    try:
        return values.get(timeout=_seconds(until))
    except queue.Empty:
        raise OutOfTimeError("the time given for it was over") from None


async def _anext(values: asyncio.Queue[T], until: float | None) -> T:
    if until is None:
        return await values.get()
    try:
        async with asyncio.timeout(_seconds(until)):
            return await values.get()
    except TimeoutError:
        raise OutOfTimeError("the time given for it was over") from None


def _seconds(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - time.monotonic())


def _exit_now() -> None:
    """End the process as it is: MLX crashes if it is torn down in the middle of a pass."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or none
            stream.flush()
    os._exit(1)


def _release_streams() -> None:
    """Destroy this thread's MLX streams; one left behind aborts the process at exit."""
    mlx = sys.modules.get("mlx.core")
    if mlx is not None:
        mlx.clear_streams()


ENGINE_THREAD = EngineThread()
"""The process's engine thread."""
