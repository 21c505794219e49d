"""Reads: nothing is written, nothing skipped, and an error is never an empty answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq.engine.protocol import KvBatch
from kvcq.tables.keys import INDEX, UNITS, unit_key
from kvcq.tables.values import expiry_stamp, unpack_unit
from store.consume_queue import Boundary
from store.errors import (
    CorruptHitError,
    CorruptRecordError,
    DamagedQueueError,
    InvalidArgumentError,
    OffsetOutOfRangeError,
    StoreError,
    UnknownTopicError,
)
from store.format.record import unpack_record
from store.message import Message, PullStatus
from store.reads import TagFilter
from tests.support.checked import checked
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import live_engine
from tests.support.rows import index_key, pack_unit
from tests.support.stores import SEGMENT_BYTES, open_small
from tests.support.tree import tree_digest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.message_store import MessageStore


@pytest.fixture
def store(tmp_path: Path, damaged: bool) -> Iterator[MessageStore]:
    with checked(open_small(tmp_path / "store"), damaged=damaged) as opened:
        opened.put(
            [
                Message("T", b"%d" % n, tag="t", keys=("k",), light_queues=("%LMQ%a",))
                for n in range(9)
            ]
        )
        yield opened


def test_reads_leave_the_directory_as_it_is(store: MessageStore) -> None:
    store.flush()
    before = tree_digest(store.config.root)
    for topic, queue_id in (("T", 0), ("T", 3), ("%LMQ%a", 0), ("none", 0), ("T", 99)):
        for offset in (-1, 0, 5, 9, 10):
            try:
                store.pull(topic, queue_id, offset, tag_filter="t || u")
                store.bounds([(topic, queue_id)])
                store.search_time(topic, queue_id, offset, Boundary.UPPER)
                store.committed_offsets("g", [(topic, queue_id)])
            except StoreError:
                continue
    store.query("T", "k")
    store.query("T", "none")
    store.get(0)
    store.list_topics("", None, 9)
    store.list_light_queues("", None, 9)
    store.list_groups(None, 9)
    store.list_committed("g", None, 9)
    store.statistics()
    assert tree_digest(store.config.root) == before


@pytest.mark.parametrize(
    ("expression", "tags"),
    [("", None), ("*", None), (" * ", None), ("a", {"a"}), (" a||b || c ", {"a", "b", "c"})],
)
def test_tag_expressions(expression: str, tags: set[str] | None) -> None:
    parsed = TagFilter.parse(expression)
    assert (None if parsed is None else parsed.tags) == tags


@pytest.mark.parametrize("expression", ["||", "a||", "a || * ", "||b"])
def test_bad_tag_expressions(expression: str) -> None:
    with pytest.raises(InvalidArgumentError, match="tag_filter"):
        TagFilter.parse(expression)


def test_a_long_filtered_pull_ends_and_goes_on(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.reads.reader._MAX_EXAMINED", 4)
    monkeypatch.setattr("store.reads.reader._UNITS_A_READ", 3)
    at = 0
    steps = []
    while at < 9:
        pulled = store.pull("T", 0, at, tag_filter="other")
        assert pulled.status is PullStatus.NO_MATCH
        at = pulled.next_offset
        steps.append(at)
    assert steps == [4, 8, 9]
    assert len(store.pull("T", 0, 0, max_messages=9).records) == 9


def test_a_unit_of_another_message_is_damage(store: MessageStore) -> None:
    engine = live_engine(store)
    other = engine.get(UNITS, unit_key("T", 0, 5)) or b""
    engine.write(KvBatch(puts={UNITS: [(unit_key("T", 0, 4), other)]}))
    with pytest.raises(DamagedQueueError) as caught:
        store.pull("T", 0, 4)
    assert caught.value.queue_offset == 4
    store._services.repair.wait()
    assert unpack_record(store.pull("T", 0, 4).records[0]).body == b"4"


def test_a_unit_that_points_outside_the_log_is_damage(store: MessageStore) -> None:
    engine = live_engine(store)
    unit = unpack_unit(engine.get(UNITS, unit_key("T", 0, 4)) or b"")
    for changed in (unit._replace(physical_offset=1 << 40), unit._replace(record_size=1 << 30)):
        engine.write(KvBatch(puts={UNITS: [(unit_key("T", 0, 4), pack_unit(changed))]}))
        with pytest.raises(DamagedQueueError):
            store.pull("T", 0, 4)
        store._services.repair.wait()
        assert len(store.pull("T", 0, 4).records) == 5


def test_what_comes_before_damage_is_served(store: MessageStore) -> None:
    unit = unpack_unit(live_engine(store).get(UNITS, unit_key("T", 0, 4)) or b"")
    segment = store.log._segments.last
    assert segment is not None
    segment.buffer[unit.physical_offset + 90] ^= 1
    pulled = store.pull("T", 0, 0)
    assert pulled.queue_offsets == [0, 1, 2, 3]
    assert pulled.next_offset == 4
    with pytest.raises(CorruptRecordError) as caught:
        store.pull("T", 0, pulled.next_offset)
    assert caught.value.physical_offset == unit.physical_offset
    assert len(store.pull("T", 0, 5).records) == 4
    segment.buffer[unit.physical_offset + 90] ^= 1


@pytest.mark.parametrize("limit", [1, 2, 9])
@pytest.mark.parametrize("damaged_at", [{0}, {4}, {8}, {3, 4}, set(range(9))])
def test_a_query_goes_on_behind_records_that_cannot_be_read(
    store: MessageStore, limit: int, damaged_at: set[int]
) -> None:
    segment = store.log._segments.last
    assert segment is not None
    units = [
        unpack_unit(live_engine(store).get(UNITS, unit_key("T", 0, n)) or b"") for n in range(9)
    ]
    for at in damaged_at:
        segment.buffer[units[at].physical_offset + 90] ^= 1
    found: list[bytes] = []
    lost: list[int] = []
    cursor: bytes | None = None
    while True:
        try:
            page = store.query("T", "k", limit=limit, cursor=cursor)
        except CorruptHitError as error:
            lost.append(error.physical_offset)
            cursor = error.next_cursor
            continue
        found += [unpack_record(record).body for record in page.records]
        assert page.records or page.complete
        if page.complete:
            break
        cursor = page.cursor
    assert found == [b"%d" % n for n in range(9) if n not in damaged_at]
    assert lost == [units[at].physical_offset for at in sorted(damaged_at)]
    for at in damaged_at:
        segment.buffer[units[at].physical_offset + 90] ^= 1


@pytest.mark.damages
def test_an_index_row_that_lies_is_damage(store: MessageStore) -> None:
    engine = live_engine(store)
    unit = unpack_unit(engine.get(UNITS, unit_key("T", 0, 4)) or b"")
    stamp = expiry_stamp(unit.store_time_ms)
    for key, place in (
        ("x", unit.physical_offset),
        ("y", unit.physical_offset + 1),
        ("z", 1 << 40),
    ):
        row = (index_key("T", key, unit.store_time_ms, place), stamp)
        engine.write(KvBatch(puts={INDEX: [row]}))
        with pytest.raises(CorruptRecordError, match="index"):
            store.query("T", key)
    store.create_topics([("U", 1)])
    assert store.query("U", "k").records == []


@pytest.mark.parametrize("cursor", [b"x", b"\xff" * 16, bytes(8) + b"\x7f" + b"\xff" * 7])
def test_a_cursor_of_others_is_refused(store: MessageStore, cursor: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match="cursor"):
        store.query("T", "k", cursor=cursor)


def test_expired_offsets_are_out_of_range_and_skipped_by_key(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "store", clock, reserved_hours=1) as store:
        while store.log.appended_offset < 2 * SEGMENT_BYTES:
            store.put([Message("T", b"x" * 5000, keys=("k",), light_queues=("%LMQ%a",))])
        first = store.pull("T", 0, 0, max_messages=1).records[0]
        store.put([Message("Quiet", b"x")])
        store.flush()
        clock.advance(7200)
        store.put([Message("Other", b"x")])
        assert store._services.retention.run_once(now=True) == 2
        low, high = store.bounds([("T", 0)])[0]
        assert 0 < low < high
        with pytest.raises(OffsetOutOfRangeError) as caught:
            store.pull("T", 0, low - 1)
        assert (caught.value.min_offset, caught.value.max_offset) == (low, high)
        assert store.bounds([("%LMQ%a", 0)])[0] == (low, high)
        assert len(store.query("T", "k", limit=100).records) == high - low
        assert len(store.query("T", "k", limit=1).records) == 1
        with pytest.raises(StoreError):
            store.get(unpack_record(first).physical_offset)
        assert store.search_time("T", 0, 0, Boundary.LOWER) == low
        assert store.search_time("T", 0, 0, Boundary.UPPER) == low


def test_a_queue_that_expired_whole_goes_on_counting(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "store", clock, reserved_hours=1) as store:
        store.put([Message("T", b"x", light_queues=("%LMQ%a",))] * 3)
        while store.log.appended_offset < 2 * SEGMENT_BYTES:
            store.put([Message("Filler", b"x" * 5000)])
        clock.advance(7200)
        store.put([Message("Filler", b"x")])
        store.flush()
        assert store._services.retention.run_once(now=True) == 2
        for topic in ("T", "%LMQ%a"):
            assert store.bounds([(topic, 0)])[0] == (3, 3)
            assert store.pull(topic, 0, 3).status is PullStatus.NO_NEW_MESSAGE
            assert store.search_time(topic, 0, 0, Boundary.LOWER) == 3
        done = store.put([Message("T", b"x", light_queues=("%LMQ%a",))])
        assert done.placed[0].queue_offset == 3
        assert done.placed[0].light_queue_offsets == (3,)
        with pytest.raises(UnknownTopicError):
            store.pull("none", 0, 0)
