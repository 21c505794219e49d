"""Ctrl-C inside `send`: what is sent afterwards is delivered, and a flush comes back."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from kvcq_client.producing import core as producing
from kvcq_client.producing.config import ProducerConfig
from kvcq_client.producing.core import ProducerCore
from kvcq_client.transport.loop_thread import LoopThread
from tests.support.interrupts import interrupt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcq_client.producing.accumulator import Accumulator

LIMIT_S = 10.0


class Delivered:
    """Answers whatever it is woken for."""

    def __init__(self, _connection: object, accumulator: Accumulator, _config: object) -> None:
        self.accumulator = accumulator
        self.changed = asyncio.Event()

    def wake(self) -> None:
        self.changed.set()

    async def run(self) -> None:
        while True:
            self.changed.clear()
            for batch in self.accumulator.take_ready():
                self.accumulator.finished(batch.size)
                batch.finish(None)
            await self.changed.wait()


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    made.close()


@pytest.mark.parametrize("batch_messages", [1, 1000])
def test_an_interrupt_at_any_instruction_stops_no_later_send(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch, batch_messages: int
) -> None:
    monkeypatch.setattr(producing, "Delivery", Delivered)
    config = ProducerConfig(producer_id="p", linger_ms=1, batch_messages=batch_messages)
    nobody: Any = None

    async def make() -> ProducerCore:
        return ProducerCore(nobody, config, lambda _core: None)

    def send() -> Any:  # noqa: ANN401 - a Sending
        return core.accumulator.add(("t", b"x", None, "", (), (), None, 0, None, ""))

    at, reached = 0, True
    while reached:
        at += 1
        core = thread.run(make())
        reached = interrupt(send, at, packages=("kvcq_client",))
        if batch_messages == 1 and at % 2:
            # What was interrupted is not left behind either.
            idle = threading.Event()
            core.accumulator.when_idle(idle.set)
            assert idle.wait(LIMIT_S), at
        send()._batch.wait(LIMIT_S)
        idle = threading.Event()
        core.accumulator.when_idle(idle.set)
        assert idle.wait(LIMIT_S), at
    assert at > 100
