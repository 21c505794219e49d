"""Delayed messages and transactions, read by Spark from the log of a real store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from migration.spark.jobs import read_timers, read_transactions
from store.message import Message
from tests.store.held.test_timers import fire, open_by_hand
from tests.support.fake_clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_what_waits_has_its_outcome(spark: SparkSession, tmp_path: Path) -> None:
    clock = FakeClock()
    begin_ms = clock.now_ms()
    with open_by_hand(tmp_path, clock) as store:
        store.create_topics([("T", 1)])
        due = [begin_ms + after for after in (1000, 2000, 60_000)]
        handles = store.timers.put([Message("T", b"a")] * 3, due).handles
        halves = [store.halves.begin(Message("T", b"a"), "p") for _ in range(3)]
        clock.advance(1.5)
        fire(store)
        store.timers.recall("T", [handles[1]])
        store.halves.end(halves[0], commit=True)
        store.halves.end(halves[1], commit=False)
        clock.advance(10)
        store.halves.checked([check.half for check in store.halves.due("p")])
    timers = read_timers(spark, tmp_path / "store").orderBy("timer").collect()
    assert [
        (row.topic, row.due_ms - begin_ms, row.set_ms - begin_ms, row.outcome, row.late_ms)
        for row in timers
    ] == [
        ("T", 1000, 0, "fired", 500),
        ("T", 2000, 0, "recalled", None),
        ("T", 60_000, 0, None, None),
    ]
    assert {row.moves for row in timers} == {0}
    halves_found = read_transactions(spark, tmp_path / "store").orderBy("half").collect()
    assert [
        (row.group, row.topic, row.checks, row.given_up, row.outcome, row.open_ms)
        for row in halves_found
    ] == [
        ("p", "T", 0, False, "committed", 1500),
        ("p", "T", 0, False, "rolled back", 1500),
        ("p", "T", 1, False, None, None),
    ]
