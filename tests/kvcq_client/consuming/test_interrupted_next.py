"""Ctrl-C inside a blocking consumer: the messages of a batch are read all the same, and once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kvcq_client.consuming import core as consuming
from kvcq_client.consuming.config import ConsumerConfig
from kvcq_client.consuming.consumer import Consumer
from kvcq_client.consuming.core import ConsumerCore
from kvcq_client.consuming.subscription import Fetched, Subscription
from kvcq_client.transport.loop_thread import LoopThread
from kvcq_client.transport.waiting import ThreadWaits
from kvcq_client.values import Queue
from tests.support.interrupts import interrupt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Sequence

QUEUE = Queue("T", 0)


class Message:
    def __init__(self, queue_offset: int) -> None:
        self.queue_offset = queue_offset


class Silent(Subscription):
    """Has what the test puts into it."""

    async def run(self) -> None:
        await asyncio.Event().wait()


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    made.close()


def decoded(_records: bytes, offsets: Sequence[int], **_: object) -> list[Message]:
    return [Message(offset) for offset in offsets]


# Of coroutines that were interrupted before they began.
@pytest.mark.filterwarnings("ignore:coroutine '.*' was never awaited:RuntimeWarning")
@pytest.mark.parametrize("way", ["one by one", "batch", "take", "to_end"])
def test_an_interrupt_at_any_instruction_skips_nothing(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(consuming, "split_records", decoded)
    monkeypatch.setattr(consuming, "Subscription", Silent)
    nobody: Any = None

    async def ends(_core: ConsumerCore) -> dict[Queue, int]:
        return {QUEUE: 5}

    async def here(_waits: ThreadWaits, call: Awaitable[object]) -> object:
        return await call

    monkeypatch.setattr(ConsumerCore, "ends", ends)
    monkeypatch.setattr(ThreadWaits, "in_loop", here)

    async def make() -> ConsumerCore:
        return ConsumerCore(nobody, nobody, ConsumerConfig(), lambda _core: None)

    def read() -> None:
        if way == "batch":
            got.append(consumer.batch(0.0))
        elif way == "take":
            got.append(consumer.take(1))
            got.append(consumer.take(3, 0.0))
        else:
            for message in consumer if way == "one by one" else consumer.to_end():
                seen.append(message.queue_offset)
                if len(seen) == 4:
                    break

    at, reached = 0, True
    while reached:
        at += 1
        core = thread.run(make())
        core._positions[QUEUE] = 0
        batches = [Fetched(QUEUE, b"x", [0, 1, 2], 3), Fetched(QUEUE, b"x", [3, 4, 5], 6)]
        core.subscription._put(batches)
        consumer = Consumer(core, thread)
        seen: list[int] = []
        got: list[Sequence[Any]] = []
        # Instructions of the client alone: what its caller does with a message is its own.
        reached = interrupt(read, at, packages=("kvcq_client",))
        seen += [message.queue_offset for part in got for message in part]
        assert consumer.positions()[QUEUE] == len(seen)
        while part := consumer.batch(0.0):
            seen += [message.queue_offset for message in part]
        assert seen == [0, 1, 2, 3, 4, 5], at
        assert consumer.positions() == {QUEUE: 6}
        assert core.subscription._buffered == 0
    assert at > (100 if way == "batch" else 200)
