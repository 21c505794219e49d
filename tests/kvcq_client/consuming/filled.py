"""A queue with messages, and with damage behind some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import store.errors
from kvcq_client import AsyncClient, Message, Queue

if TYPE_CHECKING:
    import pytest

    from store.reads import PullPlan
    from tests.support.serving import Served

QUEUE = Queue("orders", 0)


async def fill(client: AsyncClient, count: int, queues: int = 1, tag: str = "") -> None:
    await client.create_topic("orders", queues)
    async with client.producer() as producer:
        await (
            await producer.send_many(
                [Message("orders", b"%d" % at, at % queues, tag) for at in range(count)]
            )
        )


def damage_behind(damage: int, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_pull = served.store.reads.plan_pull

    def damaged(topic: str, queue_id: int, offset: int, **rest: Any) -> PullPlan:  # noqa: ANN401 - handed on
        if offset >= damage:
            raise store.errors.DamagedQueueError(topic, queue_id, damage, "no unit")
        return plan_pull(topic, queue_id, offset, **{**rest, "max_messages": damage - offset})

    monkeypatch.setattr(served.store.reads, "plan_pull", damaged)
