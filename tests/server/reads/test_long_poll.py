"""server/reads/reads.py over real gRPC: a pull waits for a message, and for nothing else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.reads import reads
from server.reads.reads import wait_seconds
from tests.support.until import until

if TYPE_CHECKING:
    from tests.support.serving import Served


async def _put(served: Served, body: bytes, queue_id: int = 0) -> None:
    message = pb.Message(topic="orders", queue_id=queue_id, body=body)
    await served.messages.Put(pb.PutRequest(message=message))


async def _until_parked(served: Served, count: int) -> None:
    await until(lambda: served.serving.reads.growth.watched_queues == count)


async def test_a_parked_pull_gets_the_message_that_comes(served: Served) -> None:
    await _put(served, b"first")
    pulling = asyncio.ensure_future(
        served.messages.Pull(pb.PullRequest(topic="orders", offset=1, wait_ms=30_000))
    )
    await _until_parked(served, 1)
    await _put(served, b"elsewhere", queue_id=1)
    await _put(served, b"second")
    pulled = await pulling
    assert [message.body for message in pulled.messages] == [b"second"]
    assert served.serving.reads.growth.watched_queues == 0


async def test_one_message_wakes_every_pull_on_its_queue(served: Served) -> None:
    await _put(served, b"first")
    request = pb.PullRequest(topic="orders", offset=1, wait_ms=30_000)
    pulls = [asyncio.ensure_future(served.messages.Pull(request)) for _ in range(5)]
    await _until_parked(served, 1)
    await _put(served, b"second")
    for pulled in await asyncio.gather(*pulls):
        assert [message.body for message in pulled.messages] == [b"second"]


async def test_a_pull_that_waited_in_vain_is_no_error(served: Served) -> None:
    await _put(served, b"first")
    pulled = await served.messages.Pull(pb.PullRequest(topic="orders", offset=1, wait_ms=20))
    assert (pulled.status, pulled.next_offset) == (pb.PULL_STATUS_NO_NEW_MESSAGE, 1)
    assert served.serving.reads.growth.watched_queues == 0


async def test_the_callers_deadline_comes_first(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "DEADLINE_MARGIN_S", 30.0)  # for a machine that is busy
    await _put(served, b"first")
    pulled = await served.messages.Pull(
        pb.PullRequest(topic="orders", offset=1, wait_ms=30_000), timeout=30.5
    )
    assert pulled.status == pb.PULL_STATUS_NO_NEW_MESSAGE


async def test_a_cancelled_pull_leaves_nothing_behind(served: Served) -> None:
    await _put(served, b"first")
    call = served.messages.Pull(pb.PullRequest(topic="orders", offset=1, wait_ms=30_000))
    waiting = asyncio.ensure_future(call)
    await _until_parked(served, 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await _until_parked(served, 0)


async def test_draining_answers_parked_pulls(served: Served) -> None:
    await _put(served, b"first")
    pulling = asyncio.ensure_future(
        served.messages.Pull(pb.PullRequest(topic="orders", offset=1, wait_ms=30_000))
    )
    await _until_parked(served, 1)
    served.server.stop()
    pulled = await pulling
    assert pulled.status == pb.PULL_STATUS_NO_NEW_MESSAGE


async def test_new_calls_are_refused_while_draining(served: Served) -> None:
    await _put(served, b"first")
    served.server._stage.drain()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await _put(served, b"second")
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("wait_ms", "remaining_s", "expected_s"),
    [(1000, None, 1.0), (1000, 10.0, 1.0), (1000, 0.55, 0.5), (1000, 0.01, 0.0)],
)
def test_the_wait_ends_before_the_deadline(
    wait_ms: int, remaining_s: float | None, expected_s: float
) -> None:
    assert wait_seconds(wait_ms, remaining_s) == pytest.approx(expected_s)
