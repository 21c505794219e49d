"""The overview, its numbers and charts; RocksDB's page."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.console.pages.overview import CHARTS
from server.console.samples import LINES
from server.console.words import LANGUAGES, words_in
from server.errors import ServerStartingError

if TYPE_CHECKING:
    import pytest

    from tests.support.consoles import ConsoleClient
    from tests.support.serving import Served


def test_charts_draw_lines_that_are_sampled() -> None:
    assert {line for _, _, lines in CHARTS for line in lines} == set(LINES)


async def test_numbers_of_the_server(served: Served, console: ConsoleClient) -> None:
    for _ in range(3):
        message = pb.Message(topic="orders", body=b"x")
        await served.messages.Put(pb.PutRequest(message=message))
    page = await console.get("/")
    assert "State ready" in page.text
    assert "Messages put 3" in page.text
    assert "No call was rejected." in page.text


async def test_busiest_topics_and_latest_groups(served: Served, console: ConsoleClient) -> None:
    for topic, count in (("busy", 3), ("quiet", 1)):
        for _ in range(count):
            message = pb.Message(topic=topic, queue_id=0, body=b"x" * 100)
            await served.messages.Put(pb.PutRequest(message=message))
    await asyncio.to_thread(served.store.wait_visible)
    for group, offset in (("near", 3), ("far", 0)):
        position = pb.QueuePosition(topic="busy", queue_id=0, offset=offset)
        await served.groups.CommitOffsets(pb.CommitOffsetsRequest(group=group, offsets=[position]))
    page = await console.get("/")
    assert "busy 3 0 quiet 1 0" in page.text
    assert "far 3 near 0" in page.text
    assert f"Data directory: {served.store.config.root}" in page.text
    assert re.search(r"Disk free [\d.,]+ .iB", page.text)


async def test_the_overview_is_shown_while_the_store_opens(
    served: Served, console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starting() -> None:
        raise ServerStartingError("recovery", 0.5)

    monkeypatch.setattr(served.server._stage, "check_open", starting)
    page = await console.get("/")
    assert page.status == 200
    assert "Busiest" not in page.text


async def test_a_store_that_failed_is_seen(
    served: Served, console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.server._stage, "_failed", True)
    page = await console.get("/")
    assert "State not ready" in page.text
    assert 'class="tile bad"' in page.html


async def test_refusals_are_listed_most_first(served: Served, console: ConsoleClient) -> None:
    metrics = served.server._metrics
    for _ in range(2):
        metrics.refused("Put", "DISK_FULL", "RESOURCE_EXHAUSTED")
    metrics.refused("Pull", "UNKNOWN_TOPIC", "NOT_FOUND")
    assert "Put DISK_FULL 2 Pull UNKNOWN_TOPIC 1" in (await console.get("/")).text


async def test_the_charts_numbers(console: ConsoleClient) -> None:
    answer = await console.get("/live")
    columns = json.loads(answer.body)
    assert set(columns) == {"time", *LINES}
    assert len({len(column) for column in columns.values()}) == 1


async def test_rocksdb(served: Served, console: ConsoleClient) -> None:
    page = await console.get("/rocksdb")
    for text in ("Writes not held up", "Background errors 0", "Level", "default", "index"):
        assert text.lower() in page.text.lower()
    assert "kvcq.write_stopped" in page.text


async def test_snapshots_of_the_state(
    served: Served, console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = await console.get("/rocksdb")
    assert "Kept 0" in page.text
    assert "Newest taken" in page.text
    numbers = {
        "kept": 2.0,
        "newest_age_s": 90.0,
        "sealed_bytes": 2048.0,
        "replay_bytes": 3 << 20,
        "replay_s": 0.5,
    }
    named = {f"store.snapshots.{name}": value for name, value in numbers.items()}
    monkeypatch.setattr(served.store, "statistics", lambda: named)
    page = await console.get("/rocksdb")
    for text in ("Kept 2", "Newest taken 1 min 30 s", "2.0 KiB", "Log behind it 3.0 MiB"):
        assert text in page.text


async def test_every_column_of_rocksdb_has_words(served: Served) -> None:
    """`stalls_pending_compaction` stood on the page as it is."""
    columns = {
        name.rpartition(".")[2]
        for name in await asyncio.to_thread(served.store.statistics)
        if name.startswith("kvcq.") and name.count(".") == 2
    }
    assert len(columns) > 5
    for language in LANGUAGES:
        assert [one for one in columns if not words_in(language).has(f"rocksdb.{one}")] == []


async def test_rocksdb_that_is_held_up(
    served: Served, console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("write_stopped", "stopped"), ("delayed_write_bytes_per_s", "slowed")):
        numbers = {f"kvcq.{name}": 1.0, "kvcq.background_errors": 2.0}
        with monkeypatch.context() as patch:
            patch.setattr(served.store, "statistics", lambda numbers=numbers: numbers)
            page = await console.get("/rocksdb")
        assert f"Writes {text}" in page.text
        assert "Background errors 2" in page.text
