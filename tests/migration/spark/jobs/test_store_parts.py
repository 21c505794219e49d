"""Which records of a directory of RocketMQ's live: as when it is taken over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from migration.spark.jobs.store_parts import find_parts, read_liveness
from migration.steps.adopting import adopt
from store.light_queue import LMQ_PREFIX
from tests.support.written_broker import LAYOUT, BrokerStore

if TYPE_CHECKING:
    from pathlib import Path

LIGHT = f"{LMQ_PREFIX}device"


def test_a_directory_of_rocketmqs_lives_as_it_does_once_taken_over(tmp_path: Path) -> None:
    broker = BrokerStore(tmp_path / "store")
    for topic in ("gone", "again", "kept"):
        broker.create(topic)
        broker.put(topic, 5, light=(LIGHT,))
    broker.delete("gone")
    broker.delete("again")
    broker.delete(LIGHT)
    broker.create("again")
    broker.put("again", 3)
    root = broker.stop()
    before = read_liveness(find_parts(root))
    assert before.topics is not None
    assert set(before.topics) == {"again", "kept"}
    assert before.topics["kept"] == 0 < before.topics["again"]
    assert set(before.dead_light) == {LIGHT}
    adopt(root, layout=LAYOUT)
    after = read_liveness(find_parts(root))
    assert after.topics == before.topics
    assert after.dead_light == before.dead_light
    assert after.deletions == 0
