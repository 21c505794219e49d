"""The check of a store that has a migration: all its sides."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from kvcq.inspect.findings import Kind, Remedy
from migration.check import check_store, examine_store
from migration.errors import IllegalStepError
from migration.formats import pack_units
from migration.migrator import open_migrator
from migration.repair.rebuild_side import set_side_aside
from migration.state import SideName
from migration.state.phase import Phase
from tests.support.checking import faults, make_checked, only
from tests.support.migrating import (
    LAYOUT,
    LIGHT,
    advance,
    config,
    done,
    make_on_files,
    messages,
    open_store,
)
from tests.support.tree import tree_digest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def both_sides(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store in state DOUBLE_WRITE: queue files, index files and RocksDB."""
    root = tmp_path_factory.mktemp("both") / "store"
    make_on_files(root)
    with open_store(config(root)) as store:
        store.put(messages(0, 300))
        advance(store, Phase.DOUBLE_WRITE)
        store.put(messages(300, 300))
    return root


@pytest.fixture
def both(both_sides: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "store"
    shutil.copytree(both_sides, copy)
    return copy


def queue_file(root: Path) -> Path:
    """Of orders, queue 0: 75 units in one file."""
    [path] = (root / "consumequeue" / "orders" / "0").iterdir()
    return path


def test_all_sides_of_a_store_are_looked_at(both: Path) -> None:
    before = tree_digest(both)
    steps: list[tuple[str, float]] = []
    checked = examine_store(both, lambda what, share: steps.append((what, share)))
    assert checked.findings == []
    assert tree_digest(both) == before
    assert all(0 <= share <= 1 for _, share in steps)
    assert {what for what, _ in steps} >= {"consume queues", "index files", "rows of default"}
    # 600 messages, every fifth in a light queue as well, on each of both sides; and the record
    # that made the topics.
    assert (checked.checked.records, checked.checked.units) == (601, 2 * 721)


@pytest.mark.parametrize("value", [bytes(20), pack_units((4, 200, 7)), pack_units((0, 99, 7))])
def test_a_wrong_unit_in_a_queue_file_is_a_fault_of_the_files_alone(
    both: Path, value: bytes
) -> None:
    path = queue_file(both)
    data = bytearray(path.read_bytes())
    data[100:120] = value
    path.write_bytes(data)
    found = faults(both)
    assert {finding.side for finding in found} == {"files"}
    assert {finding.remedy for finding in found} == {Remedy.REBUILD_FILES}
    assert {(finding.place, finding.position) for finding in found} == {
        (str(path.relative_to(both)), 100)
    }


def test_a_unit_that_points_at_another_record_is_told_with_that_record(both: Path) -> None:
    path = queue_file(both)
    data = bytearray(path.read_bytes())
    data[100:120] = data[120:140]
    path.write_bytes(data)
    [wrong] = [each for each in faults(both) if each.kind is Kind.WRONG_UNIT]
    assert (wrong.topic, wrong.queue_id, wrong.queue_offset) == ("orders", 0, 5)
    assert "queue 0 of 'orders', offset 6" in wrong.found


def test_lost_queue_files_are_a_fault(both: Path) -> None:
    queue_file(both).unlink()
    [lost] = faults(both)
    assert (lost.kind, lost.topic, lost.queue_id) == (Kind.ENDS_EARLY, "orders", 0)
    shutil.rmtree(both / "consumequeue" / "orders" / "0")
    assert only(both, Kind.MISSING_QUEUE).count == 75
    shutil.rmtree(both / "consumequeue")
    assert only(both, Kind.MISSING).place == "consumequeue"


def test_a_key_that_the_index_files_lack_is_a_fault(both: Path) -> None:
    [path] = (both / "index").iterdir()
    data = bytearray(path.read_bytes())
    at = LAYOUT.index.entry_position(3)
    data[at] ^= 1  # of its hash
    path.write_bytes(data)
    found = only(both, Kind.WRONG_INDEX_ROW)
    assert (found.side, found.position) == ("files", at)
    path.unlink()
    assert only(both, Kind.ENDS_EARLY).remedy is Remedy.REBUILD_FILES


def test_a_side_that_is_proved_wrong_by_a_check_can_be_rebuilt(both: Path) -> None:
    path = queue_file(both)
    path.write_bytes(bytes(path.stat().st_size))
    for side in (SideName.ROCKSDB, SideName.FILES):
        if side is SideName.ROCKSDB:
            with pytest.raises(IllegalStepError, match="may be the correct one"):
                set_side_aside(both, side)
        else:
            set_side_aside(both, side)
    open_store(config(both)).close()
    assert check_store(both) == []


def test_a_killed_store_with_both_sides_has_no_faults(tmp_path: Path) -> None:
    root, image = tmp_path / "store", tmp_path / "image"
    make_on_files(root)
    with open_store(config(root)) as store:
        store.put(messages(0, 300))
        advance(store, Phase.DOUBLE_WRITE)
        store.flush()
        store.put(messages(300, 300))
        shutil.copytree(root, image)
    found = check_store(image)
    assert not any(finding.is_fault for finding in found), [str(each) for each in found]
    assert ("files", Kind.UNDISPATCHED) in {(each.side, each.kind) for each in found}
    open_store(config(image)).close()
    assert check_store(image) == []


def test_a_store_has_no_findings_in_any_state_of_a_migration(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_on_files(root)
    put = 0
    for phase in (Phase.FILES, Phase.DOUBLE_WRITE, Phase.ROCKSDB, Phase.FINISHED):
        with open_store(config(root)) as store:
            advance(store, phase)
            store.put(messages(put, 200))
            if phase is Phase.DOUBLE_WRITE:
                store.delete_topic("audit-eu")
                store.create_topics([("audit-eu", 2)])
            if phase is Phase.ROCKSDB:
                store.delete_topic(LIGHT)
            store.put(messages(put + 200, 200))
            put += 400
        assert check_store(root) == []
    for _ in range(3):
        with open_migrator(root) as migrator:
            done(migrator.live.rollback())
        assert check_store(root) == []


def test_a_damaged_migration_state_is_a_fault(tmp_path: Path) -> None:
    root = make_checked(tmp_path / "store")
    (root / "migration.json").write_text("{")
    found = only(root, Kind.IDENTITY)
    assert found.place == "migration.json"
