"""Two readers of one group: the second one hears of the first, and neither takes the other back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq_client import (
    AsyncClient,
    Message,
    OffsetBehindError,
    PermissionDeniedError,
    Queue,
    Start,
)
from tests.support.until import until
from tests.support.users import client_of, guarded

if TYPE_CHECKING:
    from pathlib import Path

    from kvcq_client import AsyncConsumer
    from tests.support.cut_line import CutLine
    from tests.support.serving import Served

Q = Queue("orders", 0)


async def _fill(client: AsyncClient, count: int = 100) -> None:
    await client.create_topic("orders", 2)
    async with client.producer() as producer:
        await producer.send_many([Message("orders", b"%d" % at, 0) for at in range(count)])


async def _first(consumer: AsyncConsumer) -> bytes:
    return (await anext(consumer)).body


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("kvcq_client.consuming") and "does not share" in record.message
    ]


async def test_the_slower_reader_does_not_take_the_group_back(client: AsyncClient) -> None:
    await _fill(client)
    async with (
        await client.consumer("orders", reader_group="g") as fast,
        await client.consumer("orders", reader_group="g") as slow,
    ):
        await fast.take(100)
        await fast.commit()
        await slow.take(10)
        with pytest.raises(OffsetBehindError, match="committed 100 in queue 0") as refused:
            await slow.commit()
        assert (refused.value.queue, refused.value.committed_offset) == (Q, 100)
        assert [one.offset for one in await client.group_offsets("g", [Q])] == [100]
        await slow.commit(allow_back=True)
        assert [one.offset for one in await client.group_offsets("g", [Q])] == [10]


async def test_all_of_a_commit_is_refused(client: AsyncClient) -> None:
    await _fill(client)
    other = Queue("orders", 1)
    await client.put(Message("orders", b"", 1))
    await client.commit_offsets("g", {Q: 50})
    with pytest.raises(OffsetBehindError):
        await client.commit_offsets("g", {other: 1, Q: 49})
    assert [one.offset for one in await client.group_offsets("g", [Q, other])] == [50, None]
    await client.commit_offsets("g", {Q: 50, other: 1})  # the same again is no way back
    await client.reset_offsets("g", "orders", 20, queue_ids=[0])
    assert [one.offset for one in await client.group_offsets("g", [Q])] == [20]


async def test_a_reader_that_begins_again_must_say_so(client: AsyncClient) -> None:
    await _fill(client)
    async with await client.consumer("orders", reader_group="g") as first:
        await first.take(100)
        await first.commit()
    async with await client.consumer("orders", reader_group="g", start=Start.EARLIEST) as again:
        await again.take(3)
        with pytest.raises(OffsetBehindError):
            await again.commit()
        await again.take(97)
        await again.commit()


async def test_the_second_reader_is_warned_and_the_first_is_named(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    await _fill(client)
    async with await client.consumer("orders", reader_group="g") as first:
        await _first(first)
        assert _warnings(caplog) == []
        async with await client.consumer("orders", reader_group="g") as second:
            await _first(second)
            (warning,) = _warnings(caplog)
            assert first._core.subscription._name in warning
            assert "127.0.0.1:" in warning
            assert "'orders'" in warning
            await second.follow({Q: 0})  # another stream: it is told once
            await _first(second)
            assert len(_warnings(caplog)) == 1
        caplog.clear()
        async with await client.consumer("orders", reader_group="g") as third:
            await _first(third)
            assert len(_warnings(caplog)) == 1


async def test_readers_of_other_queues_or_groups_are_not_warned(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    await _fill(client)
    await client.put(Message("orders", b"", 1))
    async with (
        await client.consumer(Q, reader_group="g") as first,
        await client.consumer(Queue("orders", 1), reader_group="g") as other_queue,
        await client.consumer("orders", reader_group="h") as other_group,
        await client.consumer("orders") as without,
    ):
        for consumer in (first, other_queue, other_group, without):
            await _first(consumer)
        assert _warnings(caplog) == []
        await other_queue.follow([Q])
        await other_queue.take(1)
        await until(lambda: len(_warnings(caplog)) == 1)  # it may come behind the message


async def test_a_reader_that_connects_again_is_not_warned_of_itself(
    line: CutLine, client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    await _fill(client)
    async with (
        AsyncClient(line.target) as far,
        await far.consumer("orders", reader_group="g") as one,
    ):
        for _ in range(5):
            await one.seek({Q: 0})  # another stream, while the server may still have the old one
            await _first(one)
        line.cut_after_answer_bytes = 0
        await one.seek({Q: 0})
        await _first(one)
    assert _warnings(caplog) == []


async def test_who_left_is_forgotten(client: AsyncClient, served: Served) -> None:
    await _fill(client)
    for _ in range(3):
        async with await client.consumer("orders", reader_group="g") as consumer:
            await _first(consumer)
    await until(lambda: not served.serving.reads._groups._by_group)


async def test_a_group_takes_the_right_to_it(tmp_path: Path) -> None:
    rights = ["publish topic orders", "subscribe topic orders"]
    async with guarded(tmp_path, {"bob": rights}) as served, client_of(served, "bob") as bob:
        await bob.put(Message("orders", b"x"))
        async with await bob.consumer("orders", reader_group="g", start=Start.EARLIEST) as consumer:
            with pytest.raises(PermissionDeniedError, match="subscribe to group 'g'"):
                await consumer.take(1)
