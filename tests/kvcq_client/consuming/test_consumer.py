"""The consumer against a real server: order, positions, resuming, seeking, committing."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

import store.errors
from kvcq_client import (
    AsyncClient,
    ClosedError,
    CorruptRecordError,
    DataLossError,
    DeadlineError,
    Message,
    NotFoundError,
    OffsetOutOfRangeError,
    Queue,
    Start,
)
from kvcq_client.consuming import subscription
from kvcq_client.consuming.subscription import Fetched
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from tests.support.serving import serving
from tests.support.until import until

if TYPE_CHECKING:
    from pathlib import Path

    from kvcq_client import AsyncConsumer
    from store.reads import PullPlan
    from tests.support.cut_line import CutLine
    from tests.support.serving import Served

QUEUE = Queue("orders", 0)


async def _fill(client: AsyncClient, count: int, queues: int = 1, tag: str = "") -> None:
    await client.create_topic("orders", queues)
    async with client.producer() as producer:
        await (
            await producer.send_many(
                [Message("orders", b"%d" % at, at % queues, tag) for at in range(count)]
            )
        )


def _damage_behind(damage: int, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_pull = served.store.plan_pull

    def damaged(topic: str, queue_id: int, offset: int, **rest: Any) -> PullPlan:  # noqa: ANN401 - handed on
        if offset >= damage:
            raise store.errors.DamagedQueueError(topic, queue_id, damage, "no unit")
        return plan_pull(topic, queue_id, offset, **{**rest, "max_messages": damage - offset})

    monkeypatch.setattr(served.store, "plan_pull", damaged)


async def test_iteration_follows_many_queues_each_in_order(client: AsyncClient) -> None:
    await _fill(client, 4000, queues=4)
    seen: dict[int, list[int]] = {}
    async with await client.consumer("orders") as consumer:
        async for message in consumer:
            seen.setdefault(message.queue_id, []).append(message.queue_offset)
            if sum(map(len, seen.values())) == 4000:
                break
        assert consumer.positions() == {Queue("orders", at): 1000 for at in range(4)}
    assert seen == {queue_id: list(range(1000)) for queue_id in range(4)}


async def test_new_messages_come_to_a_waiting_reader(client: AsyncClient) -> None:
    await client.create_topic("orders", 1)
    async with await client.consumer("orders") as consumer:
        waiting = asyncio.create_task(anext(consumer))
        await client.put(Message("orders", b"new", 0))
        assert (await asyncio.wait_for(waiting, 10)).body == b"new"
        assert await consumer.batch(timeout_s=0.01) == []


async def test_commit_and_go_on_from_there(client: AsyncClient) -> None:
    await _fill(client, 100)
    async with await client.consumer("orders", group="g") as consumer:
        assert len(await consumer.take(30)) == 30
        await consumer.commit()
    [committed] = await client.group_offsets("g")
    assert (committed.offset, committed.lag) == (30, 70)
    async with await client.consumer("orders", group="g") as consumer:
        assert (await anext(consumer)).queue_offset == 30


async def test_commit_needs_a_group(client: AsyncClient) -> None:
    await _fill(client, 1)
    with pytest.raises(ValueError, match="needs a group"):
        await client.consumer("orders", start=Start.COMMITTED)
    async with await client.consumer("orders") as consumer:
        with pytest.raises(ValueError, match="without a group"):
            await consumer.commit()


async def test_start_latest_skips_what_was_there(client: AsyncClient) -> None:
    await _fill(client, 10)
    async with await client.consumer("orders", start=Start.LATEST) as consumer:
        await client.put(Message("orders", b"new", 0))
        assert (await asyncio.wait_for(anext(consumer), 10)).queue_offset == 10


async def test_seek_inside_a_batch_drops_what_was_fetched(client: AsyncClient) -> None:
    await _fill(client, 3000)
    async with await client.consumer("orders") as consumer:
        assert [m.queue_offset for m in await consumer.take(5)] == [0, 1, 2, 3, 4]
        await consumer.seek({QUEUE: 2000})
        assert [m.queue_offset for m in await consumer.take(1000)] == list(range(2000, 3000))
        await consumer.seek(Start.EARLIEST)
        assert [m.queue_offset for m in await consumer.take(3000)] == list(range(3000))


async def test_leave_and_follow_again(client: AsyncClient) -> None:
    await _fill(client, 200, queues=2)
    one = Queue("orders", 1)
    async with await client.consumer("orders") as consumer:
        consumer.leave([QUEUE])
        rest = await consumer.take(100)
        assert {message.queue_id for message in rest} == {1}
        await consumer.follow({QUEUE: 90})
        assert [m.queue_offset for m in await consumer.take(10)] == list(range(90, 100))
        assert consumer.positions() == {QUEUE: 100, one: 100}


async def test_bytes_that_come_of_a_queue_that_was_left_are_granted_again(
    client: AsyncClient,
) -> None:
    """Else the server has less and less to send on, and in the end stops."""
    await _fill(client, 100)
    async with await client.consumer("orders", buffer_bytes=1000) as consumer:
        subscription = consumer._core.subscription
        await consumer.take(10)
        late = pb.SubscribeResponse()  # was on its way when the queue was left
        late.queues.add(topic="orders", queue_id=1, batch={"records": bytes(1000)})
        before = subscription._taken
        subscription._received(late)
        assert subscription._taken == before + 1000
        grants = [request.credit_bytes for request in subscription._requests()]
        assert sum(grants) == before + 1000


async def test_tag_filter_moves_positions_over_what_it_drops(client: AsyncClient) -> None:
    await _fill(client, 50, tag="a")
    async with client.producer() as producer:
        await producer.send("orders", b"b", queue_id=0, tag="b")
    async with await client.consumer("orders", tag_filter="b") as consumer:
        assert [message.body async for message in consumer.to_end()] == [b"b"]
        assert consumer.positions() == {QUEUE: 51}


@pytest.mark.parametrize("answer_bytes", [0, 5_000, 60_000])
async def test_lost_connections_lose_and_repeat_nothing(
    client: AsyncClient, line: CutLine, answer_bytes: int
) -> None:
    await _fill(client, 5000)
    async with (
        AsyncClient(line.target) as far,
        await far.consumer("orders", batch_messages=100, buffer_bytes=20_000) as consumer,
    ):
        offsets = []
        async for message in consumer.to_end():
            offsets.append(message.queue_offset)
            if len(offsets) in (100, 2500):
                line.cut_after_answer_bytes = answer_bytes
    assert line.cuts >= 1
    assert offsets == list(range(5000))


async def test_a_restarted_server_is_found_again(tmp_path: Path) -> None:
    async with serving(tmp_path) as first:
        port = int(first.target.rpartition(":")[2])
        client = AsyncClient(first.target)
        await _fill(client, 10)
        consumer = await client.consumer("orders")
        assert len(await consumer.take(10)) == 10
    async with serving(tmp_path, port=port):
        await client.put(Message("orders", b"after", 0))
        assert (await asyncio.wait_for(anext(consumer), 20)).queue_offset == 10
        await client.close()


async def test_the_server_sends_no_more_than_was_granted(client: AsyncClient) -> None:
    await _fill(client, 20_000)
    async with await client.consumer(
        "orders", buffer_bytes=100_000, batch_messages=100
    ) as consumer:
        first = await anext(consumer)
        largest = 0
        async for message in consumer.to_end():
            largest = max(largest, consumer._core.subscription._buffered)
            assert message.queue_offset > first.queue_offset
        # The last response may go over by its own size.
        assert 0 < largest <= 100_000 + 100 * 150


async def test_an_offset_outside_is_an_error_or_a_new_start(client: AsyncClient) -> None:
    await _fill(client, 10)
    async with await client.consumer({QUEUE: 11}) as consumer:
        with pytest.raises(OffsetOutOfRangeError) as caught:
            await asyncio.wait_for(anext(consumer), 10)
        assert (caught.value.min_offset, caught.value.max_offset) == (0, 10)
    async with await client.consumer({QUEUE: 11}, when_expired=Start.EARLIEST) as consumer:
        assert (await asyncio.wait_for(anext(consumer), 10)).queue_offset == 0


@pytest.mark.parametrize("read_before", [0, 4])
async def test_to_end_tells_of_a_queue_that_failed_before_it_began(
    client: AsyncClient, served: Served, monkeypatch: pytest.MonkeyPatch, read_before: int
) -> None:
    await _fill(client, 10)
    _damage_behind(4, served, monkeypatch)
    async with await client.consumer({QUEUE: read_before}) as consumer:
        await until(lambda: QUEUE not in consumer._core.subscription._offsets)
        to_end = consumer.to_end(10)
        seen = [(await anext(to_end)).queue_offset for _ in range(read_before, 4)]
        with pytest.raises(DataLossError):
            await anext(to_end)
        assert seen == list(range(read_before, 4))
        assert consumer.positions() == {QUEUE: 4}
        assert [message async for message in consumer.to_end(10)] == []


async def test_a_take_that_is_cancelled_has_read_nothing(client: AsyncClient) -> None:
    await _fill(client, 30, queues=2)
    async with await client.consumer("orders") as consumer:
        first = await anext(consumer)
        before = consumer.positions()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await consumer.take(100)
        assert consumer.positions() == before
        rest = await consumer.take(100, 0.1)
        seen = sorted((one.queue_id, one.queue_offset) for one in [first, *rest])
        assert seen == [(queue_id, at) for queue_id in (0, 1) for at in range(15)]


async def _waiting_take(consumer: AsyncConsumer, at_hand: int) -> asyncio.Task[Any]:
    """A take of 100 that has so many, and waits for more."""
    task = asyncio.create_task(consumer.take(100))
    await until(lambda: consumer._core.at_hand() == at_hand)
    return task


async def test_what_a_waiting_take_has_is_not_read_yet(client: AsyncClient) -> None:
    await _fill(client, 30, queues=2)
    async with await client.consumer("orders", group="g") as consumer:
        task = await _waiting_take(consumer, 30)
        await consumer.commit()
        assert {one.offset for one in await client.group_offsets("g")} == {0}
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(await consumer.take(30)) == 30
        assert consumer.positions() == {QUEUE: 15, Queue("orders", 1): 15}


async def test_a_waiting_take_forgets_queues_that_are_left_or_moved(client: AsyncClient) -> None:
    await _fill(client, 30, queues=2)
    async with await client.consumer("orders") as consumer:
        task = await _waiting_take(consumer, 30)
        await consumer.seek({QUEUE: 10})
        consumer.leave([Queue("orders", 1)])
        await until(lambda: consumer._core.at_hand() == 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert consumer.positions() == {QUEUE: 10}
        assert [m.queue_offset for m in await consumer.take(100, 0.1)] == list(range(10, 15))
        assert consumer.positions() == {QUEUE: 15}


@pytest.mark.parametrize("way", ["to_end", "batch", "next", "take"])
async def test_after_a_take_that_was_cancelled_any_way_reads_on(
    client: AsyncClient, way: str
) -> None:
    await _fill(client, 50, tag="a")
    async with client.producer() as producer:  # nothing of these is left by the filter
        await producer.send_many([Message("orders", b"b", 0, "b") for _ in range(40)])
    async with await client.consumer("orders", tag_filter="a") as consumer:
        task = await _waiting_take(consumer, 50)
        await until(lambda: not consumer._core.subscription._passed)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if way == "to_end":
            seen = [message async for message in consumer.to_end(10)]
        elif way == "next":
            seen = [await anext(consumer) for _ in range(50)]
        elif way == "take":
            seen = await consumer.take(50)
        else:
            seen = []
            while batch := await consumer.batch(0.1):
                seen += batch
        assert [message.queue_offset for message in seen] == list(range(50))
        assert await consumer.batch(0.05) == []
        assert consumer.positions() == {QUEUE: 90}


async def test_a_take_gives_out_what_comes_before_the_error_of_a_queue(
    client: AsyncClient, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _fill(client, 10)
    _damage_behind(4, served, monkeypatch)
    async with await client.consumer("orders") as consumer:
        await until(lambda: QUEUE not in consumer._core.subscription._offsets)
        assert [m.queue_offset for m in await consumer.take(10, 10)] == [0, 1, 2, 3]
        assert consumer.positions() == {QUEUE: 4}
        with pytest.raises(DataLossError):
            await consumer.take(10, 10)


async def test_a_take_gives_out_what_comes_before_a_corrupt_record(client: AsyncClient) -> None:
    await _fill(client, 10)
    async with await client.consumer("orders") as consumer:
        core = consumer._core
        await until(lambda: bool(core.subscription._buffer))
        core.subscription._put([Fetched(QUEUE, b"no record", [10], 11)])
        assert len(await consumer.take(100, 10)) == 10
        assert consumer.positions() == {QUEUE: 10}
        for _ in range(2):
            with pytest.raises(CorruptRecordError):
                await consumer.take(100, 10)
        await consumer.seek({QUEUE: 5})  # who has seen it may go elsewhere
        assert [m.queue_offset for m in await consumer.take(5, 10)] == list(range(5, 10))


async def test_arguments_that_cannot_be_are_refused_and_change_nothing(
    client: AsyncClient,
) -> None:
    await _fill(client, 10)
    async with await client.consumer("orders") as consumer:
        with pytest.raises(ValueError, match=r"^to: offset -1 of orders/0 is below 0$"):
            await consumer.seek({QUEUE: -1})
        with pytest.raises(ValueError, match=r"^queues: offset -1 of orders/0 is below 0$"):
            await client.consumer({QUEUE: -1})
        with pytest.raises(ValueError, match=r"^count: -1 is below 0$"):
            await consumer.take(-1)
        with pytest.raises(TypeError, match=r"^queues: a sequence of Queues is wanted, not Queue$"):
            consumer.leave(QUEUE)  # type: ignore[arg-type]
        assert len(await consumer.take(10, 10)) == 10
        with pytest.raises(TypeError, match=r"^timeout_s: a number is wanted, not str$"):
            await consumer.batch("1")  # type: ignore[arg-type]


async def test_an_error_that_is_raised_again_has_a_trace_of_its_own(client: AsyncClient) -> None:
    await _fill(client, 1)
    consumer = await client.consumer("orders")
    await consumer.take(1, 10)
    await consumer.close()
    lengths = set()
    for _ in range(5):
        with pytest.raises(ClosedError) as raised:
            await consumer.take(1)
        lengths.add(len(raised.traceback))
    assert len(lengths) == 1


async def test_what_a_filter_leaves_out_takes_no_room_in_a_waiting_take(
    client: AsyncClient,
) -> None:
    await _fill(client, 50, queues=2, tag="a")
    async with (
        client.producer() as producer,
        await client.consumer("orders", tag_filter="a") as consumer,
    ):
        core = consumer._core
        task = await _waiting_take(consumer, 50)
        batches = len(core._ahead)
        for _ in range(5):
            left_out = [Message("orders", b"b", at % 2, "b") for at in range(20)]
            end = 1 + max(one.queue_offset for one in await (await producer.send_many(left_out)))
            await until(lambda end=end: set(core.subscription._offsets.values()) == {end})  # type: ignore[misc]
            await until(lambda: not core.subscription._passed)
        assert len(core._ahead) == batches
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(await consumer.take(50)) == 50
        assert await consumer.batch(0.05) == []
        assert consumer.positions() == {QUEUE: 75, Queue("orders", 1): 75}


async def test_a_seek_beyond_the_end_ends_to_end(client: AsyncClient) -> None:
    await _fill(client, 10)
    async with await client.consumer("orders") as consumer:
        async for message in consumer.to_end(10):
            if message.queue_offset == 3:
                await consumer.seek(Start.LATEST)
        assert consumer.positions() == {QUEUE: 10}


async def test_leaving_to_end_in_the_middle_goes_on_behind_the_last_message(
    client: AsyncClient,
) -> None:
    await _fill(client, 10)
    async with await client.consumer("orders") as consumer:
        async for message in consumer.to_end():
            if message.queue_offset == 3:
                break
        assert consumer.positions() == {QUEUE: 4}
        assert [m.queue_offset async for m in consumer.to_end()] == list(range(4, 10))


async def test_a_queue_whose_messages_all_expired_is_at_its_end(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    await _fill(client, 10)

    def expired(*_: object, **__: object) -> PullPlan:
        raise store.errors.OffsetOutOfRangeError("orders", 0, 5, 10, 10)

    pull = served.store.plan_pull
    monkeypatch.setattr(served.store, "plan_pull", expired)
    async with await client.consumer({QUEUE: 5}, when_expired=Start.EARLIEST) as consumer:
        await until(lambda: consumer._core.subscription._offsets[QUEUE] == 10)
        monkeypatch.setattr(served.store, "plan_pull", pull)
        assert [message async for message in consumer.to_end(10)] == []
        assert consumer.positions() == {QUEUE: 10}


async def test_messages_left_out_are_passed_in_bounded_memory(client: AsyncClient) -> None:
    """A reader that is busy elsewhere, and a filter that matches next to nothing."""
    await client.create_topic("orders", 1)
    async with await client.consumer({QUEUE: 0}, tag_filter="wanted") as consumer:
        subscription = consumer._core.subscription
        for number in range(20):
            await client.put(Message("orders", b"%d" % number, 0, "other"))
            await until(lambda: subscription._offsets[QUEUE] == number + 1)  # noqa: B023 - at once
            assert len(subscription._buffer) + len(subscription._passed) == 1
        assert await consumer.batch(0) == []
        assert consumer.positions() == {QUEUE: 20}
        await client.put(Message("orders", b"at last", 0, "wanted"))
        assert (await asyncio.wait_for(anext(consumer), 10)).body == b"at last"


async def test_a_reader_that_stopped_waiting_leaves_nothing_behind(client: AsyncClient) -> None:
    await client.create_topic("orders", 1)
    async with await client.consumer({QUEUE: 0}) as consumer:
        for _ in range(3):
            assert await consumer.batch(0.01) == []
        woken: list[int] = []
        subscription = consumer._core.subscription
        subscription.when_fetched(lambda: woken.append(1))
        subscription.when_fetched(lambda: woken.append(2))
        await client.put(Message("orders", b"0", 0))
        await until(lambda: woken)
        assert woken == [2]


async def test_one_queue_in_error_leaves_the_others(client: AsyncClient) -> None:
    await _fill(client, 10)
    wrong = Queue("absent", 0)
    async with await client.consumer({wrong: 0, QUEUE: 0}) as consumer:
        bodies: list[bytes] = []
        errors = 0
        while len(bodies) < 10 or not errors:
            try:
                bodies.append((await asyncio.wait_for(anext(consumer), 10)).body)
            except NotFoundError:
                errors += 1
        assert errors == 1
        assert consumer._core.subscription.queues == [QUEUE]


async def test_a_topic_that_is_not_there_is_told_at_once(client: AsyncClient) -> None:
    with pytest.raises(NotFoundError):
        await client.consumer("absent")


async def test_a_corrupt_record_ends_reading_and_is_not_skipped(client: AsyncClient) -> None:
    await _fill(client, 10)
    async with await client.consumer("orders") as consumer:
        pulled = await client.pull("orders", 0, 0)
        record = bytearray(pulled.messages[0].record)
        record[90] ^= 1
        consumer._core.subscription._put([Fetched(QUEUE, bytes(record), [0], 1)])
        with suppress(CorruptRecordError):
            await consumer.take(100, timeout_s=10)  # those that came before it
        with pytest.raises(CorruptRecordError):
            await anext(consumer)


async def test_damage_is_skipped_where_the_settings_say_so(
    served: Served,
    client: AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await _fill(client, 10)
    await client.put(Message("other", b"sound", 0))
    whole, asked = served.store.plan_pull, []

    def damaged(topic: str, queue_id: int, offset: int, **limits: Any) -> PullPlan:  # noqa: ANN401
        if topic == "orders" and offset <= 4:
            if offset == 4:  # at first it is being rebuilt
                asked.append(offset)
                error = store.errors.DamagedQueueError("orders", 0, 4, "its unit is missing", 7)
                error.next_offset = error.behind if len(asked) > 3 else None
                raise error
            limits["max_messages"] = min(limits["max_messages"], 4 - offset)
        return whole(topic, queue_id, offset, **limits)

    monkeypatch.setattr(subscription, "MENDED_S", 0.001)
    monkeypatch.setattr(served.store, "plan_pull", damaged)
    async with await client.consumer(["orders", Queue("other", 0)], skip_damaged=True) as consumer:
        seen = [(one.topic, one.queue_offset) async for one in consumer.to_end()]
        assert sorted(seen) == [
            *(("orders", at) for at in (0, 1, 2, 3, 7, 8, 9)),
            ("other", 0),
        ]
        assert consumer.positions() == {QUEUE: 10, Queue("other", 0): 1}
    assert "left out: queue 0 of 'orders' is damaged at offset 4" in caplog.text
    asked.clear()
    async with await client.consumer({QUEUE: 4}) as consumer:
        with pytest.raises(DataLossError) as met:
            await anext(consumer)
        assert (met.value.queue, met.value.next_offset) == (QUEUE, None)
        asked += [4, 4, 4]
        await consumer.seek({QUEUE: 4})
        with pytest.raises(DataLossError) as met:
            await anext(consumer)
        assert (met.value.queue, met.value.next_offset) == (QUEUE, 7)
        await consumer.seek({QUEUE: 7})
        assert (await anext(consumer)).queue_offset == 7


async def test_a_queue_that_is_being_rebuilt_can_be_left_and_moved(
    served: Served, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _fill(client, 10)
    whole = served.store.plan_pull
    met = asyncio.Event()

    def damaged(topic: str, queue_id: int, offset: int, **limits: Any) -> PullPlan:  # noqa: ANN401
        if offset == 0:
            met.set()
            raise store.errors.DamagedQueueError(topic, queue_id, 0, "its unit is missing")
        return whole(topic, queue_id, offset, **limits)

    monkeypatch.setattr(served.store, "plan_pull", damaged)
    async with await client.consumer({QUEUE: 0}, skip_damaged=True) as consumer:
        await met.wait()
        await until(lambda: consumer._core.subscription._mended)
        await consumer.seek({QUEUE: 5})
        assert (await anext(consumer)).queue_offset == 5
        assert not consumer._core.subscription._mended
        met.clear()
        await consumer.seek({QUEUE: 0})
        await met.wait()
        await until(lambda: consumer._core.subscription._mended)
        consumer.leave([QUEUE])
        assert consumer._core.subscription.queues == []


async def test_a_server_that_is_away_is_told_and_that_it_is_back(
    client: AsyncClient, line: CutLine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kvcq_client")
    await _fill(client, 1)
    async with AsyncClient(line.target) as far, await far.consumer("orders") as consumer:
        assert (await anext(consumer)).body == b"0"
        assert "away" not in caplog.text
        line.cut()
        await client.put(Message("orders", b"1", 0))
        assert (await anext(consumer)).body == b"1"
    assert f"the server at {line.target} is away, trying again: " in caplog.text
    assert f"the server at {line.target} is back" in caplog.text


async def test_to_end_says_when_nothing_comes(client: AsyncClient, line: CutLine) -> None:
    await _fill(client, 10)
    async with (
        AsyncClient(line.target) as far,
        await far.consumer("orders", buffer_bytes=1, batch_messages=1) as consumer,
    ):
        ending = consumer.to_end(idle_timeout_s=0.2)
        assert (await anext(ending)).queue_offset == 0
        line.stop_accepting()
        line.cut()
        await consumer.take(1, timeout_s=0.01)  # what was on its way
        with pytest.raises(DeadlineError, match="1 queues are not at their end"):
            await anext(ending)


async def test_closing_wakes_the_reader(client: AsyncClient) -> None:
    await client.create_topic("orders", 1)
    consumer = await client.consumer("orders")
    waiting = asyncio.create_task(anext(consumer))
    await asyncio.sleep(0)
    await consumer.close()
    with pytest.raises(ClosedError):
        await asyncio.wait_for(waiting, 10)
    await consumer.close()
