"""Repair writes what a rebuild would write, beside everything else, and brings nothing back."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.protocol import KvBatch
from kvcq.tables.keys import UNITS, topic_range, unit_key, unit_prefix
from kvcq.tables.values import unpack_unit
from store.consume_queue import Boundary
from store.errors import (
    DamagedQueueError,
    OffsetOutOfRangeError,
    StoreBusyError,
    StoreFailedError,
)
from store.message import Message
from tests.support.checked import checked
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences, live_engine
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from store.consume_queue import DispatchRequest
    from store.message_store import MessageStore


@pytest.fixture
def store(tmp_path: Path, damaged: bool) -> Iterator[MessageStore]:
    with checked(open_small(tmp_path / "store"), damaged=damaged) as opened:
        for number in range(300):
            opened.put(
                [
                    Message("T", b"x" * 200, number % 2, light_queues=("%LMQ%a",)),
                    Message("U", b"x", keys=("k",)),
                ]
            )
        yield opened


def lose(store: MessageStore, topic: str, queue_id: int) -> None:
    prefix = unit_prefix(topic, queue_id)
    live_engine(store).write(KvBatch(delete_ranges=[(UNITS, prefix, prefix + b"\xff" * 8)]))


@pytest.mark.parametrize(("topic", "queue_id", "count"), [("T", 1, 150), ("%LMQ%a", 0, 300)])
def test_a_lost_queue_is_made_again(
    store: MessageStore, topic: str, queue_id: int, count: int
) -> None:
    lose(store, topic, queue_id)
    assert store._services.repair.rebuild(topic, queue_id).units == count
    assert differences(store) == []


def test_a_repair_of_what_is_whole_changes_nothing(store: MessageStore) -> None:
    store._services.repair.rebuild("T", 0)
    assert store._services.repair.rebuild("none", 0).units == 0
    assert differences(store) == []


def test_a_repair_brings_no_deleted_topic_back(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The rows are looked up, then the topic is deleted, then they would be written.
    rewrite = KvConsumeQueueStore.rewrite
    looked_up, go_on = threading.Event(), threading.Event()

    def slow(self: KvConsumeQueueStore, requests: Sequence[DispatchRequest]) -> None:
        looked_up.set()
        go_on.wait(30)
        rewrite(self, requests)

    monkeypatch.setattr(KvConsumeQueueStore, "rewrite", slow)
    store._services.repair.start("T", 0)
    assert looked_up.wait(30)
    deleting = threading.Thread(target=store.delete_topic, args=("T",))
    deleting.start()
    deleting.join(0.05)
    go_on.set()
    deleting.join()
    store._services.repair.wait()
    assert live_engine(store).scan(UNITS, *topic_range("T")) == []
    assert differences(store) == []


def test_one_repair_at_a_time_and_none_after_the_end(store: MessageStore) -> None:
    lose(store, "T", 0)
    store._services.repair.start("T", 0)
    store._services.repair.wait()
    assert store._services.repair.done == 1
    store._services.repair.stop()
    store._services.repair.start("T", 0)
    store._services.repair.wait()
    assert store._services.repair.done == 1


def test_a_repair_that_met_a_stall_is_tried_again(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stalled(*_: object) -> None:
        raise StoreBusyError("write stall")

    lose(store, "T", 0)
    with monkeypatch.context() as patch:
        patch.setattr(KvConsumeQueueStore, "rewrite", stalled)
        store._services.repair.start("T", 0)
        store._services.repair.wait()
    assert store._services.repair.done == 0
    with pytest.raises(DamagedQueueError):
        store.pull("T", 0, 0)
    store._services.repair.wait()
    assert len(store.pull("T", 0, 0).records) == 32


def damage(store: MessageStore, topic: str, queue_id: int, offset: int) -> None:
    """Flip a bit in the body of the record."""
    unit = unpack_unit(live_engine(store).get(UNITS, unit_key(topic, queue_id, offset)) or b"")
    segment = store.log._segments.find(unit.physical_offset)
    assert segment is not None
    segment.buffer[unit.physical_offset - segment.start_offset + 90] ^= 1


@pytest.mark.damages
def test_a_damaged_record_costs_a_repair_its_own_message_and_no_other(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    damage(store, "U", 0, 7)
    damage(store, "T", 1, 20)
    lose(store, "T", 1)
    with pytest.raises(DamagedQueueError):
        store.pull("T", 1, 0)
    store._services.repair.wait()
    assert store._services.repair.done == 1
    assert caplog.text.count("left out of the repair") == 2
    assert len(store.pull("T", 1, 0, max_messages=99).records) == 20
    assert len(store.pull("T", 1, 21, max_messages=999).records) == 129


def test_messages_before_a_unit_that_points_elsewhere_are_read(store: MessageStore) -> None:
    other = live_engine(store).get(UNITS, unit_key("T", 1, 3)) or b""
    live_engine(store).write(KvBatch(puts={UNITS: [(unit_key("T", 1, 20), other)]}))
    pulled = store.pull("T", 1, 15, max_messages=32)
    assert pulled.queue_offsets == [15, 16, 17, 18, 19]
    with pytest.raises(DamagedQueueError, match="another message") as met:
        store.pull("T", 1, 20)
    assert met.value.queue_offset == 20
    store._services.repair.wait()
    assert store.pull("T", 1, 20).queue_offsets[0] == 20


@pytest.mark.damages
def test_after_a_rebuild_in_vain_a_reader_is_told_where_to_read_on(store: MessageStore) -> None:
    for offset in (20, 21):
        damage(store, "T", 1, offset)
        live_engine(store).write(KvBatch(deletes=[(UNITS, unit_key("T", 1, offset))]))
    with pytest.raises(DamagedQueueError) as met:
        store.pull("T", 1, 20)
    assert met.value.next_offset is None
    store._services.repair.wait()
    with pytest.raises(DamagedQueueError) as met:
        store.pull("T", 1, 20)
    assert met.value.next_offset == 22
    assert store.pull("T", 1, 22).queue_offsets[0] == 22


@pytest.mark.parametrize("gone", [(74, 75), (0, 1), (148, 149), tuple(range(60, 90))])
def test_a_search_by_time_passes_over_what_is_missing_for_good(
    tmp_path: Path, gone: tuple[int, ...]
) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "timed", clock=clock) as store:
        for _ in range(150):
            store.put([Message("T", b"x" * 200, 0)])
            clock.advance(0.01)
        times = [unit.store_time_ms for _, unit in store.queues.read_units("T", 0, 0, 150)]
        for offset in gone:
            damage(store, "T", 0, offset)
            live_engine(store).write(KvBatch(deletes=[(UNITS, unit_key("T", 0, offset))]))

        def search(wanted_ms: int, boundary: Boundary) -> int:
            try:
                return store.search_time("T", 0, wanted_ms, boundary)
            except DamagedQueueError:
                store._services.repair.wait()  # in vain
                return store.search_time("T", 0, wanted_ms, boundary)

        with pytest.raises(DamagedQueueError):
            store.pull("T", 0, gone[0])
        store._services.repair.wait()
        low = store.bounds([("T", 0)])[0].min_offset
        left = [offset for offset in range(150) if offset not in gone]
        for wanted in range(times[0] - 5, times[-1] + 15, 5):
            lower = next((at for at in left if times[at] >= wanted), 150)
            upper = next((at for at in reversed(left) if times[at] <= wanted), low)
            assert search(wanted, Boundary.LOWER) == lower
            assert search(wanted, Boundary.UPPER) == upper


@pytest.mark.damages
def test_a_unit_whose_record_is_damaged_is_looked_for_once_and_others_again(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    damage(store, "T", 1, 20)
    live_engine(store).write(KvBatch(deletes=[(UNITS, unit_key("T", 1, 20))]))
    for _ in range(3):
        with pytest.raises(DamagedQueueError):
            store.pull("T", 1, 20)
        store._services.repair.wait()
    assert store._services.repair.done == 1
    assert "1 records of the log are damaged" in caplog.text
    live_engine(store).write(KvBatch(deletes=[(UNITS, unit_key("T", 1, 30))]))
    with pytest.raises(DamagedQueueError):
        store.pull("T", 1, 30)
    store._services.repair.wait()
    assert store._services.repair.done == 2
    assert store.pull("T", 1, 30, max_messages=1).queue_offsets == [30]


# --- the front of a queue ---------------------------------------------------------------------


@pytest.mark.parametrize(("topic", "queue_id"), [("T", 1), ("%LMQ%a", 0)])
def test_units_lost_at_the_front_are_damage_and_not_expiry(
    store: MessageStore, topic: str, queue_id: int
) -> None:
    end = unit_key(topic, queue_id, 5)
    live_engine(store).write(KvBatch(delete_ranges=[(UNITS, unit_prefix(topic, queue_id), end)]))
    assert store.bounds([(topic, queue_id)])[0].min_offset == 0
    with pytest.raises(DamagedQueueError):
        store.pull(topic, queue_id, 0)
    store._services.repair.wait()
    assert store.pull(topic, queue_id, 0, max_messages=9).queue_offsets == list(range(9))
    assert differences(store) == []
    live_engine(store).write(KvBatch(delete_ranges=[(UNITS, unit_prefix(topic, queue_id), end)]))
    store.queues._min_offsets.clear()  # type: ignore[attr-defined]
    with pytest.raises(DamagedQueueError):
        store.search_time(topic, queue_id, 0, Boundary.LOWER)
    store._services.repair.wait()
    assert store.search_time(topic, queue_id, 0, Boundary.LOWER) == 0


@pytest.mark.damages
def test_a_front_whose_record_is_damaged_does_not_count_as_expired(store: MessageStore) -> None:
    damage(store, "T", 1, 0)
    end = unit_key("T", 1, 2)
    live_engine(store).write(KvBatch(delete_ranges=[(UNITS, unit_prefix("T", 1), end)]))
    for _ in range(2):
        with pytest.raises(DamagedQueueError):
            store.pull("T", 1, 0)
        store._services.repair.wait()
    assert store._services.repair.done == 1
    assert store.bounds([("T", 1)])[0].min_offset == 0
    assert store.pull("T", 1, 1, max_messages=2).queue_offsets == [1, 2]


def test_a_queue_that_begins_later_in_its_log_is_served_from_there(store: MessageStore) -> None:
    # As it may be in a log that another writer made.
    store.create_topics([("V", 1)])
    store.put([Message("T", b"x")])
    store.log.hot_queues.warm([("V", 0)], [], store.log.appended_offset)
    store.log.hot_queues.young.queues["V", 0] = 5
    store.put([Message("V", b"5"), Message("V", b"6")])
    with pytest.raises(DamagedQueueError):
        store.pull("V", 0, 0)
    store._services.repair.wait()
    assert store.bounds([("V", 0)])[0] == (5, 7)
    with pytest.raises(OffsetOutOfRangeError):
        store.pull("V", 0, 0)
    assert store.pull("V", 0, 5).queue_offsets == [5, 6]
    assert store._services.repair.done == 1


def test_a_queue_older_than_the_log_begins_where_the_log_does(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "store", clock, reserved_hours=1) as store:
        for _ in range(40):
            store.put([Message("T", b"x" * 4000)])
            clock.advance(600)
        store.flush()
        store._services.retention.run_once(now=True)
        low, high = store.bounds([("T", 0)])[0]
        assert 0 < low < high
        assert store.pull("T", 0, low).queue_offsets[0] == low
        assert store._services.repair.done == 0


def test_units_that_a_jump_of_the_clock_took_are_made_again(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "store", clock, reserved_hours=1, expiry_margin_s=10) as store:
        for _ in range(40):
            store.put([Message("T", b"x" * 4000, light_queues=("%LMQ%a",))])
            clock.advance(600)
        store.flush()
        store._services.retention.run_once(now=True)
        assert store.log.start_offset > 0
        assert store.queues.statistics()["filter_armed"] == 1
        before = differences(store)
        # RocksDB has the machine's clock, which no test can move: the units are taken by hand.
        low = store.bounds([("T", 0)])[0].min_offset
        taken = [
            (UNITS, unit_key(name, 0, at)) for name in ("T", "%LMQ%a") for at in (low, low + 1)
        ]
        live_engine(store).write(KvBatch(deletes=taken))
        clock.jump(30_000)
        store.maintain()
        store._services.repair.wait()
        assert differences(store) == before
        assert store._services.repair.done == 1
        store.maintain()
        store._services.repair.wait()
        assert store._services.repair.done == 1  # told once


def test_units_that_are_owed_stay_owed_over_errors_and_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.derive.repair._AGAIN_S", 0.0)
    clock = FakeClock()
    root = tmp_path / "store"

    def failing(*_: object) -> None:
        raise StoreFailedError("once")

    with open_small(root, clock, reserved_hours=1, expiry_margin_s=10) as store:
        for _ in range(40):
            store.put([Message("T", b"x" * 4000)])
            clock.advance(600)
        store.flush()
        store._services.retention.run_once(now=True)
        before = differences(store)
        low = store.bounds([("T", 0)])[0].min_offset
        live_engine(store).write(KvBatch(deletes=[(UNITS, unit_key("T", 0, low))]))
        clock.jump(30_000)
        with monkeypatch.context() as patch:
            patch.setattr(KvConsumeQueueStore, "rewrite", failing)
            for _ in range(2):
                store.maintain()
                store._services.repair.wait()
        assert (store._services.repair.done, differences(store) == before) == (0, False)
    with open_small(root, clock, reserved_hours=1, expiry_margin_s=10) as store:
        store.maintain()
        store._services.repair.wait()
        assert (store._services.repair.done, differences(store)) == (1, before)
        store.maintain()
    with open_small(root, clock, reserved_hours=1, expiry_margin_s=10) as store:
        store.maintain()
        store._services.repair.wait()
        assert store._services.repair.done == 0
