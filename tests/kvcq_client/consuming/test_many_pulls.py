"""Pulls that wait by the thousand: a refusal is said, and one consumer does without them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kvcq_client import AsyncClient, Queue
from server.edge import CallKind
from server.edge.call_gate import Places
from server.edge.request_limits import PLACES
from tests.support.serving import serving

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def four_pulls(monkeypatch: pytest.MonkeyPatch) -> None:
    """One connection may have four pulls under way."""
    monkeypatch.setitem(PLACES, CallKind.PULL, Places(4, 12_288))


async def test_refused_pulls_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as served, AsyncClient(served.target) as client:
        await client.create_topic("t", 1)
        pulls = [asyncio.create_task(client.pull("t", 0, 0, wait_s=1)) for _ in range(12)]
        await client.put("t", b"x")
        found = await asyncio.gather(*pulls)
        assert all(len(one.messages) == 1 for one in found)
    warnings = [one for one in caplog.messages if "rejects pulls that wait" in one]
    assert len(warnings) == 1
    assert "client.consumer(" in warnings[0]


async def test_one_consumer_follows_many_light_queues(tmp_path: Path) -> None:
    names = [f"%LMQ%device-{number}" for number in range(1000)]
    async with (
        serving(tmp_path) as served,
        AsyncClient(served.target) as client,
        await client.consumer(names) as consumer,
    ):
        for number in (7, 999, 7):
            await client.put("commands", b"%d" % number, light_queues=[names[number]])
        found = await consumer.take(3, timeout_s=20)
        assert sorted(one.queue.topic for one in found) == sorted(
            names[number] for number in (7, 7, 999)
        )
        consumer.leave([names[7], Queue(names[8])])
        assert len(consumer.positions()) == 998
