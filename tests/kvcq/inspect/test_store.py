"""The check of a stopped store: silent about a good one, and about what a crash leaves."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from kvcq.inspect.findings import Kind
from kvcq.tables.keys import BOUNDS, DISPATCHED_KEY
from migration.check import check_store, examine_store
from store.base import SystemClock
from store.errors import StoreFormatError, StoreLockedError
from store.message import Message
from tests.support.checking import database, fill, segment
from tests.support.fake_clock import FakeClock
from tests.support.stores import SEGMENT_BYTES, open_small
from tests.support.tree import tree_digest

if TYPE_CHECKING:
    from pathlib import Path


def test_a_good_store_has_no_findings_and_is_left_alone(root: Path) -> None:
    before = tree_digest(root)
    steps: list[tuple[str, float]] = []
    assert check_store(root, lambda what, share: steps.append((what, share))) == []
    assert tree_digest(root) == before
    assert all(0 <= share <= 1 for _, share in steps)
    assert all(share == 1 for share in dict(steps).values())
    assert {what for what, _ in steps} >= {"records of the log", "rows of default"}


def test_what_was_looked_at_is_counted(root: Path) -> None:
    checked = examine_store(root).checked
    # With one record that makes the topics, and one of a commit.
    assert (checked.records, checked.units, checked.index_rows) == (62, 82, 120)
    with database(root) as engine:
        row = engine.get(BOUNDS, DISPATCHED_KEY) or b""
    assert checked.log_bytes == int.from_bytes(row, "big")


def test_a_store_that_was_used_in_every_way_has_no_findings(tmp_path: Path) -> None:
    root = tmp_path / "store"
    # Never behind the machine's clock when it counts: RocksDB's filter goes by that one.
    clock = FakeClock(SystemClock().now_ms() - 7_000_000)
    with open_small(root, clock, reserved_hours=1) as store:
        fill(store, clock, 150)  # five segments
        store.delete_topic("beta")
        store.create_topics([("beta", 3)])
        clock.advance(7200)
        fill(store, clock, 20)
        store.flush()
        assert store._services.retention.run_once(now=True) >= 2
        store.delete_topic("%LMQ%light")
        fill(store, clock, 3)
        for sys_flag in (4, 12):
            store.put([Message("alpha", b"p", sys_flag=sys_flag)])
        store._upkeep.reclaim()
    assert check_store(root) == []


def test_an_empty_store_has_no_findings(tmp_path: Path) -> None:
    open_small(tmp_path / "store").close()
    assert check_store(tmp_path / "store") == []


def test_an_open_store_is_refused(root: Path) -> None:
    with open_small(root), pytest.raises(StoreLockedError):
        check_store(root)


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(StoreFormatError):
            check_store(path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_a_crash_is_no_fault(tmp_path: Path) -> None:
    root, image = tmp_path / "store", tmp_path / "image"
    clock = FakeClock()
    with open_small(root, clock) as store:
        fill(store, clock)
        store.flush()
        fill(store, clock)
        shutil.copytree(root, image)  # as a killed process leaves it
        end = store.log.appended_offset
    # The last record is torn.
    last = image / "commitlog" / f"{end - end % SEGMENT_BYTES:020}"
    with last.open("r+b") as file:
        file.seek(end % SEGMENT_BYTES - 30)
        file.write(bytes(30))
    before = tree_digest(image)
    found = check_store(image)
    assert {finding.kind for finding in found} == {Kind.UNDISPATCHED, Kind.TORN_TAIL}
    assert not any(finding.is_fault for finding in found)
    assert tree_digest(image) == before
    notes = {finding.kind: finding.note for finding in found}
    assert "not in the queues yet" in notes[Kind.UNDISPATCHED]
    assert "the next start removes them" in notes[Kind.TORN_TAIL]


def test_a_database_ahead_of_the_log_after_a_power_loss_is_no_fault(tmp_path: Path) -> None:
    root, image = tmp_path / "store", tmp_path / "image"
    clock = FakeClock()
    with open_small(root, clock) as store:
        fill(store, clock, 10)
        store.flush()
        store.groups.receive("workers", "alpha")
        end = store.log.appended_offset
        store.groups.receive("workers", "alpha", max_messages=2)
        store.groups.receive("others", "alpha")
        fill(store, clock, 5)
        store.queues.flush()
        shutil.copytree(root, image)
    last = segment(image)
    last.write_bytes(last.read_bytes()[:end].ljust(SEGMENT_BYTES, b"\0"))
    found = check_store(image)
    ahead = [finding for finding in found if finding.kind is Kind.AHEAD_OF_LOG]
    assert len(ahead) == 1
    assert [finding for finding in found if finding.is_fault] == []
    with open_small(image):
        pass
    assert check_store(image) == []


def test_no_database_is_no_fault(root: Path) -> None:
    shutil.rmtree(root / "kvcq")
    assert [finding.kind for finding in check_store(root)] == [Kind.NO_DATABASE]
