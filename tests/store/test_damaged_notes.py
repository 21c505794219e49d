"""Damaged notes keep no store closed: what they say is found again, or is not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq.engine import KvBatch
from kvcq.inspect import inspect_store
from kvcq.inspect.findings import Kind
from kvcq.tables import UNITS, unit_key
from store.message import Message
from store.upkeep.upkeep import REFILL
from tests.crash.images import flip
from tests.support.checking import database
from tests.support.fake_clock import FakeClock
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_damaged_note_of_the_time_does_not_keep_the_store_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "store", clock):
        pass
    (tmp_path / "store/notes/clock").write_bytes(b"\0" * 40)
    with open_small(tmp_path / "store", clock) as store:
        assert "cannot read the time that the last process left" in caplog.text
        assert store._times.now_ms() == clock.now_ms()


def test_a_damaged_note_of_falls_is_made_again_from_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    root = tmp_path / "store"
    with open_small(root, clock) as store:
        for _ in range(3):
            store.put([Message("T", b"x")])
            clock.jump(-3600)
            store.put([Message("T", b"y")])
            clock.jump(2 * 3600)
        falls = store._times.falls
    assert len(falls) == 3
    flip(root / "notes/store_time_falls", 20, 1)
    assert [each.kind for each in inspect_store(root).findings] == [Kind.NOTE]
    with open_small(root, clock) as store:
        assert store._times.falls == falls
    assert "falls of store times are found in the log" in caplog.text
    assert inspect_store(root).findings == []


def test_all_units_are_written_again_if_the_note_of_them_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "store"
    with open_small(root) as store:
        store.put([Message("T", b"x")] * 3)
        units = store.queues.read_units("T", 0, 0, 3)
    with database(root) as engine:
        engine.write(KvBatch(deletes=[(UNITS, unit_key("T", 0, 1))]))
    (root / "notes" / REFILL).write_bytes(b"0" * 17)
    with open_small(root) as store:
        store.maintain()
        store._services.repair.wait()
        assert store.queues.read_units("T", 0, 0, 3) == units
        store.maintain()
        assert store.notes.get(REFILL) == bytes(8)
    assert "all units are written again" in caplog.text
