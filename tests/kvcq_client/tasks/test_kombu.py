"""The transport for kombu, without workers."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("kombu", reason="the extra kvcq-client[celery] is not installed")

from kombu import Connection, Consumer, Queue

import kvcq_client.tasks.kombu  # noqa: F401 - makes kvcq:// known
from kvcq_client import Client
from kvcq_client import Queue as KvcqQueue
from tests.support.until import wait_until

if TYPE_CHECKING:
    from kombu.message import Message

    from kvcq_client import AsyncClient
    from tests.support.serving import Served

pytestmark = pytest.mark.integration


async def test_what_is_got_without_acknowledgement_does_not_come_again(
    served: Served, client: AsyncClient
) -> None:
    def get() -> str:
        with Connection(f"kvcq://{served.target}") as connection:
            channel = connection.channel()
            connection.SimpleQueue("jobs").put("one", serializer="json")
            found: list[Message] = []

            def look() -> bool:
                message = channel.basic_get("jobs", no_ack=True)
                if message is not None:
                    found.append(message)
                return bool(found)

            wait_until(look)
            return str(found[0].decode())

    assert await asyncio.to_thread(get) == "one"
    assert await client.receive("jobs", group="jobs") == []
    assert not any(one.lag for one in (await client.describe_group("jobs")).queues)


async def test_a_consumer_that_is_cancelled_gives_back_what_it_received_ahead(
    served: Served, client: AsyncClient
) -> None:
    def work() -> set[int]:
        with Connection(f"kvcq://{served.target}") as connection:
            channel = connection.channel()
            queue = connection.SimpleQueue("jobs")
            for number in range(40):
                queue.put(number, serializer="json")
            got: dict[int, Message] = {}

            def take(body: int, message: Message) -> None:
                got[body] = message

            consumer = Consumer(channel, [Queue("jobs", channel=channel)], callbacks=[take])
            consumer.qos(prefetch_count=30)
            consumer.consume()
            while len(got) < 20:
                connection.drain_events(timeout=10)
            consumer.cancel()
            with Client(served.target) as other, other.receiver("jobs", group="jobs") as receiver:
                given_back = receiver.take(40 - len(got), timeout_s=30)
                assert {one.deliveries for one in given_back} <= {1}
                found = {*got, *(json.loads(_body(one.body)) for one in given_back)}
                for one in given_back:
                    one.acknowledge()
            for message in got.values():
                message.ack()
            return found

    assert await asyncio.to_thread(work) == set(range(40))
    assert not any(one.lag for one in (await client.describe_group("jobs")).queues)


async def test_what_is_recovered_comes_again_and_is_no_second_message(
    served: Served, client: AsyncClient
) -> None:
    await client.create_group("jobs", backoff_ms=[0])

    def work() -> None:
        with Connection(f"kvcq://{served.target}") as connection:
            channel = connection.channel()
            connection.SimpleQueue("jobs").put("one", serializer="json")
            got: list[Message] = []
            consumer = Consumer(
                *(channel, [Queue("jobs", channel=channel)]),
                callbacks=[lambda _, message: got.append(message)],
            )
            consumer.consume()
            connection.drain_events(timeout=10)
            consumer.recover(requeue=True)
            connection.drain_events(timeout=10)
            first, again = got
            assert first.decode() == again.decode() == "one"
            again.ack()

    await asyncio.to_thread(work)
    ends = await client.offsets(
        KvcqQueue("jobs", at) for at in range((await client.describe_topic("jobs")).queue_count)
    )
    assert sum(one.max_offset for one in ends.values()) == 1
    assert not any(one.lag for one in (await client.describe_group("jobs")).queues)


@pytest.mark.parametrize("group", [None, "all"])
async def test_what_waits_before_the_first_worker_is_counted_and_purged(
    served: Served, client: AsyncClient, group: str | None
) -> None:
    def work() -> None:
        options = {"group": group} if group else {}
        with Connection(f"kvcq://{served.target}", transport_options=options) as connection:
            channel = connection.channel()
            assert channel.queue_declare("other").message_count == 0
            assert channel.basic_get("other") is None  # makes the group, if it is the same
            for number in range(3):
                connection.SimpleQueue("jobs").put(number, serializer="json")
            assert channel.queue_declare("jobs", passive=True).message_count == 3
            channel.queue_delete("jobs", if_empty=True)
            assert channel.queue_purge("jobs") == 3
            assert channel.queue_declare("jobs", passive=True).message_count == 0
            connection.SimpleQueue("jobs").put("later", serializer="json")
            found: list[Message] = []

            def look() -> bool:
                message = channel.basic_get("jobs", no_ack=True)
                found.extend([message] if message else [])
                return bool(found)

            wait_until(look)
            assert found[0].decode() == "later"

    await asyncio.to_thread(work)
    await client.create_group("new", from_latest=True)
    with_latest = Connection(f"kvcq://{served.target}", transport_options={"group": "new"})

    def size() -> int:
        with with_latest as connection:
            return int(connection.channel().queue_declare("jobs", passive=True).message_count)

    assert await asyncio.to_thread(size) == 0  # such a group begins with later ones


@pytest.mark.parametrize("body", [b"no json", b"5", b"{}"])
async def test_what_is_no_task_is_given_back_and_ends_no_worker(
    served: Served, client: AsyncClient, body: bytes
) -> None:
    await client.create_group("jobs", max_deliveries=1)
    await client.create_topic("jobs", 1)
    await client.put("jobs", body)

    def work() -> None:
        with Connection(f"kvcq://{served.target}") as connection:
            connection.SimpleQueue("jobs").put("one", serializer="json")
            got: list[Message] = []
            consumer = Consumer(
                *(connection.channel(), [Queue("jobs")]),
                callbacks=[lambda _, message: got.append(message)],
            )
            with consumer:
                connection.drain_events(timeout=10)
                assert got[0].decode() == "one"
                got[0].ack()

    await asyncio.to_thread(work)
    assert len(await client.dead_letters("jobs")) == 1


async def test_a_consumer_that_acknowledged_nothing_leaves_that_to_nobody(
    served: Served, client: AsyncClient
) -> None:
    def work() -> None:
        with Connection(f"kvcq://{served.target}") as connection:
            channel = connection.channel()
            with Consumer(channel, [Queue("jobs")], no_ack=True):
                pass
            connection.SimpleQueue("jobs").put("one", serializer="json")
            wait_until(lambda: channel.basic_get("jobs") is not None)

    await asyncio.to_thread(work)
    assert sum(one.lag for one in (await client.describe_group("jobs")).queues) == 1


def test_an_address_of_ipv6_keeps_its_brackets() -> None:
    with Connection("kvcq://[::1]:8081") as connection:
        assert connection.transport.server.target == "[::1]:8081"


def _body(body: bytes) -> bytes:
    """The content of a message of kombu, as it was put."""
    return b64decode(json.loads(body)["body"])
