"""server/services/call_stream.py over real gRPC: a call on a stream is what it is by itself."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from server.edge.call_gate import CallKind, Places
from server.edge.decoder import Decoder, Requests
from server.edge.request_fields import MAX_CALLS
from server.edge.request_limits import PLACES
from server.errors import ServerDrainingError
from server.puts.coalescer import PutCoalescer
from server.reads import read_turns
from server.services.call_stream import (
    RESULT_BYTES,
    UNSENT_BYTES,
    CallStream,
    Result,
    results_out,
)
from store.config import FlushMode
from tests.support.rpc_errors import error_info
from tests.support.seeds import seeds
from tests.support.serving import serving
from tests.support.until import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from google.protobuf.message import Message

    from tests.support.serving import Served

EOF: object = grpc.aio.EOF  # type: ignore[attr-defined] # the stubs leave it out


class Stream:
    """The stream of one client."""

    def __init__(self, served: Served) -> None:
        self.call: Any = kvcq_pb2_grpc.CallServiceStub(served.channel).Calls()
        self._results: list[pb.CallResult] = []

    async def send(self, *calls: tuple[int, str, Message]) -> None:
        request = pb.CallsRequest(
            calls=[
                pb.Call(id=number, method=method, request=request.SerializeToString())
                for number, method, request in calls
            ]
        )
        # `write` would end the call by itself when that fails, and hide why the server did.
        await self.call._cython_call.send_serialized_message(request.SerializeToString())

    async def result(self) -> pb.CallResult:
        while not self._results:
            response = await self.call.read()
            if response is EOF:
                await self.call
                raise EOFError
            self._results += response.results
        return self._results.pop(0)


@asynccontextmanager
async def streaming(served: Served) -> AsyncIterator[Stream]:
    stream = Stream(served)
    try:
        yield stream
    finally:
        stream.call.cancel()


def put(body: bytes, **fields: Any) -> pb.PutRequest:  # noqa: ANN401
    message = {"topic": "T", "queue_id": 0, "body": body, **fields}
    return pb.PutRequest(message=pb.Message(**message))


def pull(offset: int, **fields: Any) -> pb.PullRequest:  # noqa: ANN401
    return pb.PullRequest(topic="T", queue_id=0, offset=offset, **fields)


async def test_what_was_put_on_a_stream_is_pulled_on_it(served: Served) -> None:
    async with streaming(served) as stream:
        await stream.send(*((number, "Put", put(b"%d" % number)) for number in range(MAX_CALLS)))
        placed = {}
        for _ in range(MAX_CALLS):
            result = await stream.result()
            response = pb.PutResponse.FromString(result.response)
            placed[result.id] = response.placed.queue_offset
        assert placed == {number: number for number in range(MAX_CALLS)}
        await stream.send((7, "Pull", pull(0, max_messages=100)))
        result = await stream.result()
        assert result.id == 7
        bodies = [message.body for message in pb.PullResponse.FromString(result.response).messages]
        assert bodies == [b"%d" % number for number in range(MAX_CALLS)]


async def test_a_put_that_comes_alone_takes_no_turn_of_the_loop(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gather(*_: object) -> None:
        raise AssertionError("it was gathered")

    monkeypatch.setattr(PutCoalescer, "put", gather)
    async with streaming(served) as stream:
        for number in range(3):
            await stream.send((number, "Put", put(b"body")))
            response = pb.PutResponse.FromString((await stream.result()).response)
            assert response.placed.queue_offset == number


async def test_what_was_answered_is_there_for_whoever_asks_next(served: Served) -> None:
    """Units are derived behind the answer to a put that came alone."""
    async with streaming(served) as writer, streaming(served) as reader:
        for number in range(300):
            await writer.send((number, "Put", put(b"%d" % number)))
            await writer.result()
            await reader.send((number, "Pull", pull(number)))
            answer = pb.PullResponse.FromString((await reader.result()).response)
            assert [message.body for message in answer.messages] == [b"%d" % number]


class Context:
    """Of a client that takes an answer when the test asks for the next one."""

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def invocation_metadata(self) -> tuple[()]:
        return ()


def calls_of(served: Served, *sent: pb.CallsRequest) -> Any:  # noqa: ANN401 - a generator
    """A stream that was sent this, and stays open; what it yields."""

    async def requests() -> AsyncIterator[pb.CallsRequest]:
        for one in sent:
            yield one
        await asyncio.get_running_loop().create_future()

    edge = served.server._edge
    context: Any = Context()
    stream = CallStream(
        edge.shared, edge.gate, edge.memory, served.server._metrics, edge.busy_poll, context, "id"
    )
    return stream.run(requests(), served.server._stage)


def ids_of(response: bytes) -> list[int]:
    return [one.id for one in pb.CallsResponse.FromString(response).results]


def one_put(number: int) -> pb.CallsRequest:
    request = put(b"body").SerializeToString()
    return pb.CallsRequest(calls=[pb.Call(id=number, method="Put", request=request)])


@given(
    st.lists(
        st.builds(Result, st.integers(0, (1 << 63) - 1), st.binary(max_size=300), st.none())
        | st.builds(
            Result,
            st.integers(0, 1000),
            st.just(b""),
            st.builds(pb.BatchError, reason=st.text(st.characters(codec="ascii"), max_size=5)),
        ),
        max_size=10,
    )
)
def test_results_are_the_message_that_protobuf_makes(results: list[Result]) -> None:
    plain = pb.CallsResponse(
        results=[
            pb.CallResult(id=one.id, error=one.error)
            if one.error is not None
            else pb.CallResult(id=one.id, response=one.response)
            for one in results
        ]
    )
    assert pb.CallsResponse.FromString(results_out(results)) == plain


async def steps_of(served: Served, topic: str, seed: int) -> list[object]:
    """What a stream answers to calls of all kinds, in messages of one and of several."""
    chosen = random.Random(seed)
    told: list[object] = []

    def of(result: pb.CallResult, method: str) -> object:
        if result.HasField("error"):
            return result.id, result.error.code, result.error.reason
        if method == "Put":
            return result.id, pb.PutResponse.FromString(result.response).placed.queue_offset
        response = pb.PullResponse.FromString(result.response)
        return result.id, [(one.queue_offset, one.body) for one in response.messages]

    def one(number: int) -> tuple[int, str, Message]:
        fields: dict[str, Any] = {"topic": topic, "queue_id": chosen.choice([0, 0, 0, 0, 9])}
        if chosen.random() < 0.6:
            body = bytes([number]) * chosen.choice([1, 300, 9000])
            return number, "Put", pb.PutRequest(message=pb.Message(body=body, **fields))
        limit = chosen.choice([1, 32])
        wait_ms = chosen.choice([0, 0, 1])
        offset = chosen.randrange(3)
        request = pb.PullRequest(offset=offset, max_messages=limit, wait_ms=wait_ms, **fields)
        return number, chosen.choice(["Pull", "Pull", "Nothing"]), request

    async with streaming(served) as stream:
        for _ in range(40):
            calls = [one(number) for number in range(chosen.choice([1, 1, 1, 2, 5]))]
            await stream.send(*calls)
            results = {result.id: result for result in [await stream.result() for _ in calls]}
            told += [of(results[number], method) for number, method, _ in calls]
    return told


@pytest.mark.parametrize("seed", seeds(2, 4))
async def test_it_answers_what_it_would_by_a_write_of_its_own(
    served: Served, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    # Of calls that come together, a pull that waits for a turn may see the put of another one.
    monkeypatch.setattr(read_turns, "TURN_S", 60.0)
    joined = await steps_of(served, "A", seed)
    monkeypatch.setattr(Requests, "call_below", None)
    assert await steps_of(served, "B", seed) == joined


async def test_a_server_that_ends_lets_an_answer_that_is_being_sent_go_out(served: Served) -> None:
    results = calls_of(served, one_put(1))
    async with asyncio.timeout(LIMIT_S):
        assert ids_of(await anext(results)) == [1]
        served.server.stop()
        await until(lambda: served.server._stage.is_draining)
        with pytest.raises(ServerDrainingError):
            await anext(results)


async def test_a_client_that_takes_no_answers_is_not_read_for_ever(served: Served) -> None:
    refused = pb.CallsRequest(calls=[pb.Call(id=9, method="Put", timeout_ms=-1)] * MAX_CALLS)
    many = 200
    results = calls_of(served, one_put(1), *[refused] * many)
    async with asyncio.timeout(LIMIT_S):
        count = len(ids_of(await anext(results)))
        stream = results.ag_frame.f_locals["self"]
        await until(lambda: stream._room is not None)
        assert UNSENT_BYTES <= stream._unsent_bytes < UNSENT_BYTES + MAX_CALLS * RESULT_BYTES
        while count < 1 + many * MAX_CALLS:
            count += len(ids_of(await anext(results)))
    await results.aclose()


async def test_a_client_that_goes_while_it_is_answered_leaves_nothing_behind(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    results = calls_of(served, one_put(1), one_put(2))
    async with asyncio.timeout(LIMIT_S):
        await anext(results)
        await results.aclose()
    assert not caplog.records
    assert served.server._edge.gate.under_way(CallKind.SHORT) == 0


@pytest.mark.parametrize("flush_mode", FlushMode)
async def test_a_put_that_comes_alone_is_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush_mode: FlushMode
) -> None:
    """Also when it has to wait, as for the disk."""
    decoded: list[str] = []
    decode = Decoder.decode

    def noted(decoder: Decoder, data: bytes) -> Message:
        decoded.append(decoder.method)
        return decode(decoder, data)

    monkeypatch.setattr(Decoder, "decode", noted)
    async with (
        serving(tmp_path / "store", store={"flush_mode": flush_mode}) as served,
        streaming(served) as stream,
    ):
        await stream.send((1, "Put", put(b"x")))
        assert not (await stream.result()).HasField("error")
    assert decoded == ["Put"]


async def test_a_put_that_comes_alone_is_refused_in_the_words_of_any_other(served: Served) -> None:
    bad = [put(b"x", topic="a b"), put(b"x", tag="a||b"), put(b"x", queue_id=99)]
    async with streaming(served) as stream:
        alone = []
        for request in bad:
            await stream.send((1, "Put", request))
            alone.append((await stream.result()).error)
        await stream.send(*((number, "Put", request) for number, request in enumerate(bad)))
        together = {(result := await stream.result()).id: result.error for _ in bad}
    assert alone == [together[number] for number in range(len(bad))]
    assert all(error.message for error in alone)


async def test_a_parked_pull_holds_no_other_call_up(served: Served) -> None:
    async with streaming(served) as stream:
        await stream.send((1, "Put", put(b"first")))
        await stream.result()
        await stream.send((1, "Pull", pull(1, wait_ms=20_000)), (2, "Pull", pull(0)))
        assert (await stream.result()).id == 2
        await stream.send((3, "Put", put(b"second")))
        results = [await stream.result(), await stream.result()]
        assert {result.id for result in results} == {1, 3}
        [parked] = [result for result in results if result.id == 1]
        assert pb.PullResponse.FromString(parked.response).messages[0].body == b"second"


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (pb.Call(id=1, method="Nothing"), "calls.method"),
        (pb.Call(id=1, method="Subscribe"), "calls.method"),
        (pb.Call(id=1, method="Calls"), "calls.method"),
        (pb.Call(id=1, method="Put", timeout_ms=-1), "calls.timeout_ms"),
        (pb.Call(id=1, method="Put", request=b"\xff" * 9), "request"),
        (pb.Call(id=1, method="Pull", request=bytes(200 << 10)), "request"),
    ],
)
async def test_a_call_that_makes_no_sense_is_refused_and_the_stream_goes_on(
    served: Served, call: pb.Call, field: str
) -> None:
    async with streaming(served) as stream:
        await stream.call.write(pb.CallsRequest(calls=[call]))
        result = await stream.result()
        assert (result.id, result.error.code) == (1, grpc.StatusCode.INVALID_ARGUMENT.value[0])
        assert result.error.metadata.get("field", "") == field
        await stream.send((2, "Put", put(b"goes on")))
        assert (await stream.result()).response


@pytest.mark.parametrize(
    "calls",
    [
        [pb.Call(id=number, method="Put") for number in range(MAX_CALLS + 1)],
        [pb.Call(id=5, method="Pull", request=pull(1, wait_ms=9000).SerializeToString())] * 2,
    ],
)
async def test_a_stream_that_makes_no_sense_ends(served: Served, calls: list[pb.Call]) -> None:
    await served.messages.Put(put(b"there is a queue"))
    async with streaming(served) as stream:
        await stream.call.write(pb.CallsRequest(calls=calls))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.result()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_what_was_taken_is_answered_before_a_stream_that_makes_no_sense_ends(
    tmp_path: Path,
) -> None:
    """Otherwise a put that is stored would look like one that was refused, and come again."""
    async with serving(tmp_path / "store", store={"flush_mode": "SYNC"}) as served:
        await served.messages.Put(put(b"there is a queue"))
        parked = pull(1, wait_ms=60_000)
        async with streaming(served) as stream, asyncio.timeout(LIMIT_S):
            await stream.send((1, "Put", put(b"taken")), (2, "Pull", parked), (2, "Pull", parked))
            answered = await stream.result()
            assert pb.PutResponse.FromString(answered.response).placed.queue_offset == 1
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stream.result()
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_calls_on_streams_take_the_places_of_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PLACES, CallKind.PULL, Places(2, 12_288))
    async with serving(tmp_path / "store") as served:
        await served.messages.Put(put(b"there is a queue"))
        async with streaming(served) as stream:
            await stream.send(*((at, "Pull", pull(1, wait_ms=20_000)) for at in range(3)))
            result = await stream.result()
            assert (result.id, result.error.reason) == (2, "TOO_MANY_CALLS")
            # Given up, a call leaves its place to the next.
            await stream.call.write(pb.CallsRequest(calls=[pb.Call(id=0, cancel=True)]))
            await stream.send((9, "Pull", pull(0)))
            assert (await stream.result()).id == 9
        gate = served.server._edge.gate
        await until(lambda: not gate.under_way(CallKind.PULL))


async def test_draining_answers_what_was_taken_then_says_so(served: Served) -> None:
    await served.messages.Put(put(b"there is a queue"))
    async with streaming(served) as stream:
        await stream.send((1, "Pull", pull(1, wait_ms=20_000)), (2, "Pull", pull(0)))
        assert (await stream.result()).id == 2
        served.server.stop()
        answered = await stream.result()
        assert answered.id == 1
        assert pb.PullResponse.FromString(answered.response).status == pb.PULL_STATUS_NO_NEW_MESSAGE
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.result()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert error_info(caught.value).reason == "DRAINING"


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_large_answer_whose_caller_has_gone_is_not_counted_for_ever(
    tmp_path: Path, workers: int
) -> None:
    """Alone on its stream, it is sent without a task that could be cancelled."""
    async with serving(
        tmp_path / "store", store={"segment_bytes": 64 << 20}, workers=workers
    ) as served:
        await served.messages.Put(put(bytes(3 << 20)))
        memory = served.server._edge.memory
        request = pull(0, max_messages=1, max_bytes=1)
        for _ in range(4):
            async with streaming(served) as stream:
                await stream.send((1, "Pull", request))
                await until(lambda: memory._sent_bytes)
            await until(lambda: not memory._sent_bytes)


async def test_large_answers_that_nobody_reads_are_counted(tmp_path: Path) -> None:
    async with serving(tmp_path / "store", store={"segment_bytes": 64 << 20}) as served:
        body = bytes(1 << 20)
        for _ in range(4):
            await served.messages.Put(put(body))
        memory = served.server._edge.memory
        async with streaming(served) as stream:
            request = pull(0, max_messages=4, max_bytes=8 << 20)
            await stream.send(*((at, "Pull", request) for at in range(20)))
            assert len((await stream.result()).response) > 4 << 20
            # Between two answers there may be none for a moment; in the end one waits to be read.
            await until(lambda: memory._sent_bytes > 0)
        await until(lambda: not memory._sent_bytes)
