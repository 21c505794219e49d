"""Topics and light queues that RocketMQ deleted, or deleted and made again, before a migration."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from kvcq.inspect import Kind
from migration.files.handles import FileHandles
from migration.files.index import IndexFileSet
from migration.files.record_lookup import RecordLookup
from migration.fill import bulk as bulk_backfill
from migration.migrator import open_migrator
from migration.plan.plan import plan_directory
from migration.release import release
from migration.state import SideName
from migration.state.phase import Phase
from migration.steps.adopting import adopt
from store.base import SystemClock, no_progress
from store.errors import StoreFormatError
from store.format.record import dispatch_request, unpack_record
from store.light_queue import LMQ_PREFIX
from tests.support.migrating import ALL_KEYS, add_units, done
from tests.support.written_broker import LAYOUT, SEGMENT_BYTES, BrokerStore

if TYPE_CHECKING:
    from pathlib import Path

    from migration.plan.plan import Plan
    from store.message_store import MessageStore

LIGHT = f"{LMQ_PREFIX}$parent$lite"  # as RocketMQ names its lite topics


def planned(root: Path) -> Plan:
    return plan_directory(root, LAYOUT, no_progress)


def take_over(root: Path) -> None:
    adopt(root, layout=LAYOUT)


def read(store: MessageStore, topic: str, queue_id: int = 0) -> list[bytes]:
    low, high = store.bounds([(topic, queue_id)])[0]
    found: list[bytes] = []
    while low < high:
        pulled = store.pull(topic, queue_id, low, max_messages=1000)
        found += [unpack_record(record).body for record in pulled.records]
        low = pulled.next_offset
    return found


def check_served(store: MessageStore, broker: BrokerStore) -> None:
    """What the broker's consumers read, from offset 0 on, and nothing else."""
    for topic, count in broker.topics.items():
        assert store.describe_topic(topic).queue_count == count
        for queue_id in range(count):
            assert read(store, topic, queue_id) == broker.bodies(topic, queue_id)
    assert {topic.name for topic in store.list_topics("", None, 100)} == set(broker.topics)
    light = {name for name, _ in broker.units if name.startswith(LMQ_PREFIX)}
    assert set(store.list_light_queues("", None, 100)) == light
    for name in light:
        assert read(store, name) == broker.bodies(name)


def goes_all_the_way_and_back(root: Path, broker: BrokerStore) -> None:
    take_over(root)
    with open_migrator(root) as migrator:
        store = migrator._store
        check_served(store, broker)
        done(migrator.live.start())
        done(migrator.live.verify(ALL_KEYS))
        assert list(migrator.live.differences) == []
        migrator.live.cutover()
        check_served(store, broker)
        migrator.live.finish()
        check_served(store, broker)
    with open_migrator(root) as migrator:
        check_served(migrator._store, broker)
        for _ in range(2):
            done(migrator.live.rollback())
        done(migrator.live.verify(ALL_KEYS))
        assert list(migrator.live.differences) == []
        check_served(migrator._store, broker)
        done(migrator.live.rollback())
    release(root)
    assert not (root / "store.json").exists()


@pytest.fixture
def broker(tmp_path: Path) -> BrokerStore:
    made = BrokerStore(tmp_path / "store")
    made.create("Other", 2)
    made.put("Other", 5)
    return made


def made_again(broker: BrokerStore, *counts: int) -> None:
    """Generations of T, one after the other, with so many messages."""
    for number, count in enumerate(counts):
        if number:
            broker.delete("T")
        broker.create("T")
        broker.put("T", count)
        broker.put("Other", 3, queue_id=1)


@pytest.mark.parametrize("counts", [(30, 7), (7, 30), (12, 12), (30, 7, 19)])
@pytest.mark.parametrize("killed", [False, True])
def test_a_topic_made_again_is_taken_over_with_its_last_generation_alone(
    broker: BrokerStore, counts: tuple[int, ...], *, killed: bool
) -> None:
    made_again(broker, *counts)
    last = broker.units["T", 0]
    root = broker.kill(last[-3].physical_offset) if killed else broker.stop()
    plan = planned(root)
    assert plan.blocking == ()
    assert [(each.name, each.records, each.generations) for each in plan.dead] == [
        ("T", sum(counts[:-1]), len(counts))
    ]
    assert plan.dead[0].live_from is not None
    assert plan.dead[0].live_from <= last[0].physical_offset
    faults = {finding.kind for finding in plan.faults}
    assert faults == ({Kind.ENDS_EARLY} if killed else set())
    goes_all_the_way_and_back(root, broker)


def test_a_generation_that_had_no_units_yet_when_the_broker_was_killed_lives(
    broker: BrokerStore,
) -> None:
    made_again(broker, 20, 6)
    root = broker.kill(broker.units["T", 0][0].physical_offset)
    assert not (root / "consumequeue" / "T").exists()
    goes_all_the_way_and_back(root, broker)


def test_a_topic_deleted_for_good_stays_gone(broker: BrokerStore) -> None:
    made_again(broker, 20)
    broker.delete("T")
    plan = planned(root := broker.stop())
    assert plan.is_clean
    assert [tuple(each) for each in plan.dead] == [("T", 20, 1, None)]
    goes_all_the_way_and_back(root, broker)


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4)])
def test_a_topic_made_again_with_another_count_of_queues(
    broker: BrokerStore, before: int, after: int
) -> None:
    broker.create("T", before)
    for _ in range(3):
        for queue_id in range(before):
            broker.put("T", 2, queue_id=queue_id)
    broker.delete("T")
    broker.create("T", after)
    for queue_id in range(after):
        broker.put("T", 5, queue_id=queue_id)
    root = broker.stop()
    assert planned(root).is_clean
    goes_all_the_way_and_back(root, broker)


def test_queues_that_were_not_written_to_again_are_empty(broker: BrokerStore) -> None:
    broker.create("T", 4)
    for _ in range(4):
        for queue_id in range(4):
            broker.put("T", queue_id=queue_id)
    broker.delete("T")
    broker.create("T", 4)
    broker.put("T", 3, queue_id=2)
    root = broker.stop()
    assert planned(root).is_clean
    goes_all_the_way_and_back(root, broker)


def test_queues_beyond_the_configured_count_are_of_an_earlier_generation(
    broker: BrokerStore,
) -> None:
    broker.create("T", 4)
    broker.put("T", 3, queue_id=3)
    broker.delete("T")
    broker.create("T", 2)
    broker.put("T", 3, queue_id=1)
    root = broker.stop()
    assert planned(root).is_clean
    goes_all_the_way_and_back(root, broker)


def test_lost_queue_files_are_made_again_from_the_last_generation(broker: BrokerStore) -> None:
    made_again(broker, 30, 7)
    root = broker.stop(without=(("T", 0),))
    assert {finding.kind for finding in planned(root).faults} == {Kind.MISSING_QUEUE}
    goes_all_the_way_and_back(root, broker)


def test_all_queue_files_lost_leaves_the_last_generation(broker: BrokerStore) -> None:
    made_again(broker, 9, 20)
    broker.put("Other", 3, light=(LIGHT,))
    root = broker.stop()
    shutil.rmtree(root / "consumequeue")
    goes_all_the_way_and_back(root, broker)


def test_units_of_the_dead_behind_the_living_are_made_right(broker: BrokerStore) -> None:
    """A broker that dispatches an old piece of its log again leaves such."""
    broker.create("T")
    old = broker.put("T", 20)
    broker.delete("T")
    broker.create("T")
    broker.put("T", 6)
    served = list(broker.units["T", 0])
    broker.units["T", 0] = served + old[6:]
    root = broker.stop()
    broker.units["T", 0] = served
    assert Kind.FALLING_OFFSET in {finding.kind for finding in planned(root).faults}
    goes_all_the_way_and_back(root, broker)


def test_front_messages_that_expired_leave_the_generation_alive(broker: BrokerStore) -> None:
    made_again(broker, 10, 2000)
    root = broker.stop()
    segments = sorted((root / "commitlog").iterdir())
    start = int(segments[1].name)
    segments[0].unlink()
    for key in broker.units:
        broker.units[key] = [row for row in broker.units[key] if row.physical_offset >= start]
    first = broker.units["T", 0][0].queue_offset
    assert first > 0
    assert planned(root).dead == ()
    take_over(root)
    with open_migrator(root) as migrator:
        assert migrator._store.bounds([("T", 0)])[0] == (first, 2000)
        done(migrator.live.start())
        done(migrator.live.verify(ALL_KEYS))
        assert list(migrator.live.differences) == []
        assert read(migrator._store, "T") == broker.bodies("T")


def test_an_earlier_generation_whose_front_expired_is_dead(broker: BrokerStore) -> None:
    made_again(broker, 1000, 400)
    root = broker.stop()
    segments = sorted((root / "commitlog").iterdir())
    assert len(segments) > 2
    segments[0].unlink()
    del broker.units["Other", 0]
    dead = planned(root).dead
    assert [(each.name, each.generations) for each in dead] == [("T", 2)]
    assert 0 < dead[0].records < 1000
    take_over(root)
    with open_migrator(root) as migrator:
        done(migrator.live.start())
        done(migrator.live.verify(ALL_KEYS))
        assert list(migrator.live.differences) == []
        migrator.live.cutover()
        assert read(migrator._store, "T") == broker.bodies("T")


# --- light queues ------------------------------------------------------------------------------


@pytest.mark.parametrize("killed", [False, True])
def test_a_light_queue_deleted_and_made_again_has_its_last_generation(
    broker: BrokerStore, *, killed: bool
) -> None:
    broker.put("Other", 9, light=(LIGHT, f"{LMQ_PREFIX}kept"))
    broker.delete(LIGHT)
    broker.put("Other", 4, light=(LIGHT, f"{LMQ_PREFIX}kept"))
    root = broker.kill(broker.units[LIGHT, 0][2].physical_offset) if killed else broker.stop()
    assert [(each.name, each.records) for each in planned(root).dead] == [(LIGHT, 9)]
    goes_all_the_way_and_back(root, broker)


def test_a_light_queue_deleted_for_good_stays_gone(broker: BrokerStore) -> None:
    broker.put("Other", 9, light=(LIGHT, f"{LMQ_PREFIX}kept"))
    broker.delete(LIGHT)
    root = broker.stop()
    assert planned(root).is_clean
    goes_all_the_way_and_back(root, broker)


def test_a_light_queue_without_files_lives_when_the_broker_was_killed_too_soon(
    broker: BrokerStore,
) -> None:
    broker.put("Other", 9, light=(LIGHT,))
    root = broker.kill(broker.units[LIGHT, 0][0].physical_offset)
    assert Kind.MISSING_QUEUE in {finding.kind for finding in planned(root).faults}
    goes_all_the_way_and_back(root, broker)


def test_messages_of_a_deleted_topic_stay_in_their_light_queues(broker: BrokerStore) -> None:
    broker.create("T")
    broker.put("T", 6, light=(LIGHT,))
    broker.delete("T")
    broker.create("T")
    broker.put("T", 3, light=(LIGHT,))
    root = broker.stop()
    assert planned(root).is_clean
    goes_all_the_way_and_back(root, broker)


# --- what cannot be told -----------------------------------------------------------------------


def test_files_of_an_earlier_generation_are_in_the_way(broker: BrokerStore) -> None:
    broker.create("T")
    old = broker.put("T", 10)
    broker.delete("T")
    broker.create("T")
    broker.put("T", 4)
    broker.units["T", 0] = old
    root = broker.stop()
    assert "queue 0 of 'T'" in planned(root).blocking[0]
    with pytest.raises(StoreFormatError, match="Nothing was changed"):
        take_over(root)
    assert not (root / "migration.json").exists()
    shutil.rmtree(root / "consumequeue" / "T")
    assert planned(root).blocking == ()


def test_ghost_units_of_a_dead_generation_are_differences_of_their_side(
    broker: BrokerStore,
) -> None:
    made_again(broker, 12, 5)
    root = broker.stop()
    take_over(root)
    with open_migrator(root) as migrator:
        done(migrator.live.start())
        side = migrator.live.double.side(SideName.ROCKSDB)
        assert side is not None
        ghosts = [row for row in broker.log.rows if row.entry.topic == "T"][5:12]
        add_units(side.store, [dispatch_request(row.record, 0) for row in ghosts])
        done(migrator.live.verify(ALL_KEYS))
        assert {(each.side, each.topic) for each in migrator.live.differences} == {("rocksdb", "T")}
        assert len(migrator.live.differences) == len(ghosts)


def test_keys_of_an_earlier_generation_are_not_found(broker: BrokerStore) -> None:
    """Index files cannot forget single keys: those of the dead are in them."""
    broker.create("T")
    old = broker.put("T", 4, keys="k")
    broker.delete("T")
    broker.create("T")
    new = broker.put("T", 3, keys="k")
    root = broker.stop()
    lookup = RecordLookup(root / "commitlog", SEGMENT_BYTES)
    handles = FileHandles(8)
    index = IndexFileSet(root / "index", LAYOUT.index, handles, SystemClock(), lookup.store_time_ms)
    index.insert(
        [(row.physical_offset, row.entry.store_time_ms, "T", ("k",)) for row in (*old, *new)]
    )
    index.write_back()
    handles.close()
    lookup.close()
    assert planned(root).is_clean
    take_over(root)
    with open_migrator(root) as migrator:
        found = migrator._store.query("T", "k").records
        assert [unpack_record(record).body for record in found] == broker.bodies("T")
        done(migrator.live.start())
        done(migrator.live.verify(ALL_KEYS))
        assert list(migrator.live.differences) == []


# --- one admission -----------------------------------------------------------------------------


def test_the_process_of_a_backfill_admits_the_same(
    broker: BrokerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_backfill, "LEAST_BYTES", 1000)
    monkeypatch.setattr("migration.fill.catch_up._REST_BYTES", 100)
    made_again(broker, 40, 9)
    broker.put("Other", 9, light=(LIGHT,))
    broker.delete(LIGHT)
    broker.put("Other", 3, light=(LIGHT,))
    root = broker.stop()
    take_over(root)
    with open_migrator(root) as migrator:
        done(job := migrator.live.start())
        assert job.view().numbers["rows"] > 0
        done(migrator.live.verify(ALL_KEYS))
        assert list(migrator.live.differences) == []
        assert migrator.live.state.phase is Phase.VERIFIED
        migrator.live.cutover()
        check_served(migrator._store, broker)
