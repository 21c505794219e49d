"""Deliveries of shared groups, read by Spark from the log of a real store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from migration.spark.jobs import read_deliveries, read_events, read_lag
from store.groups import Edge
from store.message import Message
from store.metadata import SharedGroup
from store.state import ENDS, Ended, Finished
from tests.support.fake_clock import FakeClock
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from store.groups import Delivery
    from store.message_store import MessageStore

pytestmark = pytest.mark.spark

LIGHT = "%LMQ%l"


def receive(store: MessageStore, group: str, topic: str = "T", most: int = 99) -> list[Delivery]:
    return store.groups.receive(group, topic, max_messages=most, invisible_ms=10_000).deliveries


def acknowledge(store: MessageStore, group: str, *some: Delivery) -> None:
    store.groups.acknowledge(group, [each.handle for each in some])


def fill(root: Path, clock: FakeClock) -> None:
    """Second 0: put. 1: received. 2: one done, one given back, one held. 20: again, and dead."""
    with open_small(root, clock) as store:
        store.groups.create("g", SharedGroup(max_deliveries=2))
        store.groups.create("h")
        store.create_topics([("T", 1)])
        store.put([Message("T", b"%d" % n, light_queues=(LIGHT,)) for n in range(4)])
        clock.advance(1)
        done, back, held, _ = receive(store, "g")
        clock.advance(1)
        acknowledge(store, "g", done)
        store.groups.give_back("g", [back.handle], 0)
        store.groups.change_invisible("g", [held.handle], 100_000)
        clock.advance(18)
        receive(store, "g")
        acknowledge(store, "h", receive(store, "h", LIGHT, 1)[0])
        clock.advance(20)
        assert receive(store, "g") == []


def rows(frame: DataFrame, *columns: str) -> list[tuple[object, ...]]:
    return sorted((tuple(row) for row in frame.select(*columns).collect()), key=str)


def test_each_message_has_its_deliveries(spark: SparkSession, tmp_path: Path) -> None:
    clock = FakeClock()
    began_ms = clock.now_ms()
    fill(tmp_path / "store", clock)
    events = read_events(spark, tmp_path / "store").where("group = 'g'")
    of_second = events.where("queue_offset = 1")
    assert [
        (row.event, row.delivery, row.time_ms - began_ms, row.until_ms and row.until_ms - began_ms)
        for row in of_second.orderBy("physical_offset", "time_ms").collect()
    ] == [
        ("delivered", 1, 1000, 11_000),
        ("given back", 1, 2000, 2000),
        ("delivered", 2, 20_000, 30_000),
        ("dead", None, 40_000, None),
    ]
    deliveries = read_deliveries(spark, tmp_path / "store")
    found = {(row.group, row.topic, row.queue_offset): row.asDict() for row in deliveries.collect()}
    shown = (
        *("deliveries", "given_back", "held_on", "outcome"),
        *("waited_ms", "latency_ms"),
    )
    assert {place: tuple(row[name] for name in shown) for place, row in found.items()} == {
        ("g", "T", 0): (1, 0, 0, "acknowledged", 1000, 2000),
        ("g", "T", 1): (2, 1, 0, "dead", 1000, 40_000),
        ("g", "T", 2): (1, 0, 1, None, 1000, None),
        ("g", "T", 3): (2, 0, 0, "dead", 1000, 40_000),
        ("h", LIGHT, 0): (1, 0, 0, "acknowledged", 20_000, 20_000),
    }
    assert {row["stored_ms"] for row in found.values()} == {began_ms}
    lag = read_lag(spark, tmp_path / "store")
    assert rows(lag, "group", "topic", "messages", "done", "open", "never", "oldest_ms") == [
        ("g", "T", 4, 3, 1, 0, began_ms),
        ("h", LIGHT, 4, 1, 0, 3, began_ms),
    ]


def test_lives_of_topics_and_groups_are_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    clock = FakeClock()
    root = tmp_path / "store"
    with open_small(root, clock) as store:
        for life in range(3):
            store.groups.create("g")
            store.create_topics([("T", 1)])
            store.put([Message("T", b"a", light_queues=(LIGHT,)) for _ in range(life + 1)])
            clock.advance(1)
            acknowledge(store, "g", *receive(store, "g", most=life + 1))
            if life == 0:
                store.delete_topic("T")
            if life == 1:
                store.delete_group("g")
                store.delete_topic(LIGHT)
    deliveries = read_deliveries(spark, root)
    counts = deliveries.groupBy("topic_life", "group_life").count()
    # In the third life the topic has what the second one put, and the group is new.
    assert sorted(row["count"] for row in counts.collect()) == [1, 2, 3]
    assert deliveries.where("latency_ms < 0 or stored_ms is null").count() == 0
    lag = read_lag(spark, root)
    assert rows(lag, "group", "topic", "messages", "done", "never") == [("g", "T", 5, 3, 2)]


def test_what_a_reset_delivers_again_is_not_done_before_it_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = FakeClock()
    root = tmp_path / "store"
    with open_small(root, clock) as store:
        store.groups.create("g")
        store.create_topics([("T", 1)])
        store.put([Message("T", b"a")] * 3)
        acknowledge(store, "g", *receive(store, "g"))
        clock.advance(1)
        store.groups.reset("g", "T", None, Edge.EARLIEST)
        first, _ = receive(store, "g", most=2)
        acknowledge(store, "g", first)
    deliveries = read_deliveries(spark, root)
    assert rows(deliveries, "queue_offset", "deliveries", "outcome") == [
        (0, 2, "acknowledged"),
        (1, 2, None),
        (2, 1, "acknowledged"),
    ]
    assert rows(deliveries.where("done_ms is null"), "queue_offset") == [(1,)]
    lag = read_lag(spark, root)
    assert rows(lag, "group", "messages", "done", "open") == [("g", 3, 2, 1)]


def test_a_log_without_groups_has_none(spark: SparkSession, tmp_path: Path) -> None:
    with open_small(tmp_path / "store", FakeClock()) as store:
        store.put([Message("T", b"a")])
    assert read_deliveries(spark, tmp_path / "store").count() == 0
    assert read_lag(spark, tmp_path / "store").count() == 0


def test_every_end_of_a_delivery_has_a_name(spark: SparkSession, tmp_path: Path) -> None:
    """A message that was skipped as damaged is among them."""
    clock = FakeClock()
    with open_small(tmp_path / "store", clock) as store:
        store.groups.create("g")
        store.put([Message("T", b"a")] * len(Ended))
        receive(store, "g")
        ended = [Finished("g", "T", 0, offset, 1, how) for offset, how in enumerate(Ended)]
        store._appends.decide(lambda: ended)
        store.flush()
    deliveries = read_deliveries(spark, tmp_path / "store")
    assert sorted(row["outcome"] for row in deliveries.collect()) == sorted(map(str, ENDS))
