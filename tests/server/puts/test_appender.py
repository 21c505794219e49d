"""server/puts/appender.py: large puts, and appends that would have kept the loop waiting."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.puts.appender import to_its_end
from server.wire.put_limits import INLINE_MESSAGES, INLINE_PARTS, MAX_PARTS
from tests.support.rpc_errors import error_info

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.serving import Served

#: More of both than the loop takes by itself.
LARGE = INLINE_MESSAGES + INLINE_PARTS


def _message(number: int = 0, light_queues: Sequence[str] = ()) -> pb.Message:
    return pb.Message(topic="t", queue_id=0, body=b"%d" % number, light_queues=light_queues)


def _batch(count: int, sequence: int | None = None) -> pb.PutBatchRequest:
    request = pb.PutBatchRequest(messages=map(_message, range(count)))
    if sequence is not None:
        request.producer.producer_id = "me"
        request.producer.sequence = sequence
    return request


async def _max_offset(served: Served, topic: str = "t") -> int:
    queue = pb.Queue(topic=topic, queue_id=0)
    answer = await served.messages.GetOffsets(pb.GetOffsetsRequest(queues=[queue]))
    return int(answer.queues[0].max_offset)


async def test_others_are_served_while_a_thread_has_the_append_lock(served: Served) -> None:
    await served.messages.PutBatch(_batch(1))
    lock = served.store.log.lock
    lock.acquire()
    try:
        puts = [
            asyncio.ensure_future(call)
            for call in (
                served.messages.Put(pb.PutRequest(message=_message())),
                served.messages.PutBatch(_batch(3)),
                served.messages.PutBatch(_batch(3, sequence=0)),
                served.messages.PutBatch(_batch(LARGE)),
            )
        ]
        for _ in range(20):
            await served.messages.Echo(pb.EchoRequest())
        assert await _max_offset(served) == 1
        assert not any(put.done() for put in puts)
    finally:
        lock.release()
    await asyncio.gather(*puts)
    assert await _max_offset(served) == 1 + 1 + 3 + 3 + LARGE


@pytest.mark.parametrize("count", [3, LARGE])
async def test_a_batch_whose_caller_gave_up_is_remembered(served: Served, count: int) -> None:
    store = served.store
    await served.messages.PutBatch(_batch(1, sequence=0))
    store.log.lock.acquire()
    try:
        call = served.messages.PutBatch(_batch(count, sequence=1))
        given_up = asyncio.ensure_future(call)
        while not served.serving.puts.sessions._locks:  # until the batch waits for the lock
            await served.messages.Echo(pb.EchoRequest())
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
    finally:
        store.log.lock.release()
    again = await served.messages.PutBatch(_batch(count, sequence=1))
    assert again.repeated_batch
    following = await served.messages.PutBatch(_batch(1, sequence=1 + count))
    assert not following.repeated_batch
    assert await _max_offset(served) == 1 + count + 1


async def test_a_message_in_many_light_queues_is_in_all_when_it_is_answered(
    served: Served,
) -> None:
    names = [f"%LMQ%{number}" for number in range(1500)]
    ids = []
    for offset in range(2):
        request = pb.PutRequest(message=_message(light_queues=names))
        placed = (await served.messages.Put(request)).placed
        ids.append(placed.message_id)
        assert list(placed.light_queue_offsets) == [offset] * len(names)
        queues = [pb.Queue(topic=name) for name in names]
        answer = await served.messages.GetOffsets(pb.GetOffsetsRequest(queues=queues))
        assert {one.max_offset for one in answer.queues} == {offset + 1}
    pulled = await served.messages.Pull(pb.PullRequest(topic=names[-1]))
    assert [message.message_id for message in pulled.messages] == ids


async def test_a_large_batch_is_answered_as_a_small_one(served: Served) -> None:
    count = LARGE * 3  # over several writes to the queues
    answer = await served.messages.PutBatch(_batch(count))
    assert list(answer.queue_offsets) == list(range(count))
    pulled = await served.messages.Pull(pb.PullRequest(topic="t", max_messages=10_000))
    assert [message.body for message in pulled.messages] == [b"%d" % at for at in range(count)]
    assert [one.physical_offset for one in pulled.messages] == list(answer.physical_offsets)


async def test_a_put_with_too_many_parts_is_refused_whole(served: Served) -> None:
    keys = [f"k{number}" for number in range(1000)]
    messages = [pb.Message(topic="t", queue_id=0, keys=keys)] * (MAX_PARTS // len(keys))
    await served.messages.PutBatch(pb.PutBatchRequest(messages=messages))
    for more in (pb.Message(keys=["k"]), pb.Message(properties={"p": "v"})):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.messages.PutBatch(pb.PutBatchRequest(messages=[*messages, more]))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert error_info(caught.value).metadata["field"] == "messages"
        why = f"more than {MAX_PARTS} light queues, keys and properties in all"
        assert why in str(caught.value.details())
    assert await _max_offset(served) == len(messages)


async def test_the_fault_of_a_large_put_is_named_as_that_of_a_small_one(served: Served) -> None:
    for keys in (["a b"], ["a b"] * (INLINE_PARTS + 1)):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.messages.Put(pb.PutRequest(message=pb.Message(topic="t", keys=keys)))
        assert error_info(caught.value).metadata["field"] == "message.keys"


async def test_work_that_began_comes_to_its_end_and_the_cancelled_caller_hears_of_both() -> None:
    go = asyncio.Event()
    seen: list[int] = []

    async def work() -> int:
        await go.wait()
        return 7

    async def call() -> None:
        seen.append(await to_its_end(work()))
        await asyncio.sleep(0)
        seen.append(8)

    caller = asyncio.create_task(call())
    await asyncio.sleep(0)
    for _ in range(2):
        caller.cancel()
        await asyncio.sleep(0)
    assert not caller.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert seen == [7]


async def test_a_caller_who_is_cancelled_when_the_work_ends_hears_of_both() -> None:
    work: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    seen: list[int] = []

    async def call() -> None:
        seen.append(await to_its_end(work))
        await asyncio.sleep(0)
        seen.append(8)

    caller = asyncio.create_task(call())
    await asyncio.sleep(0)
    work.set_result(7)
    await asyncio.sleep(0)  # the caller is told of the result, and has its turn next
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert seen == [7]
