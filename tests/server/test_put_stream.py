"""server/put_stream.py over real gRPC: answers in order, errors for one batch, flow control."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest

from proto.v1 import kvcq_pb2 as pb
from store.config import FlushMode
from tests.support.rpc_errors import error_info
from tests.support.serving import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

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
    tmp_path: Path, flush_mode: FlushMode
) -> None:
    async with serving(tmp_path, store={"flush_mode": flush_mode}, stream_window=4) as served:
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
    while any(task.get_name() == "put-stream" for task in asyncio.all_tasks()):
        await asyncio.sleep(0)
