"""kvcq_client/transport/own_stream.py: one call at a time, whatever happens to it,
and whoever comes meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager, suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq_client import AsyncClient, Message
from kvcq_client.errors import (
    ClosedError,
    DeadlineError,
    KvcqError,
    NotFoundError,
    UnavailableError,
)
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from kvcq_client.transport import call_stream
from kvcq_client.transport.call_stream import CallStream
from server.edge.call_gate import CallKind
from tests.support.seeds import seeds
from tests.support.until import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kvcq_client.transport.connection import Connection
    from kvcq_client.transport.own_stream import OwnStream
    from server.edge import Context
    from tests.support.cut_line import CutLine
    from tests.support.serving import Served

pytestmark = pytest.mark.usefixtures("both_ways")


def a_message(body: bytes = b"x") -> Message:
    return Message("T", body, 0)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_stream, "CALLS_BEFORE", 3)


async def with_own_stream(client: AsyncClient) -> OwnStream:
    async with asyncio.timeout(30):
        while (own := client._connection.call_stream.own) is None:
            with suppress(NotFoundError):  # before the first put
                await client.pull("T", 0, 0, max_messages=1)
    return own


async def bodies(client: AsyncClient) -> list[bytes]:
    found: list[bytes] = []
    with suppress(NotFoundError):
        while part := (await client.pull("T", 0, len(found))).messages:
            found += [message.body for message in part]
    return found


async def test_it_is_opened_for_who_calls_often(served: Served) -> None:
    def streams() -> int:
        return served.server._edge.gate.under_way(CallKind.STREAM)

    async with AsyncClient(served.target, timeout_s=20) as client:
        for number in range(2):
            assert (await client.put(a_message())).queue_offset == number
        assert (streams(), client._connection.call_stream._own) == (1, None)
        own = await with_own_stream(client)
        assert (await client.put(a_message())).queue_offset == 2
        assert streams() == 2
        assert client._connection.call_stream.own is own
    await until(lambda: not streams())


async def test_what_the_server_refuses_leaves_it_open(served: Served, client: AsyncClient) -> None:
    own = await with_own_stream(client)
    for _ in range(3):
        with pytest.raises(KvcqError) as caught:
            await client.put(Message("T", b"x", 9))
        assert caught.value.reason
        assert client._connection.call_stream.own is own
    await client.put(a_message())
    assert await bodies(client) == [b"x"]


@pytest.mark.parametrize("seed", seeds(2, 4))
async def test_whatever_callers_do_at_once_each_has_its_own_answers(
    served: Served, seed: int
) -> None:
    """Alone and in company, small and large, given up and late, and when the stream is cut."""
    random = Random(seed)
    acknowledged: dict[int, bytes] = {}
    sent: list[bytes] = []
    unknown: set[bytes] = set()
    used = 0

    async def one_put(client: AsyncClient, name: int, number: int) -> None:
        nonlocal used
        body = b"%d %d " % (name, number) + bytes(random.choice([0, 100, 70_000]))
        sent.append(body)
        used += client._connection.call_stream.own is not None
        timeout_s = random.choice([20.0, 20.0, 20.0, 0.002])
        putting = asyncio.create_task(client.put(a_message(body), timeout_s=timeout_s))
        if not random.randrange(8):
            for _ in range(random.randrange(12)):
                await asyncio.sleep(0)
            putting.cancel()
        try:
            placed = await putting
        except (DeadlineError, UnavailableError, asyncio.CancelledError):
            unknown.add(body)
            return
        assert acknowledged.setdefault(placed.queue_offset, body) is body, "an offset twice"
        offset = placed.queue_offset
        pulled = await client.pull("T", 0, offset, max_messages=1, wait_s=random.choice([0, 5]))
        assert pulled.messages[0].body == body

    async def work(client: AsyncClient, name: int) -> None:
        for number in range(random.randrange(20, 60)):
            await one_put(client, name, number)

    async with AsyncClient(served.target, timeout_s=20) as client:
        await with_own_stream(client)
        await work(client, 0)
        await asyncio.gather(*(work(client, name) for name in range(1, 5)))
        await work(client, 5)
        stored = await bodies(client)
    assert used > 20
    assert {at: stored[at] for at in acknowledged} == acknowledged
    times = Counter(stored)
    assert max(times.values()) == 1, "stored twice"
    assert set(acknowledged.values()) | unknown == set(sent)
    assert times.keys() <= set(sent)


class Answering:
    """A server of calls. The request is the answer; `slow` waits for `go_on`, and `gone` ends the
    stream with a status."""

    def __init__(self) -> None:
        self.came: list[tuple[int, bytes]] = []
        self.go_on = asyncio.Event()
        self.slow_came = asyncio.Event()
        self._streams = 0

    async def calls(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        self._streams += 1
        number = self._streams
        await context.send_initial_metadata(())
        async for request in requests:
            results = []
            for call in pb.CallsRequest.FromString(request).calls:
                self.came.append((number, call.request))
                if call.request == b"gone":
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "it drains")
                if call.request == b"slow":
                    self.slow_came.set()
                    await self.go_on.wait()
                results.append(pb.CallResult(id=call.id, response=call.request))
            yield pb.CallsResponse(results=results).SerializeToString()


@asynccontextmanager
async def answering() -> AsyncIterator[tuple[Answering, CallStream]]:
    """A server, and calls of it that have a stream of their own."""
    answers = Answering()
    handler = grpc.stream_stream_rpc_method_handler(answers.calls)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("kvcq.v1.CallService", {"Calls": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        calls = CallStream(kvcq_pb2_grpc.CallServiceStub(channel).Calls)
        while calls.own is None:
            await calls.call("Put", b"before", 20)
        answers.came.clear()
        yield answers, calls
        await calls.close()
    await server.stop(None)


def own_of(calls: CallStream) -> OwnStream:
    assert calls.own is not None
    return calls.own


def begun(calls: CallStream, timeout_s: float = 20) -> asyncio.Task[bytes]:
    return asyncio.create_task(own_of(calls).call("Put", b"slow", timeout_s))


async def ends_soon(event: asyncio.Event) -> None:
    async with asyncio.timeout(LIMIT_S):
        await event.wait()


def _has_ended(own: OwnStream, connection: Connection) -> bool:
    return own.has_ended and connection.call_stream._task is None


async def until_free(own: OwnStream) -> None:
    await until(lambda: own.is_free)


async def test_who_finds_it_taken_waits_for_nobody() -> None:
    async with answering() as (answers, calls):
        slow = begun(calls)
        await ends_soon(answers.slow_came)
        assert calls.own is None
        for _ in range(3):
            assert await calls.call("Put", b"another", 20) == b"another"
        assert not slow.done()
        answers.go_on.set()
        assert await slow == b"slow"
        assert await own_of(calls).call("Put", b"again", 20) == b"again"
        assert answers.came == [(2, b"slow"), *[(1, b"another")] * 3, (2, b"again")]


@pytest.mark.parametrize("turns", [0, 1, 2, None])
async def test_one_that_is_given_up_keeps_it_until_it_is_answered(turns: int | None) -> None:
    async with answering() as (answers, calls):
        own = own_of(calls)
        slow = begun(calls)
        if turns is None:
            await ends_soon(answers.slow_came)
        for _ in range(turns or 0):
            await asyncio.sleep(0)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        if turns != 0:  # else it had not begun
            for _ in range(9):
                assert await calls.call("Put", b"another", 20) == b"another"
            assert not own.is_free
        answers.go_on.set()
        await until_free(own)
        assert await own_of(calls).call("Put", b"again", 20) == b"again"


async def test_the_time_of_each_call_is_its_own() -> None:
    async with answering() as (answers, calls):
        own = own_of(calls)
        for _ in range(3):  # the timer that they leave behind is of the first
            assert await own.call("Put", b"x", 20) == b"x"
        slow = begun(calls, 0.05)
        with pytest.raises(DeadlineError, match=r"no answer within 0\.05 s"):
            async with asyncio.timeout(LIMIT_S):
                await slow
        assert not own.is_free
        assert await calls.call("Put", b"another", 20) == b"another"
        answers.go_on.set()
        await until_free(own)
        assert await own.call("Put", b"again", 20) == b"again"


async def test_a_timer_of_a_call_that_ended_does_not_end_the_next_one() -> None:
    async with answering() as (answers, calls):
        own = own_of(calls)
        await own.call("Put", b"x", 1.0)
        slow = begun(calls, 20)
        await ends_soon(answers.slow_came)
        assert own._timer is not None
        first = own._timer
        await until(lambda: own._timer is not first)
        assert not slow.done()
        answers.go_on.set()
        assert await slow == b"slow"


async def test_what_the_server_says_at_the_end_is_told() -> None:
    async with answering() as (answers, calls):
        with pytest.raises(UnavailableError, match="it drains"):
            await own_of(calls).call("Put", b"gone", 20)
        assert calls.own is None
        assert await calls.call("Put", b"another", 20) == b"another"
        assert answers.came == [(2, b"gone"), (1, b"another")]


async def test_closing_ends_the_call_that_waits(served: Served, line: CutLine) -> None:
    client = AsyncClient(line.target, timeout_s=20)
    await with_own_stream(client)
    line.hold_newest()
    putting = asyncio.create_task(client.put(a_message()))
    await line.holds.wait()
    async with asyncio.timeout(LIMIT_S):
        await client.close()
        with pytest.raises(ClosedError):
            await putting


async def test_when_the_line_breaks_a_put_fails_and_a_pull_goes_again(
    served: Served, line: CutLine
) -> None:
    async with AsyncClient(line.target, timeout_s=20) as client:
        await with_own_stream(client)
        line.hold_newest()
        putting = asyncio.create_task(client.put(a_message(b"perhaps")))
        await line.holds.wait()
        await served.first_stored("T")
        line.cut()
        with pytest.raises(UnavailableError) as caught:
            await putting
        assert caught.value.reason == ""
        line.release()
        await with_own_stream(client)
        line.hold_newest()
        pulling = asyncio.create_task(client.pull("T", 0, 0))
        await line.holds.wait()
        line.cut()
        assert [message.body for message in (await pulling).messages] == [b"perhaps"]
        line.release()


async def test_a_put_that_finds_it_ended_is_sent_all_the_same(
    served: Served, line: CutLine
) -> None:
    async with AsyncClient(line.target, timeout_s=20) as client:
        for number in range(3):
            own = await with_own_stream(client)
            line.cut()
            await until(partial(_has_ended, own, client._connection))
            assert (await client.put(a_message(b"%d" % number))).queue_offset == number
        assert await bodies(client) == [b"0", b"1", b"2"]


async def test_a_pull_that_may_be_parked_leaves_it_alone(
    served: Served, client: AsyncClient
) -> None:
    await client.put(a_message())
    own = await with_own_stream(client)
    parked = asyncio.create_task(client.pull("T", 0, 1, wait_s=20))
    gate = served.server._edge.gate
    await until(lambda: gate.under_way(CallKind.PULL))
    assert own.is_free
    await client.put(a_message())
    assert [message.body for message in (await parked).messages] == [b"x"]
