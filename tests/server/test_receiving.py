"""server/receiving.py: nothing is left behind, and answers are sent as the next request is read."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq_client.transport import grpc_environment
from server import receiving
from server.edge.call_gate import CallKind
from server.services.call_stream import CallStream
from tests.server.services.test_call_stream import EOF, Stream, pull, put, streaming
from tests.support.rpc_errors import error_info
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message

    from tests.support.serving import Served


@pytest.fixture
def _no_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    def write_alone(_: object) -> None:
        raise AssertionError("the answer was sent by itself")

    monkeypatch.setattr(CallStream, "_write_alone", write_alone)


@pytest.mark.usefixtures("_no_writing")
async def test_an_answer_goes_out_with_the_reading_of_the_next_request(served: Served) -> None:
    async with streaming(served) as stream:
        for number in range(3):
            await stream.send((number, "Put", put(b"%d" % number)))
            assert (await stream.result()).id == number
        await stream.send((3, "Pull", pull(3, wait_ms=20_000)))  # while no answer is on its way
        gate = served.server._edge.gate
        await until(lambda: gate.under_way(CallKind.PULL))
        await stream.send((4, "Put", put(b"3")))
        assert {(await stream.result()).id for _ in range(2)} == {3, 4}
        await stream.call.done_writing()
        assert await stream.call.read() is EOF


@pytest.mark.usefixtures("_no_writing")
@pytest.mark.parametrize("count", [1, 300])
async def test_a_server_that_ends_has_sent_the_answers_that_nobody_took_yet(
    served: Served, count: int
) -> None:
    """Also those that are more than gRPC holds for a client."""
    async with streaming(served) as stream:
        await stream.send((0, "Put", put(bytes(1000))))
        await stream.result()
        gate = served.server._edge.gate
        before = gate.came
        calls: list[tuple[int, str, Message]] = [
            (number, "Pull", pull(0, max_messages=1)) for number in range(1, count + 1)
        ]
        sending = asyncio.create_task(one_by_one(stream, calls))
        async with asyncio.timeout(20):
            came, looks = before, 0
            while came == before or looks < 50:  # until it takes no more
                await asyncio.sleep(0)
                looks = looks + 1 if gate.came == came else 0
                came = gate.came
            served.server.stop()
            answered: list[int] = []
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await taken(stream, answered)
        sending.cancel()
        assert error_info(caught.value).reason == "DRAINING"
        assert answered == [*range(1, gate.came - before + 1)]


async def one_by_one(stream: Stream, calls: list[tuple[int, str, Message]]) -> None:
    for call in calls:
        await stream.send(call)


async def taken(stream: Stream, into: list[int]) -> None:
    while True:
        into.append((await stream.result()).id)


async def test_a_client_that_goes_after_its_answer_leaves_nothing_behind(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        async with streaming(served) as stream:
            await stream.send((1, "Put", put(b"x")))
            await stream.result()
    await until(lambda: not served.server._edge.gate.under_way(CallKind.STREAM))
    assert not caplog.records


async def test_other_releases_of_grpc_send_it_by_itself(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "cygrpc", None)
    async with streaming(served) as stream:
        for number in range(3):
            await stream.send((number, "Put", put(b"x")))
            assert (await stream.result()).id == number


def test_what_is_measured_is_what_the_client_measured() -> None:
    assert receiving.MEASURED == grpc_environment.MEASURED


class Operations:
    """gRPC's part: takes a batch for its loop and its future, and frees what came at its end."""

    ExecuteBatchError = ValueError

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batch: receiving._Batch | None = None
        self.freed = 0
        monkeypatch.setattr(receiving, "cygrpc", self)

    async def execute_batch(self, call: object, operations: tuple[object], loop: object) -> None:
        assert isinstance(loop, receiving._Batch)
        self.batch = loop
        try:
            await loop.create_future()
        finally:
            self.freed += 1

    def begun(self) -> asyncio.Task[bytes | None]:
        received = SimpleNamespace(message=lambda: b"came")
        return asyncio.create_task(receiving._Batch().run(None, (received,), received))

    def ends(self, error: Exception | None = None) -> None:
        """As gRPC tells of it."""
        batch = self.batch
        assert batch is not None
        assert not batch.cancelled()
        tell: Callable[[], None] = lambda: (  # noqa: E731
            batch.set_result(None) if error is None else batch.set_exception(error)
        )
        batch.call_soon_threadsafe(tell)


async def test_what_came_is_received(monkeypatch: pytest.MonkeyPatch) -> None:
    operations = Operations(monkeypatch)
    task = operations.begun()
    await asyncio.sleep(0)
    assert operations.freed == 0
    operations.ends()
    assert await task == b"came"
    assert operations.freed == 1


async def test_what_failed_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    operations = Operations(monkeypatch)
    task = operations.begun()
    await asyncio.sleep(0)
    operations.ends(ValueError("the other side is gone"))
    assert await task is None
    assert operations.freed == 1


@pytest.mark.parametrize("error", [None, ValueError("the other side is gone")])
@pytest.mark.parametrize("when", ["before", "between", "after"])
async def test_what_nobody_waits_for_any_more_is_freed(
    monkeypatch: pytest.MonkeyPatch, when: str, error: Exception | None
) -> None:
    operations = Operations(monkeypatch)
    task = operations.begun()
    await asyncio.sleep(0)
    if when == "before":
        operations.ends(error)
    task.cancel()
    if when == "between":
        operations.ends(error)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert operations.freed == (when != "after")
    if when == "after":
        operations.ends(error)
    assert operations.freed == 1


async def test_what_another_loop_hears_of_is_told_to_that_which_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operations = Operations(monkeypatch)
    task = operations.begun()
    await asyncio.sleep(0)

    async def elsewhere() -> None:
        operations.ends()

    await asyncio.to_thread(asyncio.run, elsewhere())
    assert await task == b"came"
