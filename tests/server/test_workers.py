"""server/workers.py: callers take turns, slices end with their caller, kinds do not wait."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.workers import CALLER, QUEUES_A_TURN, Workers
from store.message_store import MessageStore
from tests.support.rpc_errors import error_info
from tests.support.serving import serving
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.serving import Served


class Gate:
    """Jobs that hold their threads until the test opens it, and note that they began."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.open = threading.Event()

    def job(self, name: str) -> str:
        self.begun.append(name)
        assert self.open.wait(30)
        return name


async def _as(caller: str, workers: Workers, gate: Gate, name: str) -> str:
    CALLER.set(caller)
    return await workers.run(gate.job, name)


async def _turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_callers_take_turns_however_much_one_asks_for() -> None:
    workers, gate = Workers(1), Gate()
    loud = [asyncio.create_task(_as("loud", workers, gate, f"loud {n}")) for n in range(20)]
    await _turn()
    quiet = [asyncio.create_task(_as("quiet", workers, gate, f"quiet {n}")) for n in range(2)]
    await _turn()
    gate.open.set()
    await asyncio.gather(*loud, *quiet)
    assert gate.begun[:5] == ["loud 0", "loud 1", "quiet 0", "loud 2", "quiet 1"]
    workers.close()


async def test_a_job_whose_caller_is_gone_before_its_turn_is_never_begun() -> None:
    workers, gate = Workers(1), Gate()
    first = asyncio.create_task(_as("a", workers, gate, "first"))
    gone = asyncio.create_task(_as("a", workers, gate, "gone"))
    last = asyncio.create_task(_as("b", workers, gate, "last"))
    await until(lambda: gate.begun)
    gone.cancel()
    first.cancel()  # it runs: its thread is free when it has ended, not before
    await _turn()
    assert gate.begun == ["first"]
    gate.open.set()
    assert await last == "last"
    assert gate.begun == ["first", "last"]
    workers.close()


async def test_slices_end_with_their_caller() -> None:
    workers, seen = Workers(1), list[int]()
    began, go_on = threading.Event(), threading.Event()

    def look(some: Sequence[int]) -> list[int]:
        seen.extend(some)
        began.set()
        assert go_on.wait(30)
        return [-one for one in some]

    task = asyncio.create_task(workers.run_slices(look, range(100), 10))
    await asyncio.to_thread(began.wait, 30)
    task.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await workers.run(lambda: 1) == 1
    assert seen == list(range(10))
    assert await workers.run_slices(look, range(25), 10) == [-one for one in range(25)]
    workers.close()


async def test_commits_pass_while_listings_and_resets_hold_all_their_threads(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.topics.CreateTopics(
        pb.CreateTopicsRequest(topics=[pb.CreateTopicRequest(name="t", queue_count=64)])
    )
    gate = Gate()
    bounds = MessageStore.bounds

    def slow(store: MessageStore, queues: Sequence[tuple[str, int]]) -> object:
        gate.job("bounds")
        return bounds(store, queues)

    monkeypatch.setattr(MessageStore, "bounds", slow)
    describing = [served.topics.DescribeTopic(pb.DescribeTopicRequest(name="t")) for _ in range(16)]
    resetting = [
        served.groups.ResetOffsets(pb.ResetOffsetsRequest(group="g", topic="t", latest=True))
        for _ in range(8)
    ]
    try:
        await until(lambda: len(gate.begun) >= 2)
        position = pb.QueuePosition(topic="t", queue_id=0, offset=0)
        await served.groups.CommitOffsets(pb.CommitOffsetsRequest(group="g", offsets=[position]))
        message = pb.Message(topic="t", queue_id=0, body=b"x", keys=["k"])
        await served.messages.Put(pb.PutRequest(message=message))
        found = await served.messages.Query(pb.QueryRequest(topic="t", key="k"))
        assert len(found.messages) == 1
        assert len(gate.begun) == 2, "the listings have two threads"
    finally:
        gate.open.set()
    await asyncio.gather(*describing, *resetting)


async def test_a_producer_that_waits_for_the_index_holds_no_thread(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when RocksDB stalls: the log goes on, the index does not."""
    waiting: list[object] = []
    monkeypatch.setattr(MessageStore, "when_visible", lambda _, callback: waiting.append(callback))
    puts = [
        asyncio.ensure_future(
            served.messages.PutBatch(
                pb.PutBatchRequest(
                    messages=[pb.Message(topic="t", queue_id=0, body=b"x")],
                    producer=pb.ProducerSequence(producer_id=f"p{number}", sequence=0),
                )
            )
        )
        for number in range(20)
    ]
    await until(lambda: len(waiting) >= 20)
    sessions = served.serving.puts.sessions._workers
    assert (sessions._free, len(sessions._running)) == (2, 0)
    for callback in waiting:
        assert callable(callback)
        callback(None)
    await asyncio.gather(*puts)


async def test_resets_name_at_most_as_many_queues_as_other_calls(served: Served) -> None:
    request = pb.ResetOffsetsRequest(group="g", topic="t", queue_ids=[1] * 10_001, latest=True)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.groups.ResetOffsets(request)
    assert error_info(refused.value).metadata["field"] == "queue_ids"


async def test_a_topic_of_more_queues_than_a_slice_is_described_and_reset_whole(
    tmp_path: Path,
) -> None:
    count = QUEUES_A_TURN * 2 + 5
    async with serving(tmp_path) as served:
        await served.topics.CreateTopics(
            pb.CreateTopicsRequest(topics=[pb.CreateTopicRequest(name="t", queue_count=count)])
        )
        described = await served.topics.DescribeTopic(pb.DescribeTopicRequest(name="t"))
        reset = await served.groups.ResetOffsets(
            pb.ResetOffsetsRequest(group="g", topic="t", latest=True)
        )
        rest = await served.topics.DescribeTopic(
            pb.DescribeTopicRequest(name="t", page_token=described.next_page_token)
        )
    pages = [[one.queue_id for one in page.queues] for page in (described, rest)]
    assert pages == [list(range(1000)), list(range(1000, count))]
    assert rest.next_page_token == ""
    assert [one.queue_id for one in reset.offsets] == list(range(count))
