"""The producer against a real server: order, each message once, and what fails when."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kvcq_client import (
    AsyncClient,
    BufferFullError,
    ClosedError,
    DeliveryTimeoutError,
    InvalidArgumentError,
    Message,
    NotFoundError,
    NotPossibleError,
    NumberReusedError,
    Queue,
    Start,
    UnavailableError,
)
from kvcq_client.format import put_stream_request
from kvcq_client.producing import delivery
from store.errors import FlushTimeoutError, StoreFailedError
from tests.support.free_port import free_port
from tests.support.serving import serving
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kvcq_client import Sending
    from kvcq_client.format import Outgoing
    from store.format.batch_mark import BatchMark
    from store.message import Appended
    from store.message import Message as StoreMessage
    from tests.support.cut_line import CutLine
    from tests.support.serving import Served


async def _bodies(client: AsyncClient, topic: str = "orders") -> list[bytes]:
    async with await client.consumer({Queue(topic, 0): 0}) as consumer:
        return [message.body async for message in consumer.to_end()]


async def test_messages_keep_their_order_over_many_batches(client: AsyncClient) -> None:
    async with client.producer(batch_messages=7, linger_ms=0) as producer:
        sendings = [await producer.send("orders", b"%d" % at, queue_id=0) for at in range(500)]
    offsets = [(await sending).queue_offset for sending in sendings]
    assert offsets == list(range(500))
    assert await _bodies(client) == [b"%d" % at for at in range(500)]


async def test_every_field_arrives(client: AsyncClient) -> None:
    message = Message(
        "orders", b"body", 1, "tag", ("a", "b"), ("%LMQ%x",), {"name": "value"}, 5, 1234
    )
    async with client.producer() as producer:
        placed = await producer.put(message)
    found = (await client.pull("orders", 1, placed.queue_offset)).messages[0]
    assert (found.topic, found.body, found.queue_id, found.tag) == ("orders", b"body", 1, "tag")
    assert (found.keys, found.light_queues) == (("a", "b"), ("%LMQ%x",))
    assert found.properties["name"] == "value"
    assert (found.flag, found.born_time_ms) == (5, 1234)
    assert found.message_id == placed.message_id
    assert (await client.get(placed.message_id)) == found


@pytest.mark.parametrize("answer_bytes", [0, 300, 700, 1500])
async def test_lost_connections_lose_and_repeat_nothing(
    line: CutLine, client: AsyncClient, answer_bytes: int
) -> None:
    async with (
        AsyncClient(line.target) as far,
        far.producer(batch_messages=5, linger_ms=0, window=8) as producer,
    ):
        sendings: list[Sending] = []
        for at in range(600):
            if at % 200 == 50:
                # Requests that the server has stored, and whose answers do not arrive.
                line.cut_after_answer_bytes = answer_bytes
            if at % 20 == 0:
                await asyncio.sleep(0)
            sendings.append(await producer.send("orders", b"%d" % at, queue_id=0))
            if at % 200 == 199:
                await producer.flush(30)
        offsets = [(await sending).queue_offset for sending in sendings]
    assert line.cuts >= 1
    assert offsets == list(range(600))
    assert await _bodies(client) == [b"%d" % at for at in range(600)]


async def test_a_restarted_server_gets_each_message_once(tmp_path: Path) -> None:
    store = {"segment_bytes": 8 << 20}
    port = free_port()
    async with serving(tmp_path, store=store, port=port) as first:
        client = AsyncClient(first.target)
        producer = client.producer(batch_messages=10, linger_ms=1)
        sendings = [await producer.send("orders", b"%d" % at, queue_id=0) for at in range(100)]
        await sendings[50]
    sendings += [await producer.send("orders", b"%d" % at, queue_id=0) for at in range(100, 200)]
    async with serving(tmp_path, store=store, port=port):
        await producer.flush(30)
        assert [(await one).queue_offset for one in sendings] == list(range(200))
        assert await _bodies(client) == [b"%d" % at for at in range(200)]
        await client.close()


async def test_a_producer_that_goes_on_as_another_repeats_nothing(client: AsyncClient) -> None:
    async with client.producer(producer_id="me") as one:
        await (await one.send_many([Message("orders", b"%d" % at, 0) for at in range(5)]))
    # It died before it knew that these were stored, and sends them again.
    async with client.producer(producer_id="me", first_sequence=0) as other:
        again = await other.send_many([Message("orders", b"%d" % at, 0) for at in range(5)])
        assert [placed.queue_offset for placed in await again] == list(range(5))
        assert other.next_sequence == 5
    assert len(await _bodies(client)) == 5


async def test_a_producer_that_goes_on_with_other_messages_is_refused(client: AsyncClient) -> None:
    async with client.producer(producer_id="me") as one:
        await (await one.send_many([Message("orders", b"%d" % at, 0) for at in range(4)]))
    async with client.producer(
        producer_id="me", first_sequence=0, batch_messages=3, linger_ms=1
    ) as other:
        again = await other.send_many([Message("orders", b"%d" % at, 0) for at in range(9)])
        await other.flush(30)
        errors = again.errors()
        assert len(errors) == 9
        assert {type(error) for error in errors.values()} == {NumberReusedError}
        assert other.producer_id == "me"
    assert await _bodies(client) == [b"%d" % at for at in range(4)]


async def test_a_batch_that_failed_with_the_store_may_be_in_it_and_keeps_its_number(
    client: AsyncClient, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = served.store.append

    def failing(
        messages: Sequence[StoreMessage], *, wait: bool = True, mark: BatchMark
    ) -> Appended:
        done = append(messages, wait=wait, mark=mark)
        if messages[0][1] == b"1":
            raise StoreFailedError("planted")
        return done

    monkeypatch.setattr(served.store, "append", failing)
    async with client.producer(producer_id="me", batch_messages=1, linger_ms=0) as producer:
        await producer.put(Message("orders", b"0", 0))
        with pytest.raises(NotPossibleError) as failed:
            await producer.put(Message("orders", b"1", 0))
        assert failed.value.reason == "STORE_FAILED"
        await producer.put(Message("orders", b"2", 0))
        assert producer.producer_id.startswith("me.")
    assert await _bodies(client) == [b"0", b"1", b"2"]


async def test_a_bad_message_fails_alone(client: AsyncClient) -> None:
    await client.create_topic("orders", 1)
    bad = {3: "no topic", 17: "orders", 40: "no topic"}
    async with client.producer(batch_messages=20, linger_ms=1) as producer:
        sendings = [
            await producer.send(bad.get(at, "orders"), b"%d" % at, queue_id=9 if at == 17 else 0)
            for at in range(60)
        ]
        await producer.flush(30)
        for at in range(60):
            error = None
            try:
                await sendings[at]
            except (InvalidArgumentError, NotFoundError) as refused:
                error = refused
            assert (error is not None) == (at in bad), at
            if at == 17:
                assert isinstance(error, NotFoundError)
                assert error.reason == "UNKNOWN_QUEUE"
    good = [b"%d" % at for at in range(60) if at not in bad]
    assert await _bodies(client) == good
    placed = [await sendings[at] for at in range(60) if at not in bad]
    assert [one.queue_offset for one in placed] == list(range(57))


async def test_many_bad_messages_are_taken_out_without_waiting(client: AsyncClient) -> None:
    await client.create_topic("orders", 1)
    async with client.producer(delivery_timeout_s=10) as producer:
        many = await producer.send_many(
            [Message("orders" if at % 2 else "bad topic", b"%d" % at, 0) for at in range(100)]
        )
        await producer.flush(10)
    assert list(many.errors()) == list(range(0, 100, 2))
    assert await _bodies(client) == [b"%d" % at for at in range(1, 100, 2)]


async def test_errors_of_a_list_are_told_by_index(client: AsyncClient) -> None:
    await client.create_topic("orders", 1)
    async with client.producer(batch_messages=4) as producer:
        many = await producer.send_many(
            [Message("orders" if at != 6 else "bad topic", b"", 0) for at in range(10)]
        )
        await producer.flush(30)
        assert list(many.errors()) == [6]
        assert len(many) == 10
        with pytest.raises(InvalidArgumentError):
            await many


async def test_a_wrong_body_adds_nothing_of_its_list(client: AsyncClient) -> None:
    await client.create_topic("orders", 1)
    async with client.producer() as producer:
        wrong = Message("orders", "text", 0)  # type: ignore[arg-type]  # what is tested
        with pytest.raises(TypeError, match="encode text"):
            await producer.send_many([Message("orders", b"good", 0), wrong])
    assert await _bodies(client) == []


async def test_what_cannot_be_delivered_in_time_fails(tmp_path: Path) -> None:
    async with AsyncClient("127.0.0.1:9") as nowhere:
        producer = nowhere.producer(delivery_timeout_s=0.2, linger_ms=0)
        sending = await producer.send("orders", b"")
        with pytest.raises(DeliveryTimeoutError, match="not acknowledged within"):
            await sending


@pytest.mark.slow
async def test_after_a_timeout_the_next_messages_are_taken(
    line: CutLine, client: AsyncClient
) -> None:
    await client.create_topic("orders", 1)
    async with AsyncClient(line.target) as far:
        producer = far.producer(delivery_timeout_s=2, linger_ms=0)
        await (await producer.send("orders", b"first", queue_id=0))
        # Its batch is stored, the answer never comes; whether it is stored stays unknown.
        line.cut_after_answer_bytes = 0
        line.stop_accepting()
        lost = await producer.send("orders", b"lost", queue_id=0)
        with pytest.raises(DeliveryTimeoutError):
            await lost
        line.accept_again()
        placed = await (await producer.send("orders", b"next", queue_id=0))
        assert "." in producer.producer_id
    bodies = await _bodies(client)
    assert bodies[placed.queue_offset] == b"next"
    assert bodies in ([b"first", b"next"], [b"first", b"lost", b"next"])


async def test_full_buffer_holds_the_sender_back_then_refuses() -> None:
    async with AsyncClient("127.0.0.1:9") as nowhere:
        producer = nowhere.producer(
            buffer_bytes=1000, batch_bytes=100, max_block_s=0.05, delivery_timeout_s=30
        )
        while producer._core.accumulator.buffered_bytes < 1000:
            await producer.send("orders", bytes(50))
        with pytest.raises(BufferFullError):
            await producer.send("orders", bytes(50))
        await producer.close(timeout_s=0.01)


@pytest.mark.parametrize("many", [False, True])
async def test_a_sender_that_waits_for_room_is_told_of_the_close(many: bool) -> None:
    async with AsyncClient("127.0.0.1:9") as nowhere:
        producer = nowhere.producer(buffer_bytes=1000, batch_bytes=100, delivery_timeout_s=30)
        while producer._core.accumulator.buffered_bytes < 1000:
            await producer.send("orders", bytes(50))
        message = Message("orders", bytes(50))
        sending = producer.send_many([message]) if many else producer.send("orders", bytes(50))
        waiting = asyncio.ensure_future(sending)
        await until(lambda: producer._core.accumulator._room_waiters)
        closing = asyncio.ensure_future(producer.close(timeout_s=0.1))
        with pytest.raises(ClosedError):
            await waiting
        await closing


async def test_a_callback_that_raises_does_no_harm(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    def raises(_: object) -> None:
        raise RuntimeError("a reader's defect")

    async with client.producer(batch_messages=1, linger_ms=0) as producer:
        first = await producer.send_many([Message("orders", b"0", 0)])
        first.add_done_callback(raises)
        later = [await producer.send("orders", b"%d" % at, queue_id=0) for at in range(1, 5)]
        assert [(await sending).queue_offset for sending in later] == [1, 2, 3, 4]
    assert "a reader's defect" in caplog.text


async def test_a_batch_that_no_request_can_carry_fails_alone(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = put_stream_request

    def refusing(
        number: int, messages: Sequence[Outgoing], producer_id: str, sequence: int
    ) -> bytes:
        if messages[0][1] == b"1":
            raise TypeError("planted")
        return make(number, messages, producer_id, sequence)

    monkeypatch.setattr(delivery, "put_stream_request", refusing)
    async with client.producer(batch_messages=1, linger_ms=0) as producer:
        await (await producer.send("orders", b"0", queue_id=1))
        wrong = await producer.send("orders", b"1", queue_id=1)
        right = await producer.send("orders", b"2", queue_id=1)
        with pytest.raises(InvalidArgumentError):
            await wrong
        assert (await right).queue_offset == 1


async def test_a_single_put_that_may_be_stored_is_not_repeated(
    served: Served, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = served.store.append

    def stored_but_not_durable(messages: Sequence[StoreMessage], **how: Any) -> Appended:  # noqa: ANN401
        appended = append(messages, **how)
        raise FlushTimeoutError(appended.end_offset, 5.0)

    monkeypatch.setattr(served.store, "append", stored_but_not_durable)
    with pytest.raises(UnavailableError, match="FLUSH_DISK_TIMEOUT"):
        await client.put(Message("orders", b"once", 0))
    assert await _bodies(client) == [b"once"]


async def test_a_full_buffer_lets_all_pass_in_order(client: AsyncClient) -> None:
    async with client.producer(buffer_bytes=2000, batch_bytes=500) as producer:
        for at in range(1000):
            await producer.send("orders", b"%04d" % at, queue_id=0)
        await producer.send_many([Message("orders", b"%04d" % at, 0) for at in range(1000, 2000)])
    assert await _bodies(client) == [b"%04d" % at for at in range(2000)]


async def test_close_delivers_and_then_refuses(client: AsyncClient) -> None:
    producer = client.producer(linger_ms=60_000)
    sending = await producer.send("orders", b"last", queue_id=0)
    await producer.close()
    assert (await sending).queue_offset == 0
    with pytest.raises(ClosedError):
        await producer.send("orders", b"late")
    await producer.close()


async def test_close_without_time_fails_what_is_left() -> None:
    async with AsyncClient("127.0.0.1:9") as nowhere:
        producer = nowhere.producer(linger_ms=60_000)
        sending = await producer.send("orders", b"")
        await producer.close(timeout_s=0.01)
        with pytest.raises(ClosedError, match="before it was acknowledged"):
            await sending


async def test_close_says_that_no_server_was_reached() -> None:
    async with AsyncClient("127.0.0.1:9") as nowhere:
        producer = nowhere.producer(linger_ms=0)
        sending = await producer.send("orders", b"")
        await until(lambda: producer._core.delivery._last_error)
        await producer.close(timeout_s=0.01)
        with pytest.raises(ClosedError, match=r"server at 127\.0\.0\.1:9: .*[Cc]onnect"):
            await sending


async def test_linger_lets_one_message_go(client: AsyncClient) -> None:
    async with client.producer(linger_ms=1, batch_messages=1000) as producer:
        assert (await (await producer.send("orders", b"one", queue_id=0))).queue_offset == 0
        assert (await (await producer.send("orders", b"two", queue_id=0))).queue_offset == 1


async def test_light_queues_are_followed(client: AsyncClient) -> None:
    async with client.producer() as producer:
        for at in range(30):
            await producer.send("t", b"%d" % at, light_queues=["%LMQ%a", f"%LMQ%{at % 3}"])
    async with await client.consumer("%LMQ%1", start=Start.EARLIEST) as consumer:
        found = [message async for message in consumer.to_end()]
    assert [message.body for message in found] == [b"%d" % at for at in range(1, 30, 3)]
    assert [message.queue_offset for message in found] == list(range(10))


async def test_many_producers_at_once(served: Served, client: AsyncClient) -> None:
    await client.create_topic("orders", 4)

    async def produce(queue_id: int) -> None:
        async with client.producer(batch_messages=13) as producer:
            for at in range(300):
                await producer.send("orders", b"%d" % at, queue_id=queue_id)

    await asyncio.gather(*map(produce, range(4)))
    async with await client.consumer("orders") as consumer:
        bodies: dict[int, list[bytes]] = {}
        async for message in consumer.to_end():
            bodies.setdefault(message.queue_id, []).append(message.body)
    assert bodies == {queue_id: [b"%d" % at for at in range(300)] for queue_id in range(4)}


async def test_offsets_in_light_queues_are_told_for_each_message(client: AsyncClient) -> None:
    rows = [("%LMQ%a", "%LMQ%b", "%LMQ%a"), (), ("refused",), ("%LMQ%b",)]
    async with client.producer(linger_ms=60_000) as producer:
        sendings = [await producer.send("t", b"", queue_id=0, light_queues=row) for row in rows]
    with pytest.raises(InvalidArgumentError, match="light_queues"):
        await sendings.pop(2)
    assert [(await one).light_queue_offsets for one in sendings] == [(0, 0), (), (1,)]
    placed = await client.put(Message("t", b"", light_queues=("%LMQ%c", "%LMQ%a")))
    assert placed.light_queue_offsets == (0, 1)


async def test_failures_that_nobody_asked_for_are_logged_once_when_it_is_closed(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    await client.create_topic("orders", 1)
    producer = client.producer()
    asked = await producer.send("no topic", b"x")
    for _ in range(3):
        await producer.send("no topic", b"x")
    await producer.send("orders", b"stored")
    many = await producer.send_many([Message("no topic either", b"x")] * 4)
    await producer.flush()
    assert asked.exception() is asked.exception()
    with pytest.raises(InvalidArgumentError):
        await many
    assert [record for record in caplog.records if record.name.startswith("kvcq_client")] == []
    await producer.close()
    await producer.close()
    assert caplog.text.count("the result was never checked") == 1
    assert "3 messages were not delivered" in caplog.text
    assert "'no topic' has characters" in caplog.text


async def test_flush_and_close_say_how_many_messages_failed(client: AsyncClient) -> None:
    await client.create_topic("orders", 1)
    producer = client.producer(batch_messages=3)
    for at in range(10):
        await producer.send("orders" if at % 3 else "no topic", b"x")
    assert await producer.flush() == 4
    assert await producer.flush() == 0
    sending = await producer.send("no topic", b"x")
    assert isinstance(await asyncio.to_thread(sending.exception), InvalidArgumentError)
    await producer.send("orders", b"x")
    assert await producer.close() == 1
    assert await producer.close() == 0


async def test_an_outcome_is_told_to_callbacks_and_cannot_be_cancelled(client: AsyncClient) -> None:
    told: list[Sending] = []
    async with client.producer(linger_ms=3_600_000) as producer:
        sending = await producer.send("orders", b"x", queue_id=0)
        sending.add_done_callback(told.append)
        assert (sending.done(), sending.running(), told) == (False, True, [])
        with pytest.raises(TimeoutError):
            sending.result(timeout=0)
        assert not sending.cancel()
        assert not sending.cancelled()
        await producer.flush()
        assert told == [sending]
        sending.add_done_callback(told.append)
        assert told == [sending] * 2
        assert sending.result(timeout=0).queue_offset == 0
        assert sending.exception(timeout=0) is None


async def test_a_producer_whose_failures_were_asked_for_closes_quietly(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    async with client.producer() as producer:
        sending = await producer.send("no topic", b"x")
        with pytest.raises(InvalidArgumentError):
            await sending
        many = await producer.send_many([Message("no topic", b"x")] * 2)
        await producer.flush()
        assert set(many.errors()) == {0, 1}
    assert caplog.text == ""
