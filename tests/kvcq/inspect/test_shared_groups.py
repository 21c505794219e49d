"""The check of what shared groups have: each planted fault is found, and told in words."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq.engine import KvBatch
from kvcq.inspect import inspect_store
from kvcq.inspect.findings import Kind
from kvcq.inspect.shared_groups import SharedGroups
from kvcq.tables import STATE
from store.message import Message
from store.metadata import SharedGroup
from store.state import changes_of
from store.state.rows import ended_key, group_key, moved_key, reader_key, topic_key, window_key
from tests.support.checking import database
from tests.support.fake_clock import FakeClock
from tests.support.seeds import fewer
from tests.support.state import LETTERS_ENDED, WINDOW_ENTRIES, DictRows
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from kvcq.inspect.findings import Finding

DLQ = "%DLQ%g"
WINDOW = window_key("g", "T", 0)
LEASE = struct.Struct(">qQHqqqq")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Messages in flight, done, dead, moved and redriven; two groups, a light queue."""
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock, reserved_hours=1) as store:
        store.groups.create("g", SharedGroup(max_deliveries=1, backoff_ms=(5, 7)))
        store.groups.create("h")
        names = ("%LMQ%l",)
        store.put([Message("T", b"%d" % each, light_queues=names) for each in range(9)])
        store.commit_offsets("offsets", [("T", 0, 3)])
        store.groups.receive("g", "T", invisible_ms=1)
        clock.advance(1)
        store.groups.receive("g", "T")
        store.wait_visible()
        end = store.log.appended_offset
        store.rolling.keep_below(end, is_pressed=False)
        store.wait_visible()
        store.groups.redrive("g", [4, 5])
        store.wait_visible()
        store.put([Message("T", b"more") for _ in range(4)])
        store.groups.receive("g", "T", max_messages=4)
        found = store.groups.receive("h", "%LMQ%l", max_messages=5).deliveries
        store.groups.acknowledge("h", [found[1].handle, found[3].handle])
        store.groups.receive("h", "T", max_messages=2)
        store.groups.create("late", SharedGroup(from_latest=True))
        store.groups.receive("late", "T")
        store.groups.receive("late", "%LMQ%l")
        store.delete_group("late")
    assert faults(root) == []
    return root


def faults(root: Path) -> list[Finding]:
    return [each for each in inspect_store(root).findings if each.is_fault]


def row(root: Path, key: bytes) -> bytes:
    with database(root) as engine:
        found = engine.get(STATE, key)
        assert found is not None
        return found


def plant(root: Path, key: bytes, value: bytes | None) -> list[str]:
    """What the check says of this row then: all of it is of that row."""
    with database(root) as engine:
        engine.write(
            KvBatch(deletes=[(STATE, key)])
            if value is None
            else KvBatch(puts={STATE: [(key, value)]})
        )
    found = faults(root)
    assert {each.kind for each in found} <= {Kind.STATE}
    return [f"{each.place}: {each.expected}; {each.found}" for each in found]


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("count", fewer(4, 12))
@pytest.mark.parametrize("table", ["window", "light window", "group", "ended", "moved", "reader"])
def test_any_turned_bit_is_found(root: Path, table: str, count: int) -> None:
    key = {
        "window": WINDOW,
        "light window": window_key("h", "%LMQ%l", 0),
        "group": group_key("g"),
        "ended": ended_key(DLQ, 0),
        "moved": moved_key(DLQ, 0),
        "reader": reader_key("T", "g"),
    }[table]
    good = row(root, key)
    bits = range(0, 8 * len(good), max(1, 8 * len(good) // count)) if good else ()
    for bit in bits:
        assert plant(root, key, flipped(good, bit)), f"bit {bit}"
    assert plant(root, key, good + b"\1"), "a byte too many"
    assert plant(root, key, None), "a missing row"
    assert plant(root, key, good) == []


def test_a_lease_too_many_is_told_by_its_message(root: Path) -> None:
    good = row(root, WINDOW)
    (said,) = plant(root, WINDOW, good + LEASE.pack(2, 1, 3, 77, 500, 100, 0))
    assert "message 2 is done; message 2 is with the receiver of nonce 77" in said
    missing = plant(root, WINDOW, good[: -LEASE.size])
    assert len(missing) == LEASE.unpack(good[-LEASE.size :])[1].bit_count()
    assert all("is with the receiver" in each and each.endswith("is done") for each in missing)


def test_what_cannot_be_is_told_without_a_log_to_compare_with(root: Path) -> None:
    for path in (root / "snapshots").glob("*/seal*"):
        path.unlink()
    good = row(root, WINDOW)
    last = LEASE.unpack(good[-LEASE.size :])
    for fault, why in (
        (good + LEASE.pack(*last), "is in two leases"),
        (good + LEASE.pack(500, 1, 1, 7, 5, 5, 0), "message 500 is in flight, and the next is"),
        (good + LEASE.pack(1, 0, 1, 7, 5, 5, 0), "a lease of mask 0"),
        (b"\3" + good[1:], "a window of form 3"),
        (struct.pack(">Bq", 1, 1 << 40) + good[9:], "the end of the queue"),
    ):
        assert why in "\n".join(plant(root, WINDOW, fault))
    plant(root, WINDOW, good)
    assert "group 'g' is there" in "\n".join(plant(root, group_key("g"), None))


def test_rows_of_what_is_not_there(root: Path) -> None:
    good = row(root, WINDOW)
    said = "\n".join(plant(root, window_key("nobody", "T", 0), good))
    assert "group 'nobody' is there, and shared; it is not" in said
    assert "a row of group 'nobody' as a reader of 'T'; no row" in said
    plant(root, window_key("nobody", "T", 0), None)
    said = "\n".join(plant(root, window_key("offsets", "T", 0), good))
    assert "group 'offsets' is there, and shared; it is not" in said
    plant(root, window_key("offsets", "T", 0), None)
    said = "\n".join(plant(root, moved_key(DLQ, 7), struct.pack(">q", 0)))
    assert "a place of a dead letter that has not ended; 0, which has" in said
    plant(root, moved_key(DLQ, 7), row_or_none(root, moved_key(DLQ, 7)))
    said = "\n".join(plant(root, ended_key(DLQ, 5), b"\1"))
    assert "the end of the queue" in said


def row_or_none(root: Path, key: bytes) -> bytes | None:
    with database(root) as engine:
        return engine.get(STATE, key)


def test_a_fault_that_dispatch_and_replay_share_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are what the product's own code makes of the log, and wrong."""
    from store.state.windows import Window

    root = tmp_path / "store"
    with monkeypatch.context() as patched:
        patched.setattr(Window, "without", lambda self, _first, _mask: self)
        with open_small(root, FakeClock()) as store:
            store.groups.create("g")
            store.put([Message("T", b"a"), Message("T", b"b")])
            (found, _) = store.groups.receive("g", "T").deliveries
            store.groups.acknowledge("g", [found.handle])
        said = [f"{each.expected}; {each.found}" for each in faults(root)]
    assert any("message 0 is done; message 0 is with the receiver" in each for each in said)


@given(st.lists(st.one_of(WINDOW_ENTRIES, LETTERS_ENDED), max_size=30))
def test_both_codes_make_the_same_of_any_history(entries: list) -> None:  # type: ignore[type-arg]
    rows = DictRows()
    judge = SharedGroups()
    for at, entry in enumerate(entries):
        rows.take(changes_of([entry], at, rows))
        judge.follow([entry], at)
    told: list[str] = []

    def tell(key: bytes, expected: str, found: str) -> None:
        if "a lease of mask" not in found:  # the histories have deliveries of 0
            told.append(f"{key!r} {expected} {found}")

    found = SharedGroups.of_rows(sorted(rows.rows.items()), tell)
    if not told and found.queues.keys() == judge.queues.keys():
        found.compare(judge, tell)
    assert told == []


def test_a_topic_that_is_missing_is_told_for_its_windows(root: Path) -> None:
    with database(root) as engine:
        engine.write(KvBatch(deletes=[(STATE, topic_key("T"))]))
    said = [str(each.expected) for each in faults(root) if each.kind is Kind.STATE]
    assert "topic 'T' is there" in said
