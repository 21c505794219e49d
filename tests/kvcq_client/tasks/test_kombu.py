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


def _body(body: bytes) -> bytes:
    """The content of a message of kombu, as it was put."""
    return b64decode(json.loads(body)["body"])
