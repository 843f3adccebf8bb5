"""Giving an answer up leaves terminal and engine clean."""

import asyncio
import os
import signal
import subprocess
import sys

import llm
import pytest

from msi_engine import service
from msi_engine.errors import CancelledError

pytestmark = pytest.mark.real_model

LONG = {"k": 1, "max_tokens": 400, "segment_length": 4, "boundary": "", "min_p": 0}
STORY = "Tell a long story about a cat."


@pytest.fixture
def given_up(monkeypatch):
    """The jobs that the engine stopped because their caller had gone."""
    jobs = []
    run = service.Job._run

    def watched(job):
        try:
            run(job)
        except CancelledError:
            jobs.append(job)
            raise

    monkeypatch.setattr(service.Job, "_run", watched)
    return jobs


def test_closing_the_iterator_stops_the_engine(msi, engine, given_up):
    events = llm.get_model("msi").prompt(STORY, **LONG).stream_events()
    assert next(events).chunk
    events.close()
    expected = engine.generate([{"role": "user", "content": STORY}], k=1, max_tokens=8).text
    assert len(given_up) == 1
    assert msi(STORY, "-o", "k", "1", "-o", "max_tokens", "8").out == expected + "\n"


def test_cancelling_the_task_stops_the_engine(msi, engine, given_up):
    async def ask_and_leave():
        async for event in llm.get_async_model("msi").prompt(STORY, **LONG).astream_events():
            assert event.chunk
            task.cancel()

    async def main():
        nonlocal task
        task = asyncio.create_task(ask_and_leave())
        with pytest.raises(asyncio.CancelledError):
            await task

    task = None
    asyncio.run(main())
    engine.generate([{"role": "user", "content": STORY}], k=1, max_tokens=2)
    assert len(given_up) == 1


def test_ctrl_c_ends_the_command_at_once(msi, store, user):
    command = [sys.executable, "-m", "llm", "-m", "msi", STORY]
    for name, value in LONG.items():
        command += ["-o", name, str(value)]
    process = subprocess.Popen(
        command, env=os.environ.copy(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.read(1)  # it has begun to answer
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"Traceback" not in err
    assert err.strip() == b"Aborted!"
    assert len(out) < 1000
