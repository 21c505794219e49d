"""kvcq_client/transport/call_stream.py: calls that share a stream, when it breaks and when it does
not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq_client import AsyncClient, Message
from kvcq_client.errors import ClosedError, DeadlineError, UnavailableError
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from kvcq_client.transport import below_grpc, call_stream
from kvcq_client.transport.call_stream import CallStream
from server.edge.call_gate import CallKind
from tests.support.until import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kvcq_client import Placed
    from server.edge import Context
    from tests.support.cut_line import CutLine
    from tests.support.serving import Served

pytestmark = pytest.mark.usefixtures("both_ways")


EOF = object()


def a_message(body: bytes = b"x") -> Message:
    return Message("T", body, 0)


async def test_calls_that_come_together_share_messages_of_the_stream(
    served: Served, client: AsyncClient
) -> None:
    placed = await asyncio.gather(*(client.put(a_message(b"%d" % at)) for at in range(300)))
    assert sorted(one.queue_offset for one in placed) == list(range(300))
    statistics = await client.statistics()
    assert statistics["server.messages_put"] == 300
    assert statistics["server.calls.PutBatch"] < 20
    assert served.server._edge.gate.under_way(CallKind.STREAM) == 1


async def test_what_is_large_goes_by_itself(served: Served, client: AsyncClient) -> None:
    await client.put(a_message(bytes(1 << 20)))
    assert served.server._edge.gate.under_way(CallKind.STREAM) == 0
    pulled = await client.pull("T", 0, 0)
    assert pulled.messages[0].body == bytes(1 << 20)


async def test_a_put_that_was_sent_is_not_repeated_when_the_line_breaks(
    served: Served, line: CutLine
) -> None:
    async with AsyncClient(line.target, timeout_s=20) as client:
        await client.put(a_message())  # the stream is open
        line.cut_after_answer_bytes = 0
        with pytest.raises(UnavailableError) as caught:
            await client.put(a_message(b"perhaps stored"))
        assert caught.value.reason == ""
        line.cut_after_answer_bytes = None
        await client.put(a_message(b"the next"))
        bodies = [message.body for message in (await client.pull("T", 0, 0)).messages]
        assert bodies in ([b"x", b"the next"], [b"x", b"perhaps stored", b"the next"])


async def test_a_put_that_finds_no_server_waits_for_one(served: Served, line: CutLine) -> None:
    line.stop_accepting()
    async with AsyncClient(line.target, timeout_s=20) as client:
        putting = asyncio.create_task(client.put(a_message()))
        await asyncio.sleep(0)
        line.accept_again()
        await putting
        assert len((await client.pull("T", 0, 0)).messages) == 1


async def test_a_call_that_is_given_up_leaves_its_place(
    served: Served, client: AsyncClient
) -> None:
    await client.put(a_message())
    gate = served.server._edge.gate
    parked = asyncio.create_task(client.pull("T", 0, 1, wait_s=20))
    await until(lambda: gate.under_way(CallKind.PULL))
    parked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await parked
    await until(lambda: not gate.under_way(CallKind.PULL))


class SilentStream:
    """A server that never answers."""

    def __init__(self) -> None:
        self.sent: list[pb.Call] = []
        self._end: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    async def initial_metadata(self) -> None:
        """It is there."""

    def done(self) -> bool:
        return False

    async def __aiter__(self) -> AsyncIterator[object]:
        while (response := await self.read()) is not EOF:
            yield response

    async def read(self) -> object:
        return await self._end

    async def write(self, request: pb.CallsRequest) -> None:
        self.sent += request.calls

    async def done_writing(self) -> None:
        self._end.set_result(EOF)

    def cancel(self) -> None:
        """Nothing to end."""


class RefusedStream(SilentStream):
    """No server is there: gRPC returns from `initial_metadata` all the same."""

    def done(self) -> bool:
        return True

    async def read(self) -> object:
        nothing = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, "refused", None)


async def test_where_no_server_is_found_nothing_was_sent() -> None:
    stream = RefusedStream()
    with pytest.raises(UnavailableError) as caught:
        await CallStream(lambda: stream).call("Put", b"", 10)
    assert caught.value.reason == call_stream.NOT_SENT
    assert stream.sent == []


class SlowStream(SilentStream):
    """It takes a message when the test says so, and answers as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[list[int]] = []
        self._taken: asyncio.Future[None] | None = None
        self._answers: asyncio.Queue[object] = asyncio.Queue()

    async def read(self) -> object:
        return await self._answers.get()

    async def write(self, request: pb.CallsRequest) -> None:
        assert self._taken is None, "one at a time"
        self.messages.append([call.id for call in request.calls])
        self._taken = asyncio.get_running_loop().create_future()
        await self._taken

    def take(self) -> None:
        assert self._taken is not None
        self._taken.set_result(None)
        self._taken = None

    def answer(self, *ids: int) -> None:
        results = [pb.CallResult(id=number, response=b"%d" % number) for number in ids]
        self._answers.put_nowait(pb.CallsResponse(results=results))

    def answer_eof(self) -> None:
        self._answers.put_nowait(EOF)

    async def done_writing(self) -> None:
        self.answer_eof()


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_calls_of_one_turn_go_out_together_and_so_do_those_behind_a_message() -> None:
    slow = SlowStream()
    calls = CallStream(lambda: slow)

    def call(count: int) -> list[asyncio.Task[bytes | Placed]]:
        return [asyncio.create_task(calls.call("Put", b"x", 10)) for _ in range(count)]

    first = call(2)
    await turns()
    assert slow.messages == [[1, 2]]
    # What comes while a message is on its way goes out with the next, as soon as that is taken.
    second = call(3)
    await turns()
    assert slow.messages == [[1, 2]]
    slow.take()
    await turns()
    assert slow.messages == [[1, 2], [3, 4, 5]]
    slow.take()
    slow.answer(2)
    slow.answer(1, 5, 4, 3)
    assert await asyncio.gather(*first, *second) == [b"1", b"2", b"3", b"4", b"5"]
    third = call(3)
    await turns()
    assert slow.messages[2:] == [[6, 7, 8]]
    slow.take()
    slow.answer(6, 7, 8)
    await asyncio.gather(*third)
    await calls.close()


async def test_a_stream_is_closed_behind_a_message_that_is_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call_stream, "_CLOSING_S", 3600)  # the stream ends, so it takes no time
    slow = SlowStream()
    calls = CallStream(lambda: slow)
    waits = asyncio.create_task(calls.call("Put", b"x", 10))
    await turns()
    closing = asyncio.create_task(calls.close())
    await turns()
    assert not closing.done()
    slow.take()  # the call
    await turns()
    slow.take()  # that it is given up
    await closing
    assert slow.messages == [[1], [1]]
    assert waits.cancelled()


class NonsenseStream(SlowStream):
    """It answers each batch of puts with what is no answer to it."""

    async def write(self, request: pb.CallsRequest) -> None:
        for call in request.calls:
            if call.method == "PutBatch":
                result = pb.CallResult(id=call.id, response=b"nonsense")
                self._answers.put_nowait(pb.CallsResponse(results=[result]))


async def test_an_answer_that_cannot_be_read_is_told_to_those_it_is_for() -> None:
    nonsense = NonsenseStream()
    calls = CallStream(lambda: nonsense)
    other = asyncio.create_task(calls.call("Pull", b"", 20))
    puts = (calls.call("Put", b"", 20, 0) for _ in range(3))
    told = await asyncio.gather(*puts, return_exceptions=True)
    assert all(isinstance(one, UnavailableError) and not one.reason for one in told)
    assert not other.done()
    nonsense.answer(1)
    assert await other == b"1"
    await calls.close()


async def test_of_a_put_that_left_with_others_the_server_is_not_told() -> None:
    slow = SlowStream()
    calls = CallStream(lambda: slow)
    puts = [asyncio.create_task(calls.call("Put", b"x", 10, 0)) for _ in range(3)]
    await turns()
    slow.take()
    puts[0].cancel()
    await turns()
    assert slow.messages == [[4]], "a batch is no call of one caller"
    slow.answer_eof()
    told = await asyncio.gather(*puts, return_exceptions=True)
    assert [type(one) for one in told] == [asyncio.CancelledError] + [UnavailableError] * 2


async def test_the_server_is_told_when_the_time_is_up() -> None:
    silent = SilentStream()
    calls = CallStream(lambda: silent)
    with pytest.raises(DeadlineError):
        await calls.call("Get", b"", 0.01)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [(call.id, call.cancel) for call in silent.sent] == [(1, False), (1, True)]
    await calls.close()


async def test_closing_ends_calls_that_wait(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_stream, "_CLOSING_S", 3600)  # the server is told, so it takes no time
    client = AsyncClient(served.target)
    await client.put(a_message())
    parked = asyncio.create_task(client.pull("T", 0, 1, wait_s=60))
    gate = served.server._edge.gate
    await until(lambda: gate.under_way(CallKind.PULL))
    async with asyncio.timeout(LIMIT_S):
        await client.close()
    with pytest.raises(ClosedError):
        await parked


async def test_what_the_server_said_is_told_when_a_write_found_the_stream_ended() -> None:
    """gRPC's own write that fails says "Internal error from Core", whatever the server said."""

    async def refuse(_: object, context: Context) -> None:
        await context.send_initial_metadata(())
        await context.abort(grpc.StatusCode.UNAVAILABLE, "it drains")

    server = grpc.aio.server()
    refusing = grpc.stream_stream_rpc_method_handler(refuse)
    handlers = grpc.method_handlers_generic_handler("kvcq.v1.CallService", {"Calls": refusing})
    server.add_generic_rpc_handlers((handlers,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    told = set()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = kvcq_pb2_grpc.CallServiceStub(channel)
        for _ in range(300):
            calls = CallStream(stub.Calls)
            answers = [asyncio.ensure_future(calls.call("Put", bytes(1024), 20)) for _ in range(3)]
            for error in await asyncio.gather(*answers, return_exceptions=True):
                told.add(str(error).removesuffix(f" ({call_stream.NOT_SENT})"))
    await server.stop(None)
    # gRPC's own write gives some of the streams an end of its own making.
    assert told == {"it drains"} if below_grpc.cygrpc is not None else "it drains" in told
