"""Which records of a directory of RocketMQ's live: as when it is taken over."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from migration.spark.errors import PipelineError
from migration.spark.jobs.store_parts import check_owns_queues, find_parts, read_liveness
from migration.state.phase import Phase
from migration.steps.adopting import adopt
from store.light_queue import LMQ_PREFIX
from store.state import STATE_TOPIC
from tests.support.migrating import LIGHT as LIGHT_QUEUE
from tests.support.migrating import advance, config, make_on_files, messages, open_store
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
    assert after.topics == {**before.topics, STATE_TOPIC: 0}
    assert after.dead_light == before.dead_light


@pytest.mark.parametrize(
    ("phase", "refused"),
    [
        (Phase.FILES, "has no queues in RocksDB"),
        (Phase.DOUBLE_WRITE, "is in a migration"),
        (Phase.ROCKSDB, "is in a migration"),
        (Phase.FINISHED, None),
    ],
)
def test_queues_are_replaced_only_where_no_files_have_them_as_well(
    tmp_path: Path, phase: Phase, refused: str | None
) -> None:
    make_on_files(tmp_path / "store")
    with open_store(config(tmp_path / "store")) as store:
        store.put(messages(0, 50))
        advance(store, phase)
    parts = find_parts(tmp_path / "store")
    if refused is None:
        check_owns_queues(parts)
        return
    with pytest.raises(PipelineError, match=refused):
        check_owns_queues(parts)


def test_a_store_that_was_killed_lives_as_its_log_says(tmp_path: Path) -> None:
    """Its database is behind, or lost: the snapshot and the log say the same."""
    root = tmp_path / "store"
    with open_store(config(root)) as store:
        store.put(messages(0, 50))
        store.snapshots.take()
        store.delete_topics(["orders", LIGHT_QUEUE])
        store.put(messages(50, 10))
        store.flush()
        store.create_topics([("made", 1)])
        parts = find_parts(root)
        living = read_liveness(parts)  # while it runs
        assert living.topics is not None
        assert living.topics["made"] > living.topics["orders"] > living.topics["payments"]
        assert set(living.dead_light) == {LIGHT_QUEUE}
    shutil.rmtree(root / "kvcq")
    lost = read_liveness(parts)
    assert (lost.topics, lost.dead_light) == (living.topics, living.dead_light)
