"""server/receiving.py: nothing is left behind, and answers are sent as the next request is read."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from kvcq_client.transport import grpc_environment
from server import receiving
from server.edge import decoder
from server.edge.call_gate import CallKind
from server.process import give_back, private_bytes
from tests.server.services.test_call_stream import EOF, Stream, pull, put, streaming
from tests.support.rpc_errors import error_info
from tests.support.until import LIMIT_S, until

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from tests.support.serving import Served


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Answers that were handed to gRPC with the reading of the next request."""
    sent: list[bytes] = []

    def noted(below: object, data: bytes) -> object:
        sent.append(data)
        return receiving.send_and_receive(below, data)

    monkeypatch.setattr(decoder, "send_and_receive", noted)
    return sent


@pytest.mark.skipif(receiving.cygrpc is None, reason="this release of gRPC was not measured")
async def test_an_answer_goes_out_with_the_reading_of_the_next_request(
    served: Served, together: list[bytes]
) -> None:
    async with streaming(served) as stream:
        for number in range(3):
            await stream.send((number, "Put", put(b"%d" % number)))
            assert (await stream.result()).id == number
        assert len(together) == 3
        await stream.send((3, "Pull", pull(3, wait_ms=20_000)))  # while no answer is on its way
        gate = served.server._edge.gate
        await until(lambda: gate.under_way(CallKind.PULL))
        await stream.send((4, "Put", put(b"3")))
        assert {(await stream.result()).id for _ in range(2)} == {3, 4}
        await stream.call.done_writing()
        assert await stream.call.read() is EOF


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
        async with asyncio.timeout(LIMIT_S):
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


def test_what_is_measured_is_what_the_client_measured() -> None:
    assert receiving.MEASURED == grpc_environment.MEASURED


class Read:
    """Of gRPC: takes what came for it at its end, which is the only way to free that."""

    def __init__(self) -> None:
        self.came: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.is_freed = False

    async def read(self) -> bytes:
        try:
            return await self.came
        finally:
            self.is_freed = self.came.done()

    async def execute_batch(self, *_: object) -> None:
        await self.read()

    ExecuteBatchError = ValueError

    def ReceiveMessageOperation(self, _: int) -> object:
        return SimpleNamespace(message=self.came.result)

    def SendMessageOperation(self, data: bytes, _: int) -> object:
        return data


@pytest.fixture(params=["receive", "send_and_receive"])
async def reading(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> tuple[Read, asyncio.Task[object]]:
    """gRPC's part of a read that is under way, and what waits for it."""
    read: Any = Read()
    monkeypatch.setattr(receiving, "cygrpc", read)

    async def wait() -> object:
        if request.param == "receive":
            return await receiving.receive(read)
        return await receiving.send_and_receive(None, b"answer")

    task = asyncio.create_task(wait())
    for _ in range(3):
        await asyncio.sleep(0)
    return read, task


async def test_what_came_is_received(reading: tuple[Read, asyncio.Task[object]]) -> None:
    read, task = reading
    assert not read.is_freed
    read.came.set_result(b"came")
    assert await task == b"came"
    assert read.is_freed


@pytest.mark.parametrize("error", [None, ValueError("the other side is gone")])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_what_nobody_waits_for_any_more_is_freed_all_the_same(
    reading: tuple[Read, asyncio.Task[object]],
    when: str,
    error: Exception | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    read, task = reading

    def ends() -> None:
        if error is None:
            read.came.set_result(b"came")
        else:
            read.came.set_exception(error)

    if when == "before":
        ends()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    if when == "after":
        assert not read.is_freed
        ends()
    await until(lambda: read.is_freed)
    assert not caplog.records


async def test_a_request_that_nobody_waits_for_any_more_costs_no_memory() -> None:
    """Read as gRPC reads it, each would stay for good: 100 MB."""

    async def gives_up(_: object, context: receiving.Context) -> None:
        async def wait() -> None:
            await receiving.receive(context)

        reading = asyncio.create_task(wait())
        await asyncio.sleep(0.001)
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
        await context.send_initial_metadata(())  # the client sends when it has these
        await client_is_done.wait()

    handler = grpc.stream_stream_rpc_method_handler(gives_up)
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", {"M": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    request = bytes(2 << 20)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as opened:
        channel: Any = opened
        method = channel.stream_stream("/s/M")
        before = 0
        for round_ in range(2):
            client_is_done = asyncio.Event()
            calls = [method() for _ in range(5 if round_ == 0 else 50)]
            for call in calls:
                await call.initial_metadata()
                await call.write(request)
                await call.done_writing()
            client_is_done.set()
            for call in calls:
                assert await call.read() is EOF
            give_back()
            if round_ == 0:
                before = private_bytes()
    await server.stop(None)
    assert private_bytes() - before < 30 << 20
