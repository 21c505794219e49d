"""Clients that nobody closes: what they began goes on, and the end of a process is silent."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvcq_client import ClosedError
from kvcq_client.transport import loop_thread
from kvcq_client.transport.bare_locks import acquire
from kvcq_client.transport.below_grpc import cygrpc
from kvcq_client.transport.loop_thread import LoopThread, _Handed

if TYPE_CHECKING:
    from kvcq_client import AsyncClient
    from tests.support.serving import Served

ROOT = Path(__file__).parents[3]
ENDING = """
import sys
from kvcq_client import Client
def work():
    {names}
    client = Client(sys.argv[1])
    producer = client.producer()
    consumer = client.consumer({{("t", 0): 0}})
    raise RuntimeError("the program's own")
work()
"""

FORGETTING = """
import gc, sys
from kvcq_client import Client
Client(sys.argv[1]).producer()
Client(sys.argv[1]).producer(linger_ms=200).send("t", b"x", queue_id=0)
gc.collect()
with Client(sys.argv[1]) as client:
    assert client.pull("t", 0, 0, wait_s=30).messages
gc.collect()
"""


async def _run(program: str, target: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", program, target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.skipif(cygrpc is None, reason="without gRPC's private names it is logged")
def test_what_grpc_tells_a_closed_loop_is_dropped_and_nothing_else() -> None:
    thread = LoopThread()
    thread.close()
    assert thread.loop.is_closed()
    thread.loop.call_soon_threadsafe(cygrpc._handle_callback_wrapper, None, 1)
    with pytest.raises(RuntimeError, match="closed"):
        thread.loop.call_soon_threadsafe(print)


class Interrupts:
    """Ctrl-C, as often as a test says, and no more: one that comes just before the main thread
    waits for a lock is heard when it has that, so it must come again."""

    def __init__(self) -> None:
        self.heard = 0
        self._wanted = 0

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    async def another(self) -> None:
        """Returns once it is heard."""
        self._wanted += 1
        ident = threading.main_thread().ident
        assert ident is not None
        while self.heard < self._wanted:
            signal.pthread_kill(ident, signal.SIGINT)
            await asyncio.sleep(0)

    def _hear(self, *_: object) -> None:
        if self.heard < self._wanted:
            self.heard += 1
            raise KeyboardInterrupt


def test_an_interrupt_gets_through_once_the_work_has_ended() -> None:
    thread = LoopThread()
    ended: list[str] = []

    async def work() -> None:
        try:
            await interrupts.another()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("work")

    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        thread.run(work())
    assert ended == ["work"]
    thread.close()


def test_an_abandoned_call_leaves_nothing_to_be_printed() -> None:
    told: list[object] = []
    thread = LoopThread()
    thread.loop.set_exception_handler(lambda _, context: told.append(context))

    async def fails_when_cancelled() -> None:
        try:
            await interrupts.another()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ClosedError("the client is closed") from None

    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        thread.run(fails_when_cancelled())
    thread.close()
    gc.collect()  # a task tells of its exception when it goes
    assert told == []


def test_an_interrupt_that_comes_as_the_work_ends_gets_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lock was had by then, and is not released a second time."""
    waits: list[float | None] = []

    def interrupted(lock: threading.Lock, timeout_s: float | None = None) -> bool:
        waits.append(timeout_s)
        if len(waits) > 1:
            return lock.acquire(timeout=10)
        acquire(lock)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop_thread, "acquire", interrupted)
    thread = LoopThread()
    with pytest.raises(KeyboardInterrupt):
        thread.run(asyncio.sleep(0))
    assert waits == [None]
    thread.close()


def test_a_second_interrupt_does_not_wait() -> None:
    thread = LoopThread()
    may_end = threading.Event()

    async def work() -> None:
        try:
            await interrupts.another()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await interrupts.another()
        await asyncio.to_thread(may_end.wait)

    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            thread.run(work())
        may_end.set()
        thread.close()


def test_work_for_a_loop_that_has_ended_is_refused() -> None:
    thread = LoopThread()
    thread.close()
    with pytest.raises(ClosedError):
        thread.run(asyncio.sleep(0))


def test_work_that_a_loop_never_comes_to_is_told_so() -> None:
    thread = LoopThread()
    handed: list[_Handed[None]] = []

    async def end() -> None:
        """Something is handed over by another thread once the loop ends."""
        thread.loop.stop()
        work = _Handed(asyncio.sleep(0), thread.loop)
        thread._calls.add(work)
        handed.append(work)

    thread.loop.call_soon_threadsafe(lambda: thread.loop.create_task(end()))
    thread._thread.join()
    with pytest.raises(ClosedError):
        thread.run(asyncio.sleep(0))
    with pytest.raises(ClosedError):
        handed[0].wait()


def test_threads_that_work_while_the_loop_ends_all_hear_of_it() -> None:
    for _ in range(50):
        thread = LoopThread()
        outcomes: list[object] = []
        begun = threading.Barrier(5)

        def work(thread: LoopThread, outcomes: list[object], begun: threading.Barrier) -> None:
            begun.wait()
            try:
                while True:
                    thread.run(asyncio.sleep(0))
            except ClosedError as error:
                outcomes.append(error)

        workers = [
            threading.Thread(target=work, args=(thread, outcomes, begun), daemon=True)
            for _ in range(4)
        ]
        for worker in workers:
            worker.start()
        begun.wait()
        thread.close()
        for worker in workers:
            worker.join(30)
        assert len(outcomes) == 4


def test_a_signal_handler_may_call_what_it_interrupted() -> None:
    """Wherever it strikes: it must not hold what the loop needs to end the call."""
    thread = LoopThread()
    handled = []

    def handle(*_: object) -> None:
        handled.append(thread.run(asyncio.sleep(0, "handled")))
        if len(handled) < 100:
            signal.setitimer(signal.ITIMER_PROF, 0.0005)  # the next one

    before = signal.signal(signal.SIGPROF, handle)
    try:
        signal.setitimer(signal.ITIMER_PROF, 0.0005)
        while len(handled) < 100:
            assert thread.run(asyncio.sleep(0, "called")) == "called"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    thread.close()


@pytest.mark.parametrize("names", ["pass", "global client, producer, consumer"])
async def test_a_process_that_ends_by_an_error_tells_of_that_alone(
    served: Served, client: AsyncClient, names: str
) -> None:
    await client.create_topic("t", 1)
    ran = await _run(ENDING.format(names=names), served.target)
    first, *_, last = ran.stderr.splitlines()
    assert first == "Traceback (most recent call last):"
    assert last == "RuntimeError: the program's own"


async def test_what_a_forgotten_producer_has_is_delivered(
    served: Served, client: AsyncClient
) -> None:
    await client.create_topic("t", 1)
    ran = await _run(FORGETTING, served.target)
    assert (ran.returncode, ran.stderr) == (0, "")
