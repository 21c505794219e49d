"""The transport for kombu, without workers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("kombu", reason="the extra kvcq-client[celery] is not installed")

from kombu import Connection

import kvcq_client.tasks.kombu  # noqa: F401 - makes kvcq:// known
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
