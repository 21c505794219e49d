"""server/reads/subscription.py over real gRPC: many queues in one stream, by credit, in turns."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq.engine.protocol import KvBatch
from kvcq.tables.keys import UNITS, unit_key
from kvcq.tables.values import UNIT_SIZE
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.edge import request_memory
from server.reads import subscription
from server.reads.subscription import QUEUES_A_TURN, TURN_BYTES
from tests.support.rpc_errors import error_info
from tests.support.serving import serving
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from store.reads import Pulled, PullPlan
    from tests.support.serving import Served

PLENTY = 1 << 26


def _at(topic: str, queue_id: int, offset: int = 0) -> pb.QueuePosition:
    return pb.QueuePosition(topic=topic, queue_id=queue_id, offset=offset)


async def _put(served: Served, queue_id: int, bodies: Sequence[bytes], topic: str = "t") -> None:
    messages = [pb.Message(topic=topic, queue_id=queue_id, body=body) for body in bodies]
    await served.messages.PutBatch(pb.PutBatchRequest(messages=messages))


class Stream:
    """One subscription, from the client's side."""

    def __init__(self, served: Served) -> None:
        self._call = served.messages.Subscribe()
        self._batches: deque[pb.QueueBatch] = deque()
        self.responses = 0
        self.cancel = self._call.cancel
        self.done_writing = self._call.done_writing

    async def write(self, request: pb.SubscribeRequest) -> None:
        await self._call.write(request)

    async def read(self) -> pb.QueueBatch:
        """The next one of the batches that responses carry."""
        if not self._batches:
            response = await self._call.read()
            assert isinstance(response, pb.SubscribeResponse), "the stream has ended"
            assert response.queues, "a response carries something"
            self.responses += 1
            self._batches.extend(response.queues)
        return self._batches.popleft()

    async def has_ended(self) -> bool:
        return not isinstance(await self._call.read(), pb.SubscribeResponse)


async def _open(served: Served, request: pb.SubscribeRequest | None = None) -> Stream:
    stream = Stream(served)
    await stream.write(request or pb.SubscribeRequest())
    return stream


async def _until_watched(served: Served, count: int) -> None:
    await until(lambda: served.serving.reads.growth.watched_queues == count)


async def test_history_then_what_comes_later(served: Served) -> None:
    await _put(served, 0, [b"a", b"b"])
    call = await _open(served, pb.SubscribeRequest(add=[_at("t", 0, 1)], credit_bytes=PLENTY))
    first = await call.read()
    assert [message.body for message in first.batch.messages] == [b"b"]
    await _put(served, 0, [b"c"])
    second = await call.read()
    assert [message.queue_offset for message in second.batch.messages] == [2]
    call.cancel()
    await _until_watched(served, 0)


async def test_nothing_is_sent_without_credit(served: Served) -> None:
    await _put(served, 0, [b"x" * 1000] * 10)
    call = await _open(
        served,
        pb.SubscribeRequest(
            add=[_at("t", 0)], credit_bytes=1, max_messages=3, form=pb.RECORD_FORM_WHOLE
        ),
    )
    first = await call.read()
    assert list(first.batch.queue_offsets) == [0], "one message, whatever its size"
    reading = asyncio.ensure_future(call.read())
    await _put(served, 0, [b"more"])
    assert not reading.done()
    await call.write(pb.SubscribeRequest(credit_bytes=PLENTY))
    second = await reading
    assert list(second.batch.queue_offsets) == [1, 2, 3]
    call.cancel()


async def test_a_long_queue_does_not_starve_a_short_one(served: Served) -> None:
    for _ in range(3):
        await _put(served, 0, [b"x" * 60_000] * (TURN_BYTES // 60_000))
    await _put(served, 1, [b"short"])
    call = await _open(
        served, pb.SubscribeRequest(add=[_at("t", 0), _at("t", 1)], credit_bytes=PLENTY)
    )
    queues = [(await call.read()).queue_id for _ in range(3)]
    assert 1 in queues[:2]
    call.cancel()


async def test_the_error_of_one_queue_leaves_the_others(served: Served) -> None:
    await _put(served, 0, [b"a"])
    call = await _open(
        served,
        pb.SubscribeRequest(
            add=[_at("none", 0), _at("t", 0, 77), _at("t", 1), _at("t", 0)], credit_bytes=PLENTY
        ),
    )
    answers = {}
    for _ in range(2):
        answer = await call.read()
        answers[answer.topic] = answer
    assert answers["none"].error.reason == "UNKNOWN_TOPIC"
    # The same queue, added twice: the later offset counts.
    assert [message.body for message in answers["t"].batch.messages] == [b"a"]
    await _put(served, 1, [b"b"])
    assert (await call.read()).queue_id == 1
    call.cancel()


async def test_an_offset_out_of_range_says_where_to_go_on(served: Served) -> None:
    await _put(served, 0, [b"a"])
    call = await _open(served, pb.SubscribeRequest(add=[_at("t", 0, 5)], credit_bytes=PLENTY))
    error = (await call.read()).error
    assert (error.reason, error.metadata["maxOffset"]) == ("OFFSET_OUT_OF_RANGE", "1")
    await call.write(pb.SubscribeRequest(add=[_at("t", 0, 0)]))
    assert [message.body for message in (await call.read()).batch.messages] == [b"a"]
    call.cancel()


async def test_a_removed_queue_is_followed_no_more(served: Served) -> None:
    await _put(served, 0, [b"a"])
    call = await _open(
        served, pb.SubscribeRequest(add=[_at("t", 0), _at("t", 1)], credit_bytes=PLENTY)
    )
    await call.read()
    await call.write(pb.SubscribeRequest(remove=[_at("t", 0)]))
    await _until_watched(served, 1)
    await _put(served, 0, [b"unseen"])
    await _put(served, 1, [b"seen"])
    assert [message.body for message in (await call.read()).batch.messages] == [b"seen"]
    call.cancel()


async def test_tags_are_filtered_and_progress_is_told(served: Served) -> None:
    messages = [
        pb.Message(topic="t", queue_id=0, body=tag.encode(), tag=tag) for tag in ("a", "b", "a")
    ]
    await served.messages.PutBatch(pb.PutBatchRequest(messages=messages))
    call = await _open(
        served, pb.SubscribeRequest(add=[_at("t", 0)], credit_bytes=PLENTY, tag_filter="b")
    )
    first = await call.read()
    assert [message.body for message in first.batch.messages] == [b"b"]
    await served.messages.PutBatch(pb.PutBatchRequest(messages=messages[:1]))
    second = await call.read()
    assert second.batch.next_offset == 4
    call.cancel()


async def test_properties_are_filtered(served: Served) -> None:
    messages = [
        pb.Message(topic="t", queue_id=0, body=b"%d" % n, properties={"n": str(n)})
        for n in range(1500)
    ]
    await served.messages.PutBatch(pb.PutBatchRequest(messages=messages))
    call = await _open(
        served,
        pb.SubscribeRequest(add=[_at("t", 0)], credit_bytes=PLENTY, sql_filter="n > 1497"),
    )
    found: list[bytes] = []
    while len(found) < 2:
        found += [message.body for message in (await call.read()).batch.messages]
    assert found == [b"1498", b"1499"]
    call.cancel()


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.SubscribeRequest(add=[_at("t", 0, -1)]), "add[0].offset"),
        (pb.SubscribeRequest(add=[_at("t", 0), _at("t" * 256, 0)]), "add[1].topic"),
        (pb.SubscribeRequest(credit_bytes=-1), "credit_bytes"),
        (pb.SubscribeRequest(tag_filter="other"), "tag_filter"),
        (pb.SubscribeRequest(sql_filter="a = 1"), "sql_filter"),
        (pb.SubscribeRequest(form=pb.RECORD_FORM_WHOLE), "form"),
    ],
)
async def test_a_bad_request_ends_the_stream(
    served: Served, request_: pb.SubscribeRequest, field: str
) -> None:
    call = await _open(served)
    await call.write(request_)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call.read()
    assert error_info(refused.value).metadata["field"] == field


async def test_the_stream_ends_when_the_client_is_done(served: Served) -> None:
    call = await _open(served, pb.SubscribeRequest(add=[_at("t", 0)]))
    await call.done_writing()
    assert await call.has_ended()
    await _until_watched(served, 0)


async def test_draining_ends_the_stream(served: Served) -> None:
    await _put(served, 0, [b"a"])
    call = await _open(served, pb.SubscribeRequest(add=[_at("t", 0)], credit_bytes=PLENTY))
    await call.read()
    served.server.stop()
    assert await call.has_ended()


async def test_many_short_queues_share_few_responses(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "FULL_S", 10.0)  # however slow the machine is
    await served.topics.CreateTopics(
        pb.CreateTopicsRequest(topics=[pb.CreateTopicRequest(name="wide", queue_count=500)])
    )
    await served.messages.PutBatch(
        pb.PutBatchRequest(
            messages=[pb.Message(topic="wide", queue_id=at, body=b"%d" % at) for at in range(500)]
        )
    )
    call = await _open(
        served,
        pb.SubscribeRequest(add=[_at("wide", at) for at in range(500)], credit_bytes=PLENTY),
    )
    batches = [await call.read() for _ in range(500)]
    assert [int(batch.batch.messages[0].body) for batch in batches] == list(range(500))
    assert call.responses < 50
    call.cancel()


async def test_cold_queues_share_responses_too_and_errors_stand_among_them(tmp_path: Path) -> None:
    async with serving(tmp_path, store={"hot_read_bytes": 1}) as served:
        for queue_id in range(4):
            await _put(served, queue_id, [b"%d" % queue_id])
        call = await _open(
            served,
            pb.SubscribeRequest(
                add=[_at("t", 0), _at("t", 1), _at("t", 9), _at("t", 2)], credit_bytes=PLENTY
            ),
        )
        batches = {batch.queue_id: batch for batch in [await call.read() for _ in range(4)]}
        assert call.responses <= 2
        assert batches[9].error.reason == "UNKNOWN_QUEUE"
        assert [batches[at].batch.messages[0].body for at in range(3)] == [b"0", b"1", b"2"]
        call.cancel()


async def test_a_queue_whose_units_cannot_be_read_leaves_the_others(tmp_path: Path) -> None:
    async with serving(tmp_path, store={"hot_read_bytes": 1}, damaged=True) as served:
        for queue_id in range(3):
            await _put(served, queue_id, [b"%d" % queue_id])
        engine = served.store.queues._engine  # type: ignore[attr-defined] # RocksDB's
        engine.write(KvBatch(puts={UNITS: [(unit_key("t", 1, 0), bytes(UNIT_SIZE))]}))
        call = await _open(
            served,
            pb.SubscribeRequest(
                add=[_at("t", at) for at in range(3)], credit_bytes=PLENTY, max_messages=1
            ),
        )
        batches = {batch.queue_id: batch for batch in [await call.read() for _ in range(3)]}
        assert batches[1].HasField("error")
        assert [batches[at].batch.messages[0].body for at in (0, 2)] == [b"0", b"2"]
        call.cancel()


async def test_a_queue_moved_while_a_worker_reads_it_answers_from_its_new_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, store={"hot_read_bytes": 1}) as served:
        await _put(served, 0, [b"a", b"b", b"c"])
        reading, go_on = threading.Event(), threading.Event()
        read = served.store.reads.read_planned

        def slow_read(plan: PullPlan) -> Pulled:
            found = read(plan)
            reading.set()
            go_on.wait(10)
            return found

        monkeypatch.setattr(served.store.reads, "read_planned", slow_read)
        call = await _open(
            served,
            pb.SubscribeRequest(add=[_at("t", 0)], credit_bytes=PLENTY, max_messages=1),
        )
        await asyncio.to_thread(reading.wait, 10)
        await call.write(pb.SubscribeRequest(add=[_at("t", 0, 2)]))
        await call.write(pb.SubscribeRequest(add=[_at("t", 1)]))
        await _until_watched(served, 2)
        go_on.set()
        assert [m.body for m in (await call.read()).batch.messages] == [b"c"]
        call.cancel()


@pytest.mark.parametrize("leave", ["end", "cancel", "remove"])
async def test_many_queues_are_followed_and_left_piece_by_piece(served: Served, leave: str) -> None:
    count = 3 * QUEUES_A_TURN + 7
    await _put(served, 0, [b"one"])
    stream = Stream(served)
    many = [_at(f"%LMQ%{number}", 0) for number in range(count)]
    await stream.write(pb.SubscribeRequest(add=[*many, _at("t", 0)], credit_bytes=PLENTY))
    assert (await stream.read()).topic == "t"
    await _until_watched(served, count + 1)
    if leave == "cancel":
        stream.cancel()
        await _until_watched(served, 0)
    elif leave == "end":
        await stream.done_writing()
        await _until_watched(served, 0)
    else:
        await stream.write(pb.SubscribeRequest(remove=many))
        await _until_watched(served, 1)
        await _put(served, 0, [b"two"])
        assert (await stream.read()).batch.next_offset == 2
        stream.cancel()


async def test_a_wrong_queue_among_many_ends_the_stream_by_its_name(served: Served) -> None:
    wrong = QUEUES_A_TURN + 3
    add = [_at("t", 0)] * wrong + [_at("t", -1)]
    call = served.messages.Subscribe()
    await call.write(pb.SubscribeRequest(add=add))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert error_info(caught.value).metadata["field"] == f"add[{wrong}].queue_id"
    await _until_watched(served, 0)


async def test_what_is_laborious_to_decode_comes_as_everything_else(served: Served) -> None:
    properties = {f"p{number}": "v" for number in range(2000)}
    messages = [pb.Message(topic="t", queue_id=0, properties=properties)] * 8
    await served.messages.PutBatch(pb.PutBatchRequest(messages=messages))
    stream = Stream(served)
    await stream.write(
        pb.SubscribeRequest(add=[_at("t", 0)], credit_bytes=PLENTY, max_messages=256)
    )
    batch = (await stream.read()).batch
    pulled = await served.messages.Pull(pb.PullRequest(topic="t"))
    assert list(batch.messages) == list(pulled.messages)
    assert [dict(message.properties) for message in batch.messages] == [properties] * 8
    stream.cancel()


async def test_queues_of_all_subscriptions_are_bounded_and_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four subscriptions of a million queues each took 1.6 GiB."""
    monkeypatch.setattr(request_memory, "QUEUE_BYTES", 8000)
    async with serving(tmp_path, memory_limit_bytes=64 << 20) as served:
        memory = served.server._edge.memory
        most = memory._limit_bytes // 8000
        first, second = Stream(served), Stream(served)
        await first.write(pb.SubscribeRequest(add=[_at(f"%LMQ%{at}", 0) for at in range(5_000)]))
        await until(lambda: memory._queues == 5_000)
        await second.write(pb.SubscribeRequest(add=[_at(f"%LMQ%{at}", 0) for at in range(4_000)]))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await second.read()
        assert error_info(refused.value).reason == "MEMORY_FULL"
        assert memory._queues <= most
        first.cancel()
        await until(lambda: memory._queues == 0)
