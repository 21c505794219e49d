"""server/puts/stream.py over real gRPC: answers in order, errors for one batch, flow control."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.puts import puts as puts_module
from server.puts import stream as put_stream
from store.config import FlushMode
from store.errors import StoreBusyError
from store.format.record import unpack_record
from tests.support.rpc_errors import error_info
from tests.support.serving import serving
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from store.format.batch_mark import BatchMark
    from store.message import Appended, Message
    from tests.support.serving import Served


def _request(number: int, *bodies: bytes, topic: str = "orders") -> pb.PutStreamRequest:
    messages = [pb.Message(topic=topic, queue_id=0, body=body) for body in bodies]
    return pb.PutStreamRequest(request_id=number, batch=pb.PutBatchRequest(messages=messages))


async def _answers(
    served: Served, requests: list[pb.PutStreamRequest]
) -> list[pb.PutStreamResponse]:
    return [answer async for answer in served.messages.PutStream(iter(requests))]


@pytest.mark.parametrize("flush_mode", list(FlushMode))
async def test_answers_come_in_the_order_of_the_batches(
    tmp_path: Path, flush_mode: FlushMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(puts_module, "STREAM_WINDOW", 4)
    async with serving(tmp_path, store={"flush_mode": flush_mode}) as served:
        answers = await _answers(served, [_request(n, b"a", b"b") for n in range(50)])
    assert [answer.request_id for answer in answers] == list(range(50))
    offsets = [offset for answer in answers for offset in answer.batch.queue_offsets]
    assert offsets == list(range(100))


async def test_a_refused_batch_does_not_end_the_stream(served: Served) -> None:
    answers = await _answers(
        served, [_request(1, b"a"), _request(2), _request(3, b"x", topic="b d"), _request(4, b"b")]
    )
    assert [answer.HasField("error") for answer in answers] == [False, True, True, False]
    assert answers[1].error.reason == "INVALID_ARGUMENT"
    assert answers[2].error.metadata["field"] == "messages[0].topic"
    assert answers[2].error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert list(answers[3].batch.queue_offsets) == [1]


async def test_draining_answers_what_was_taken_then_says_so(served: Served) -> None:
    never = asyncio.Event()

    async def requests() -> AsyncIterator[pb.PutStreamRequest]:
        yield _request(1, b"a")
        await never.wait()

    call = served.messages.PutStream(requests())
    first = await call.read()
    assert first.request_id == 1
    served.server.stop()
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await call.read()
    assert error_info(ended.value).reason == "DRAINING"


async def test_a_client_that_goes_away_leaves_nothing_behind(served: Served) -> None:
    call = served.messages.PutStream()
    await call.write(_request(1, b"a"))
    await call.read()
    call.cancel()
    await until(lambda: not any(task.get_name() == "put-stream" for task in asyncio.all_tasks()))


async def test_a_batch_does_not_overtake_a_refused_one_when_its_producer_was_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(puts_module, "REMEMBERED_PRODUCERS", 1)
    async with serving(tmp_path) as served:

        def numbered(sequence: int, producer_id: str = "p") -> pb.PutStreamRequest:
            request = _request(sequence, b"%d" % sequence)
            request.batch.producer.producer_id = producer_id
            request.batch.producer.sequence = sequence
            return request

        append = served.store.append
        refusals = ["refuse the second batch"]

        def busy_once(
            messages: Sequence[Message], *, wait: bool = True, mark: BatchMark
        ) -> Appended:
            if messages[0].body == b"1" and refusals:
                refusals.pop()
                raise StoreBusyError("dispatch stalled")
            return append(messages, wait=wait, mark=mark)

        monkeypatch.setattr(served.store, "append", busy_once)
        call = served.messages.PutStream()

        async def answer_to(request: pb.PutStreamRequest) -> pb.PutStreamResponse:
            await call.write(request)
            response = await call.read()
            assert isinstance(response, pb.PutStreamResponse)
            return response

        assert not (await answer_to(numbered(0))).HasField("error")
        assert (await answer_to(numbered(1))).error.reason == "STORE_BUSY"
        # Somebody else takes the only place in the table of producers.
        await served.messages.PutBatch(numbered(0, "other").batch)
        assert (await answer_to(numbered(2))).error.reason == "OUT_OF_SEQUENCE"
        for sequence in (1, 2):
            assert not (await answer_to(numbered(sequence))).HasField("error")
        call.cancel()
        pulled = served.store.pull("orders", 0, 0)
        bodies = [unpack_record(record).body for record in pulled.records]
        assert bodies == [b"0", b"0", b"1", b"2"]


async def test_a_number_used_for_other_messages_is_refused_and_nothing_behind_it_is_taken(
    served: Served,
) -> None:
    def numbered(sequence: int, *bodies: bytes) -> pb.PutStreamRequest:
        request = _request(sequence, *bodies)
        request.batch.producer.producer_id = "p"
        request.batch.producer.sequence = sequence
        return request

    await served.messages.PutBatch(numbered(0, b"a", b"b").batch)
    answers = await _answers(served, [numbered(0, b"c", b"d"), numbered(2, b"e")])
    assert [each.error.reason for each in answers] == ["NUMBER_REUSED", "OUT_OF_SEQUENCE"]
    assert answers[0].error.metadata["field"] == "producer.sequence"
    assert answers[0].error.metadata["producerId"] == "p"
    answers = await _answers(served, [numbered(0, b"a", b"b"), numbered(2, b"e")])
    assert [each.batch.repeated_batch for each in answers] == [True, False]
    pulled = served.store.pull("orders", 0, 0)
    assert [unpack_record(record).body for record in pulled.records] == [b"a", b"b", b"e"]


@pytest.mark.parametrize("producer_id", ["p", ""])
async def test_a_number_that_no_batch_can_have_holds_nothing_back(
    served: Served, producer_id: str
) -> None:
    wrong, right = _request(1, b"a"), _request(2, b"b")
    wrong.batch.producer.producer_id = producer_id
    wrong.batch.producer.sequence = -1
    if producer_id:
        right.batch.producer.producer_id = producer_id
    answers = await _answers(served, [wrong, right])
    assert answers[0].error.reason == "INVALID_ARGUMENT"
    assert list(answers[1].batch.queue_offsets) == [0]


async def test_a_stream_ends_when_too_many_of_its_producers_were_refused(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(put_stream, "MAX_REFUSED_PRODUCERS", 2)

    def refused(producer: str) -> pb.PutStreamRequest:
        request = _request(1, b"x", topic="b d")
        request.batch.producer.producer_id = producer
        return request

    call = served.messages.PutStream(iter([refused(name) for name in ("a", "b", "a", "c")]))
    answers: list[pb.PutStreamResponse] = []

    async def read() -> None:
        while True:
            answer = await call.read()
            assert isinstance(answer, pb.PutStreamResponse)
            answers.append(answer)

    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await read()
    assert [answer.error.reason for answer in answers] == ["INVALID_ARGUMENT"] * 3
    assert error_info(ended.value).metadata["field"] == "producer.producer_id"
