"""The thin calls, and the blocking face."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from zlib_ng.zlib_ng import crc32

from kvcq_client import (
    AlreadyExistsError,
    AsyncClient,
    Boundary,
    Bounds,
    Client,
    ClosedError,
    ConsumerConfig,
    DeadlineError,
    InvalidArgumentError,
    KvcqError,
    Message,
    NotFoundError,
    NotPossibleError,
    NumberPassedError,
    NumberReusedError,
    OffsetOutOfRangeError,
    ProducerConfig,
    Queue,
    Start,
    Topic,
    UnavailableError,
)
from kvcq_client.transport import waiting
from server.version import VERSION
from store.format.record import CRC_ITEM_BYTES, CRC_MASK, crc_item
from tests.support.free_port import free_port
from tests.support.serving import serving
from tests.support.until import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.serving import Served


async def test_topics_are_made_listed_and_deleted(client: AsyncClient) -> None:
    made = await client.create_topics({"a": 2, "b": 3})
    assert [(topic.name, topic.queue_count) for topic in made] == [("a", 2), ("b", 3)]
    await client.create_topics(["c1", "c2"])
    assert [topic.name async for topic in client.topics("c")] == ["c1", "c2"]
    with pytest.raises(AlreadyExistsError):
        await client.create_topic("a", 5)
    await client.delete_topic("a")
    with pytest.raises(NotFoundError) as caught:
        await client.describe_topic("a")
    assert caught.value.reason == "UNKNOWN_TOPIC"
    assert caught.value.metadata["topic"] == "a"


async def test_put_pull_get_query_search(client: AsyncClient) -> None:
    await client.create_topic("t", 1)
    placed = [await client.put(Message("t", b"%d" % at, 0, keys=("k",))) for at in range(5)]
    pulled = await client.pull("t", 0, 1, max_messages=2)
    assert [message.body for message in pulled.messages] == [b"1", b"2"]
    assert (pulled.next_offset, pulled.min_offset, pulled.max_offset) == (3, 0, 5)
    assert (await client.get(placed[3].message_id)).body == b"3"
    page = await client.query("t", "k", max_messages=3)
    assert [message.body for message in page.messages] == [b"0", b"1", b"2"]
    assert not page.complete
    page = await client.query("t", "k", cursor=page.cursor)
    assert [message.body for message in page.messages] == [b"3", b"4"]
    assert page.complete
    assert await client.search_time("t", 0, 0) == 0
    assert await client.search_time("t", 0, placed[-1].store_time_ms, Boundary.UPPER) == 4
    assert await client.offsets([Queue("t", 0)]) == {Queue("t", 0): Bounds(0, 5)}


async def test_a_numbered_batch_is_stored_once(client: AsyncClient) -> None:
    await client.create_topic("numbered", 1)
    batch = [Message("numbered", bytes([index]), queue_id=0) for index in range(5)]
    for repeated in (False, True):
        assert await client.put_numbered(batch, producer_id="job.7", sequence=0) is repeated
    assert await client.put_numbered(batch[:2], producer_id="job.7", sequence=5) is False
    with pytest.raises(NotPossibleError):
        await client.put_numbered(batch, producer_id="job.7", sequence=20)
    for other in (batch[:4], [*batch, batch[0]], [*batch[:4], Message("numbered", b"x", 0)]):
        with pytest.raises(NumberReusedError) as reused:
            await client.put_numbered(other, producer_id="job.7", sequence=0)
        assert (reused.value.code, reused.value.reason) == ("FAILED_PRECONDITION", "NUMBER_REUSED")
    with pytest.raises(NumberPassedError):
        await client.put_numbered(batch[1:], producer_id="job.7", sequence=1)
    bodies = [message.body for message in (await client.pull("numbered", 0, 0)).messages]
    assert bodies == [bytes([index]) for index in (0, 1, 2, 3, 4, 0, 1)]


async def test_an_empty_answer_is_no_error(client: AsyncClient) -> None:
    await client.create_topic("t", 1)
    pulled = await client.pull("t", 0, 0)
    assert (pulled.messages, pulled.next_offset) == ([], 0)
    assert (await client.query("t", "absent")).messages == []
    with pytest.raises(OffsetOutOfRangeError) as caught:
        await client.pull("t", 0, 1)
    assert (caught.value.min_offset, caught.value.max_offset) == (0, 0)
    with pytest.raises(NotFoundError):
        await client.get("7F00000100001F910000000000000005")


async def test_groups(client: AsyncClient) -> None:
    await client.create_topic("t", 2)
    for at in range(6):
        await client.put(Message("t", b"", at % 2))
    await client.commit_offsets("g", {Queue("t", 0): 1})
    offsets = await client.group_offsets("g", [Queue("t", 0), Queue("t", 1)])
    assert [(one.offset, one.lag) for one in offsets] == [(1, 2), (None, 3)]
    assert [one.offset for one in await client.group_offsets("g")] == [1]
    reset = await client.reset_offsets("g", "t", Start.LATEST)
    assert [one.lag for one in reset] == [0, 0]
    assert (await client.reset_offsets("g", "t", 2, queue_ids=[1]))[0].lag == 1
    assert await client.groups() == ["g"]
    await client.delete_group("g")
    assert await client.groups() == []


async def test_errors_carry_reason_and_metadata(client: AsyncClient) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await client.put(Message("no topic", b""))
    assert caught.value.field == "message.topic"
    assert caught.value.reason == "INVALID_ARGUMENT"
    assert isinstance(caught.value, KvcqError)


async def test_no_server_is_tried_until_the_deadline() -> None:
    async with AsyncClient("127.0.0.1:9", timeout_s=0.3) as client:
        with pytest.raises((UnavailableError, DeadlineError)):
            await client.describe_topic("t")


async def test_a_call_waits_for_a_server_that_starts(tmp_path: Path) -> None:
    port = free_port()
    async with AsyncClient(f"127.0.0.1:{port}", timeout_s=20) as client:
        call = asyncio.create_task(client.create_topic("t", 1))
        async with serving(tmp_path, port=port):
            assert (await call).queue_count == 1


async def test_the_deadline_is_the_callers() -> None:
    # The kernel takes the connection, and nobody ever answers on it.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        async with AsyncClient(f"127.0.0.1:{port}") as client:
            with pytest.raises(DeadlineError):
                await client.statistics(timeout_s=0.1)


async def test_a_closed_client_says_so(served: Served) -> None:
    client = AsyncClient(served.target)
    await client.close()
    with pytest.raises(ClosedError):
        await client.describe_topic("t")
    with pytest.raises(ClosedError):
        client.producer()


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="batch_messages"):
        ProducerConfig(batch_messages=0)
    with pytest.raises(ValueError, match="producer_id"):
        ProducerConfig(producer_id="a:b")
    with pytest.raises(ValueError, match="buffer_bytes"):
        ConsumerConfig(buffer_bytes=0)


async def test_a_sending_thread_gives_way_for_each_ready_batch(
    served: Served, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    gave: list[float] = []
    monkeypatch.setattr(waiting, "sleep", gave.append)

    def work() -> None:
        with (
            Client(served.target, timeout_s=10) as blocking,
            blocking.producer(batch_messages=2, linger_ms=60_000) as producer,
        ):
            producer.send("t0", b"1", queue_id=0)
            assert not gave
            producer.send("t0", b"2", queue_id=0)
            assert gave == [0]
            producer.send_many([Message("t0", b"m", 0)] * 4)
            assert gave == [0, 0]

    await client.create_topic("t0", 1)
    await asyncio.to_thread(work)
    async with client.producer(batch_messages=2) as producer:
        await producer.send_many([Message("t0", b"m", 0)] * 4)
    assert len(gave) == 2


async def test_the_blocking_face_does_it_all(served: Served) -> None:
    def work() -> None:
        with Client(served.target, timeout_s=10) as client:
            client.create_topics({f"t{at}": 1 for at in range(5)})
            assert [topic.name for topic in client.topics("t")] == [f"t{at}" for at in range(5)]
            assert isinstance(client.describe_topic("t0"), Topic)
            with client.producer(buffer_bytes=4000, batch_bytes=500) as producer:
                sendings = [
                    producer.send("t0", b"%d" % at, queue_id=0, keys=["k"]) for at in range(500)
                ]
                many = producer.send_many([Message("t0", b"m", 0)] * 500)
                assert producer.put(Message("t1", b"", 0)).queue_offset == 0
                producer.flush(10)
                assert sendings[499].done()
                assert sendings[499].exception() is None
            assert [one.result().queue_offset for one in sendings] == list(range(500))
            assert [one.queue_offset for one in many.result()] == list(range(500, 1000))
            with client.consumer("t0", reader_group="g") as consumer:
                assert next(consumer).body == b"0"
                assert [m.body for m in consumer.take(2)] == [b"1", b"2"]
                rest = [m.queue_offset for m in consumer.to_end(10)]
                assert rest == list(range(3, 1000))
                assert consumer.batch(0.01) == []
                assert consumer.take(1, timeout_s=0.01) == []
                consumer.seek({Queue("t0", 0): 998})
                assert [m.queue_offset for m in consumer.to_end(10)] == [998, 999]
                consumer.commit()
                consumer.leave([Queue("t0", 0)])
                consumer.follow({Queue("t1", 0): 0})
                assert next(consumer).topic == "t1"
            assert client.group_offsets("g")[0].offset == 1000
            assert client.groups() == ["g"]
            client.commit_offsets("g", {Queue("t0", 0): 5}, allow_back=True)
            assert client.reset_offsets("g", "t0", Start.EARLIEST)[0].offset == 0
            client.delete_group("g")
            assert client.pull("t0", 0, 7).messages[0].body == b"7"
            assert client.query("t0", "k", max_messages=1).messages[0].body == b"0"
            placed = client.put(Message("t2", b"x", 0))
            assert client.get(placed.message_id).body == b"x"
            assert client.search_time("t2", 0, 0) == 0
            assert client.offsets([Queue("t2")])[Queue("t2")].max_offset == 1
            assert client.statistics()
            assert client.server_version() == VERSION
            client.delete_topic("t4")
            with pytest.raises(NotFoundError):
                client.describe_topic("t4")
        client.close()
        with pytest.raises(ClosedError):
            client.groups()

    # The server runs in this loop.
    await asyncio.to_thread(work)


@pytest.mark.parametrize("field", ["keys", "light_queues"])
async def test_one_text_instead_of_several_is_refused(client: AsyncClient, field: str) -> None:
    message = Message("t", b"x", **{field: "order-9"})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=f"{field}: expected a sequence"):
        await client.put(message)
    with pytest.raises(TypeError, match=f"{field}: expected a sequence"):
        await client.put_numbered([message], producer_id="p", sequence=0)
    assert [topic async for topic in client.topics()] == []


async def test_listing_topics_keeps_to_the_time_of_the_client() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, and not listening: nobody answers
        target = f"127.0.0.1:{unused.getsockname()[1]}"
        async with AsyncClient(target, timeout_s=0.2) as client:
            async with asyncio.timeout(10):
                with pytest.raises((UnavailableError, DeadlineError)):
                    _ = [topic async for topic in client.topics()]


async def test_a_pull_waits_for_the_first_message_of_a_light_queue(
    served: Served, client: AsyncClient
) -> None:
    name = "%LMQ%inbox"
    waiting = asyncio.create_task(client.pull(name, 0, 0, wait_s=30))
    await until(lambda: served.serving.reads.growth.watched_queues)
    await client.put(Message("t", b"first", light_queues=(name,)))
    assert [message.body for message in (await waiting).messages] == [b"first"]
    for topic, queue_id, offset in (
        ("%LMQ%other", 0, 1),
        ("%LMQ%other", 1, 0),
        ("%LMQ%", 0, 0),
        ("%LMQ%a b", 0, 0),
        ("other", 0, 0),
    ):
        with pytest.raises((NotFoundError, InvalidArgumentError)):
            await client.pull(topic, queue_id, offset, wait_s=30)
    nothing = await client.pull("%LMQ%other", 0, 0, wait_s=0.01)
    assert nothing == ([], 0, 0, 0)
    with pytest.raises(NotFoundError):
        await client.pull("%LMQ%other", 0, 0)


@pytest.mark.parametrize("start", [Start.EARLIEST, Start.LATEST, Start.COMMITTED])
async def test_a_consumer_waits_for_the_first_message_of_a_light_queue(
    client: AsyncClient, start: Start
) -> None:
    await client.put(Message("t", b"before", queue_id=0, light_queues=("%LMQ%old",)))
    wanted = [Queue("t", 0), Queue("%LMQ%old"), Queue("%LMQ%new")]
    async with await client.consumer(wanted, start=start, reader_group="g") as consumer:
        seen = [message.body async for message in consumer.to_end()]
        assert seen == ([] if start is Start.LATEST else [b"before", b"before"])
        await client.put(Message("u", b"first", light_queues=("%LMQ%new",)))
        message = await anext(aiter(consumer))
        assert (message.body, message.queue_offset, consumer.queue) == (
            b"first",
            0,
            Queue("%LMQ%new"),
        )


async def test_a_message_says_where_it_was_read_and_where_it_was_put(client: AsyncClient) -> None:
    topic, light = Queue("t", 3), Queue("%LMQ%alice")
    await client.put(Message("t", b"x", topic.queue_id))
    placed = await client.put(Message("t", b"x", topic.queue_id, "", ("key",), (light.topic,)))
    read = {
        topic: (await client.pull(*topic, 1)).messages,
        light: (await client.pull(*light, 0)).messages,
    }
    async with await client.consumer([topic, light], start=Start.EARLIEST) as consumer:
        async for message in consumer.to_end():
            assert consumer.queue is not None
            read[consumer.queue].append(message)
    del read[topic][1]  # the one without a light queue
    found = [await client.get(placed.message_id)]
    found += (await client.query("t", "key")).messages
    for queue, offset, messages in (
        (topic, 1, read[topic] + found),
        (light, 0, read[light]),
    ):
        assert len(messages) >= 2
        for message in messages:
            assert (message.queue, message.queue_offset) == (queue, offset)
            assert (message.topic, message.queue_id, message.topic_queue_offset) == (*topic, 1)
            assert f"{queue.topic} queue {queue.queue_id} offset {offset}" in repr(message)


async def test_an_id_that_points_into_a_body_is_no_message(
    served: Served, client: AsyncClient
) -> None:
    await client.create_topic("t", 1)
    first = await client.put(Message("t", b"first"))
    record = served.store.get(first.physical_offset)
    # A body that holds a record of the same queue, made to say that it lies where it will lie.
    probe = await client.put(Message("t", record))
    at = served.store.get(probe.physical_offset).index(record)
    size = len(served.store.get(probe.physical_offset))
    inside = probe.physical_offset + size + at
    forged = forge(record, inside, queue_offset=2)
    placed = await client.put(Message("t", forged))
    stored = served.store.get(placed.physical_offset)
    assert stored[at : at + len(forged)] == forged
    assert placed.physical_offset + at == inside
    with pytest.raises(NotFoundError, match="no record begins there"):
        await client.get(placed.message_id[:-16] + f"{inside:016X}")
    assert (await client.get(placed.message_id)).body == forged


async def test_put_takes_a_topic_and_a_body_or_a_message(client: AsyncClient) -> None:
    await client.create_topic("t", 1)
    fields: dict[str, Any] = {"tag": "a", "keys": ["k"], "properties": {"p": "v"}, "flag": 3}
    async with client.producer() as producer:
        for put in (client.put, producer.put):
            await put("t", b"body", **fields)
            await put(Message("t", b"body", None, "a", ("k",), (), {"p": "v"}, 3))
            with pytest.raises(TypeError, match="body: expected bytes"):
                await put("t")
            with pytest.raises(TypeError, match="encode text"):
                await put("t", "text")  # type: ignore[arg-type] # what is tested
            with pytest.raises(TypeError, match="a Message has all fields"):
                await put(Message("t", b"body"), tag="a")
    pulled = await client.pull("t", 0, 0)
    assert len({(one.body, one.tag, one.keys, one.flag) for one in pulled.messages}) == 1
    assert len(pulled.messages) == 4


@pytest.mark.parametrize(
    ("argument", "advice"),
    [("key", "ordering_key"), ("partition", "queue_id"), ("headers", "properties"), ("x", "'x'")],
)
async def test_arguments_of_other_libraries_are_refused_with_advice(
    client: AsyncClient, argument: str, advice: str
) -> None:
    given: Any = {argument: "user-1"}
    async with client.producer() as producer:
        for put in (client.put, producer.put, producer.send):
            with pytest.raises(TypeError, match=advice):
                await put("t", b"body", **given)
    with Client("127.0.0.1:1") as blocking, blocking.producer() as sender:
        for send in (blocking.put, sender.put, sender.send):
            with pytest.raises(TypeError, match=advice):
                send("t", b"body", **given)


async def test_where_to_begin_may_be_said_in_words(client: AsyncClient) -> None:
    await client.create_topic("t", 1)
    for at in range(3):
        await client.put("t", b"%d" % at)
    async with await client.consumer("t", reader_group="g", start="earliest") as consumer:
        assert (await consumer.take(1))[0].body == b"0"
        await consumer.seek("latest")
        assert consumer.positions() == {Queue("t", 0): 3}
    await client.reset_offsets("g", "t", "latest")
    assert [one.offset for one in await client.group_offsets("g")] == [3]
    with pytest.raises(
        ValueError, match="to: 'now' is not one of 'earliest', 'latest', 'committed'"
    ):
        await client.reset_offsets("g", "t", "now")


def forge(record: bytes, physical_offset: int, *, queue_offset: int) -> bytes:
    """The record, as it would be at that place: whole, closed by its CRC."""
    changed = bytearray(record)
    changed[20:28] = queue_offset.to_bytes(8, "big")
    changed[28:36] = physical_offset.to_bytes(8, "big")
    end = len(changed) - CRC_ITEM_BYTES
    changed[end:] = crc_item(crc32(bytes(changed[:end])) & CRC_MASK)
    return bytes(changed)


@pytest.mark.parametrize(
    "settings",
    [
        {"start": "first"},
        {"start": 5},
        {"when_expired": "now"},
        {"group": 5},
        {"tag_filter": ["a"]},
    ],
)
def test_a_consumer_refuses_settings_of_another_type(settings: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError), match=next(iter(settings))):
        ConsumerConfig(**settings)


@pytest.mark.parametrize(
    "target",
    [
        *("host", "127.0.0.1", "", "host:", "host:0", "host:99999", ":8081", "[::1]", None, 1),
        *("http://host:8081", "https://host"),
    ],
)
def test_a_target_without_a_port_is_refused(target: Any) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=r"target: .* is not HOST:PORT, such as"):
        Client(target)


@pytest.mark.parametrize(
    "target", ["host:8081", "[::1]:8081", "dns:///host:8081", "unix:/run/k.sock", "unix:k.sock"]
)
def test_targets_of_every_form_are_taken(target: str) -> None:
    with Client(target) as client:
        assert client.target == target


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"keys": [1]}, "keys: expected text, not int"),
        ({"keys": 1}, "keys: expected a sequence of texts, not int"),
        ({"light_queues": [b"x"]}, "light_queues: expected text, not bytes"),
        ({"properties": [1]}, "properties: expected a mapping of texts, not list"),
        ({"properties": {"a": 1}}, "properties: expected text, not int"),
    ],
)
async def test_fields_of_another_type_are_refused_by_name(
    client: AsyncClient, fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(TypeError, match=says):
        await client.put(Message("orders", b"x", **fields))
    async with client.producer() as producer:
        with pytest.raises(TypeError, match=says):
            await producer.send("orders", b"x", **fields)


async def test_a_fan_out_beyond_one_record_is_stored_once_in_each_light_queue(
    client: AsyncClient,
) -> None:
    await client.create_topic("chat", 8)
    names = tuple(f"%LMQ%room-{number:05}" for number in range(3000))
    message = Message("chat", b"hi", light_queues=names, ordering_key="room")
    with pytest.raises(InvalidArgumentError, match="names of 15 characters fit") as refused:
        await client.put(message)
    assert refused.value.field == "message.light_queues"
    placed = await client.put_fan_out(message)
    assert len(placed) == 3
    assert [offset for one in placed for offset in one.light_queue_offsets] == [0] * 3000
    assert len({one.queue_id for one in placed}) == 1
    assert [one.queue_offset for one in placed] == [0, 1, 2]
    bounds = await client.offsets(Queue(name, 0) for name in names)
    assert set(bounds.values()) == {Bounds(0, 1)}
    for name in (names[0], names[-1]):
        pulled = await client.pull(name, 0, 0)
        assert [one.body for one in pulled.messages] == [b"hi"]
    (one,) = await client.put_fan_out(replace(message, light_queues=names[:2]))
    assert one.light_queue_offsets == (1, 1)
