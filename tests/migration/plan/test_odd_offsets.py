"""Logs in which a broker gave a queue offset twice, or left some out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq.inspect import Kind, Remedy
from migration.check import check_store
from migration.migrator import open_migrator
from migration.plan.plan import plan_directory
from migration.release import release
from migration.steps.adopting import adopt
from store.base import no_progress
from store.errors import DamagedQueueError, StoreFormatError
from store.format.record import unpack_record
from store.light_queue import LMQ_PREFIX
from tests.support.migrating import ALL_KEYS, done
from tests.support.written_broker import LAYOUT, BrokerStore

if TYPE_CHECKING:
    from pathlib import Path

    from migration.steps.live import LiveMigration
    from store.message_store import MessageStore

LIGHT = f"{LMQ_PREFIX}device"


@pytest.fixture
def broker(tmp_path: Path) -> BrokerStore:
    made = BrokerStore(tmp_path / "store")
    made.create("Other", 2)
    made.put("Other", 5)
    made.create("T", 2)
    return made


def read(store: MessageStore, topic: str, queue_id: int = 0) -> dict[int, bytes]:
    """Bodies by queue offset, over what is missing for good."""
    at, end = store.bounds([(topic, queue_id)])[0]
    found: dict[int, bytes] = {}
    while at < end:
        try:
            pulled = store.pull(topic, queue_id, at, max_messages=1000)
        except DamagedQueueError as error:
            store._services.repair.wait()
            at = error.next_offset if error.next_offset is not None else at
            continue
        for offset, record in zip(pulled.queue_offsets, pulled.records, strict=True):
            found[offset] = unpack_record(record).body
        at = pulled.next_offset
    return found


def goes_all_the_way_and_back(root: Path, expected: dict[int, set[bytes]]) -> None:
    """At each offset one of the bodies is read, whatever the queues are read from."""

    def check(live: LiveMigration) -> None:
        found = read(live.on.store, "T")
        assert found.keys() == expected.keys()
        assert all(found[offset] in bodies for offset, bodies in expected.items())

    adopt(root, layout=LAYOUT)
    with open_migrator(root) as migrator:
        check(migrator.live)
        done(migrator.live.start())
        done(migrator.live.verify(ALL_KEYS))
        assert list(migrator.live.differences) == []
        migrator.live.cutover()
        check(migrator.live)
    assert [each for each in check_store(root) if each.is_fault] == []
    with open_migrator(root) as migrator:
        migrator.live.finish()
        for _ in range(2):
            done(migrator.live.rollback())
        done(migrator.live.verify(ALL_KEYS))
        assert list(migrator.live.differences) == []
        check(migrator.live)
        done(migrator.live.rollback())
        check(migrator.live)
    assert [each for each in check_store(root) if each.is_fault] == []
    release(root)


@pytest.mark.parametrize("again", [[2], [2, 2], [1, 2]])
def test_an_offset_given_twice_costs_its_second_message_and_no_other(
    broker: BrokerStore, again: list[int]
) -> None:
    """apache/rocketmq#2865. It was taken for a topic deleted and made again: of seven messages
    three were left, and the topic's other queues and light queues went with the rest."""
    first = broker.put("T", 3, light=(LIGHT,))
    broker.put("T", 2, queue_id=1)
    twice = [row for offset in again for row in broker.put("T", offset=offset)]
    last = broker.put("T", 3, light=(LIGHT,), offset=3)
    expected = {row.queue_offset: {row.entry.body} for row in (*first, *last)}
    for row in twice:
        expected[row.queue_offset].add(row.entry.body)
    root = broker.stop()
    plan = plan_directory(root, LAYOUT, no_progress)
    assert (plan.blocking, plan.dead, plan.faults) == ((), (), [])
    (odd,) = [each for each in plan.findings if each.kind is Kind.REPEATED_OFFSET]
    assert (odd.topic, odd.queue_id, odd.count, odd.remedy) == ("T", 0, len(again), Remedy.IGNORE)
    goes_all_the_way_and_back(root, expected)


def test_offsets_left_out_are_blank_and_what_is_behind_them_is_read(broker: BrokerStore) -> None:
    """apache/rocketmq#6570: the broker writes each later unit one index too low. The plan said that
    this queue would be rebuilt; the start failed half-way, and nothing opened the directory."""
    first = broker.put("T", 40)
    last = broker.put("T", 40, offset=43)
    expected = {row.queue_offset: {row.entry.body} for row in (*first, *last)}
    root = broker.stop()
    plan = plan_directory(root, LAYOUT, no_progress)
    assert (plan.blocking, plan.dead) == ((), ())
    assert {(each.topic, each.queue_id) for each in plan.faults} == {("T", 0)}
    (odd,) = [each for each in plan.findings if each.kind is Kind.SKIPPED_OFFSET]
    assert (odd.topic, odd.queue_id, odd.count) == ("T", 0, 3)
    goes_all_the_way_and_back(root, expected)


def test_a_name_that_no_directory_can_have_is_in_the_way_before_anything_is_changed(
    tmp_path: Path,
) -> None:
    """A broker with RocksDB takes it. The start failed half-way on it, and nothing opened the
    directory."""
    broker = BrokerStore(tmp_path / "store")
    broker.create("T")
    broker.put("T", 3, light=(f"{LMQ_PREFIX}a/b",))
    root = broker.kill(0, without=(("T", 0), (f"{LMQ_PREFIX}a/b", 0)))
    plan = plan_directory(root, LAYOUT, no_progress)
    assert len(plan.blocking) == 1
    assert "'%LMQ%a/b' cannot be kept in files" in plan.blocking[0]
    before = sorted(each.name for each in root.iterdir())
    with pytest.raises(StoreFormatError, match="Nothing was changed"):
        adopt(root, layout=LAYOUT)
    assert sorted(each.name for each in root.iterdir()) == before
