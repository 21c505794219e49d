"""A pull that is answered at once is the pull that is answered by a task."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from store.errors import StoreError
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.serving import Served

FORMS = (pb.RECORD_FORM_DECODED, pb.RECORD_FORM_WHOLE)
LARGE_PROPERTIES = {str(number): "x" * 100 for number in range(150)}


def requests() -> Iterator[pb.PullRequest]:
    """Every form from every place, with limits and filters, right ones and wrong ones."""
    for topic, form, offset, wanted, size, tags in itertools.product(
        ("orders", "laborious", "none"), FORMS, (-1, 0, 3, 6, 7), (0, 2), (0, 1), ("", "a", "b")
    ):
        yield pb.PullRequest(
            topic=topic,
            form=form,
            offset=offset,
            max_messages=wanted,
            max_bytes=size,
            tag_filter=tags,
        )
    yield pb.PullRequest(topic="orders", queue_id=9)
    yield pb.PullRequest(topic="orders", max_messages=-1)


async def answered(served: Served, request: pb.PullRequest) -> pb.PullResponse | str:
    try:
        response = await served.serving.reads.pull(request, None)
    except StoreError as error:
        return repr(error)
    return pb.PullResponse.FromString(response)


def answered_now(served: Served, request: pb.PullRequest) -> pb.PullResponse | str | None:
    try:
        response = served.serving.reads.pull_now(request)
    except StoreError as error:
        return repr(error)
    return None if response is None else pb.PullResponse.FromString(response)


async def test_now_is_as_later(served: Served) -> None:
    for topic, properties in (("orders", {}), ("laborious", LARGE_PROPERTIES)):
        messages = [
            pb.Message(topic=topic, queue_id=0, body=b"x" * number, tag="ab"[number % 2])
            for number in range(6)
        ]
        for one in messages:
            one.properties.update(properties)
        await served.messages.PutBatch(pb.PutBatchRequest(messages=messages))
    left_to_a_task = 0
    for request in requests():
        now = answered_now(served, request)
        left_to_a_task += now is None
        if now is not None:
            assert now == await answered(served, request), request
    # Decoded, with so many properties.
    assert left_to_a_task


@pytest.mark.parametrize("wait_ms", [0, 20])
async def test_a_pull_that_is_to_wait_is_left_to_a_task(served: Served, wait_ms: int) -> None:
    message = pb.Message(topic="orders", queue_id=0, body=b"x")
    await served.messages.Put(pb.PutRequest(message=message))
    at_end = pb.PullRequest(topic="orders", offset=1, wait_ms=wait_ms)
    assert (served.serving.reads.pull_now(at_end) is None) == bool(wait_ms)
    before = pb.PullRequest(topic="orders", offset=0, wait_ms=wait_ms)
    # Others have a turn first where the one above took long.
    await until(lambda: served.serving.reads.pull_now(before) is not None)


async def test_a_pull_that_needs_a_worker_or_room_is_left_to_a_task(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = pb.Message(topic="orders", queue_id=0, body=b"x")
    await served.messages.Put(pb.PutRequest(message=message))
    reads = served.serving.reads
    assert reads.pull_now(pb.PullRequest(topic="orders", max_messages=1000)) is None
    await until(lambda: reads.pull_now(pb.PullRequest(topic="orders")) is not None)
    monkeypatch.setattr(reads._memory, "is_crowded", lambda _: True)
    assert reads.pull_now(pb.PullRequest(topic="orders")) is None
