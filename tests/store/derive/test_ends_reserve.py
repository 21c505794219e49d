"""Room for the ends of queues on a full disk: a part is there or not, and no more than fits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.consume_queue import LastUnit
from store.derive import ends_reserve
from store.derive.ends_reserve import EndsReserve
from store.derive.queue_ends import noted_log_start
from store.errors import DiskFullError
from store.message import Message
from tests.support.fake_clock import FakeClock
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.message_store import MessageStore

SEGMENT_BYTES = 1 << 20
PAGES = [[LastUnit("A", 0, 5, 100), LastUnit("%LMQ%\u00e4", 0, 1 << 40, 1 << 50)], []]
MORE = [[LastUnit("B", 3, 0, 7)]]


@pytest.fixture
def reserve(tmp_path: Path) -> EndsReserve:
    made = EndsReserve(tmp_path / "ends", SEGMENT_BYTES)
    made.prepare()
    return made


def test_what_is_noted_is_read_in_order_until_it_is_cleared(
    reserve: EndsReserve, tmp_path: Path
) -> None:
    assert (reserve.log_start, list(reserve.pages())) == (None, [])
    assert reserve.add(1000, PAGES)
    assert reserve.add(2000, MORE)
    again = EndsReserve(tmp_path / "ends", SEGMENT_BYTES)
    assert (again.log_start, list(again.pages())) == (2000, PAGES + MORE)
    reserve.clear()
    assert (again.log_start, list(again.pages())) == (None, [])
    assert not any((tmp_path / "ends").read_bytes())
    assert reserve.add(3000, MORE)
    assert (again.log_start, list(again.pages())) == (3000, MORE)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 4095), bit=st.integers(0, 7))
def test_a_part_that_is_torn_or_damaged_is_not_there(
    reserve: EndsReserve, tmp_path: Path, cut: int, bit: int
) -> None:
    path = tmp_path / "ends"
    path.write_bytes(bytes(SEGMENT_BYTES // 32))
    reserve.add(1000, PAGES)
    first = reserve._end
    reserve.add(2000, MORE)
    data, end = path.read_bytes(), reserve._end
    at = first + cut % (end - first)
    path.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
    assert (reserve.log_start, list(reserve.pages())) == (1000, PAGES)
    path.write_bytes(data[:at].ljust(len(data), b"\0"))
    # Bytes that were zero anyway are no loss.
    assert reserve.log_start == (1000 if any(data[at:]) else 2000)


def test_a_turned_bit_where_nothing_is_noted_is_no_part(
    reserve: EndsReserve, tmp_path: Path
) -> None:
    path = tmp_path / "ends"
    for bit in range(16 * 8):
        data = bytearray(SEGMENT_BYTES // 32)
        data[bit // 8] = 1 << bit % 8
        path.write_bytes(data)
        assert (reserve.log_start, list(reserve.pages())) == (None, []), bit


def test_more_than_there_is_room_for_is_refused_and_leaves_what_is_there(
    reserve: EndsReserve, tmp_path: Path
) -> None:
    assert reserve.add(1000, PAGES)
    before = (tmp_path / "ends").read_bytes()

    def many() -> Iterator[list[LastUnit]]:
        for number in range(1 << 30):
            yield [LastUnit(f"{hash(str(number)):x}", 0, number, 0)]

    assert not reserve.add(2000, many())
    assert (tmp_path / "ends").read_bytes() == before


def test_without_a_file_nothing_is_noted(tmp_path: Path) -> None:
    assert not EndsReserve(tmp_path / "ends", SEGMENT_BYTES).add(1000, PAGES)


def test_layout_table_agrees_with_the_struct() -> None:
    rows = re.findall(r"^\| +(\d+) \| +(\d+) \| u32 ", ends_reserve.__doc__ or "", re.MULTILINE)
    assert rows == [("0", "4"), ("4", "4")]
    assert ends_reserve._HEADER.format == ">II"


# --- in a store: the metadata is full, the disk is not ------------------------------------------


def fill(store: MessageStore) -> None:
    store.put([Message("A", b"x"), Message("B", b"x")])
    for _ in range(200):
        store.put([Message("T", b"x" * 1000)])
    store.flush()


def kept(store: MessageStore) -> set[str]:
    return {unit.topic for page in store.metadata.last_units() for unit in page}


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    def refuse(*_args: object) -> None:
        raise DiskFullError("full")

    monkeypatch.setattr("kvcq.metadata_store.MetadataStore.put_last_units", refuse)
    return monkeypatch


@pytest.mark.parametrize("change", ["deleted", "goes on", "nothing"])
def test_what_changed_since_is_not_put_back(
    tmp_path: Path, full: pytest.MonkeyPatch, change: str
) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "store", clock) as store:
        fill(store)
        clock.advance(100 * 3600)
        assert store._services.retention.run_once(now=True) > 0
        full.undo()
        if change == "deleted":
            store.delete_topic("A")
        elif change == "goes on":
            store.put([Message("A", b"y")])
        store._services.retention.run_once()
        assert kept(store) == ({"A", "B"} if change == "nothing" else {"B"})


def test_where_there_is_room_for_one_segment_only_that_one_goes(
    tmp_path: Path, full: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "store", clock) as store:
        fill(store)
        clock.advance(100 * 3600)
        add = EndsReserve.add

        def little_room(self: EndsReserve, start: int, pages: Iterator[list[LastUnit]]) -> bool:
            return start == store.config.segment_bytes and add(self, start, pages)

        full.setattr(EndsReserve, "add", little_room)
        assert store._services.retention.run_once(now=True) == 1
        full.undo()
        assert store._services.retention.run_once(now=True) > 0
        assert kept(store) == {"A", "B"}
        ends = EndsReserve(tmp_path / "store" / "ends", store.config.segment_bytes)
        assert ends.log_start is None
        assert noted_log_start(store.metadata, ends) == store.log.start_offset


@pytest.mark.timeout(20)
def test_a_full_disk_is_not_waited_for(tmp_path: Path, full: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "store", clock) as store:
        fill(store)
        clock.advance(100 * 3600)
        full.setattr("store.base.busy._WAIT_S", 1e6)
        assert store._services.retention.run_once(now=True) > 0
