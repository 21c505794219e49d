"""What a plan has proved is not read again by the start, and any change to it is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from migration.formats.unit import pack_units
from migration.plan import note
from migration.plan.legacy import take_inventory
from migration.plan.plan import plan_directory
from migration.state.state import FileLayout
from store.store_dir import StoreDir
from tests.support.golden_store import INDEX_ENTRIES, INDEX_SLOTS, UNITS_PER_FILE, extract_golden
from tests.support.tree import tree_digest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from migration.plan.legacy import Inventory

LAYOUT = FileLayout(UNITS_PER_FILE, INDEX_SLOTS, INDEX_ENTRIES)


def quiet(_step: str, _share: float) -> None: ...


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of RocketMQ's whose files have not changed for long, as far as a note asks."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(note, "_SETTLED_NS", 0)
    return extract_golden(tmp_path, "both")


@pytest.fixture
def inventories(monkeypatch: pytest.MonkeyPatch) -> list[Inventory]:
    """Those that were taken by reading everything."""
    taken: list[Inventory] = []
    take = take_inventory

    def counted(*arguments: object) -> Inventory:
        taken.append(take(*arguments))  # type: ignore[arg-type] # passed on
        return taken[-1]

    monkeypatch.setattr(note, "take_inventory", counted)
    return taken


def test_a_start_takes_what_the_plan_has_proved(root: Path, inventories: list[Inventory]) -> None:
    (root / "consumequeue" / "orders" / "notes").write_bytes(b"x")  # a finding
    before = tree_digest(root)
    plan_directory(root, LAYOUT, quiet)
    started = note.inventory_for_start(root, LAYOUT, quiet)
    assert tree_digest(root) == before
    [planned] = inventories
    assert planned.findings
    assert started.findings == planned.findings
    assert started.topics == planned.topics
    assert started.layout == planned.layout
    assert started.generations.live_from == planned.generations.live_from
    assert started.log.times.found == planned.log.times.found
    for name in ("start", "end", "records", "units", "last_physical_offset", "end_reason"):
        assert getattr(started.log, name) == getattr(planned.log, name)


def a_unit(root: Path) -> None:
    """Of the same size and with the times it had."""
    path = min((root / "consumequeue" / "payments" / "1").iterdir())
    times = path.stat()
    data = bytearray(path.read_bytes())
    data[:20] = pack_units((12345, 99, 7))
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def a_record(root: Path) -> None:
    path = max((root / "commitlog").iterdir())
    path.write_bytes(path.read_bytes())


def the_index(root: Path) -> None:
    min((root / "index").iterdir()).unlink()


def the_config(root: Path) -> None:
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{}}')


def a_stop_out_of_order(root: Path) -> None:
    (root / "abort").touch()


@pytest.mark.parametrize(
    "change",
    [a_unit, a_record, the_index, the_config, a_stop_out_of_order],
    ids=lambda f: f.__name__,
)
def test_what_changed_since_the_plan_is_looked_at_again(
    root: Path, inventories: list[Inventory], change: Callable[[Path], None]
) -> None:
    plan_directory(root, LAYOUT, quiet)
    change(root)
    found = note.inventory_for_start(root, LAYOUT, quiet)
    assert len(inventories) == 2
    assert found is inventories[1]


def test_other_sizes_than_those_of_the_plan_are_looked_at(
    root: Path, inventories: list[Inventory]
) -> None:
    plan_directory(root, LAYOUT, quiet)
    note.inventory_for_start(root, FileLayout(2 * UNITS_PER_FILE, 5, 12), quiet)
    assert len(inventories) == 2


def test_a_log_that_goes_on_behind_its_noted_end_is_looked_at(
    root: Path, inventories: list[Inventory], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when its files say nothing of the change."""
    monkeypatch.setattr(note, "_state_of", lambda *_: "same")
    plan_directory(root, LAYOUT, quiet)
    log = inventories[0].log
    segment = max((root / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    at = log.last_physical_offset - int(segment.name)
    data[at + 4 : at + 8] = bytes(4)  # the last record is none any more
    segment.write_bytes(data)
    note.inventory_for_start(root, LAYOUT, quiet)
    assert len(inventories) == 2


def test_a_damaged_note_is_none(root: Path, inventories: list[Inventory], tmp_path: Path) -> None:
    plan_directory(root, LAYOUT, quiet)
    [path] = (tmp_path / "cache" / "kvcq").iterdir()
    path.write_bytes(path.read_bytes().replace(b'"records": ', b'"records": 1'))
    note.inventory_for_start(root, LAYOUT, quiet)
    assert len(inventories) == 2


def test_nothing_is_noted_of_files_that_changed_just_now_or_are_in_use(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broker = StoreDir(root)
    broker._take_lock()
    try:
        plan_directory(root, LAYOUT, quiet)
    finally:
        broker.close()
    monkeypatch.setattr(note, "_SETTLED_NS", 10**12)
    plan_directory(root, LAYOUT, quiet)
    assert not (tmp_path / "cache").exists()


def test_without_a_home_or_with_a_file_that_cannot_be_asked_there_is_no_note(
    root: Path, inventories: list[Inventory], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (root / "config").symlink_to(tmp_path / "gone")
    plan_directory(root, LAYOUT, quiet)
    assert not (tmp_path / "cache").exists()
    (root / "config").unlink()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("pathlib.Path.home", _no_home)
    plan_directory(root, LAYOUT, quiet)
    note.inventory_for_start(root, LAYOUT, quiet)
    assert len(inventories) == 3


def _no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_a_cache_that_cannot_be_written_is_no_reason_to_fail(
    root: Path, inventories: list[Inventory], tmp_path: Path
) -> None:
    (tmp_path / "cache").write_bytes(b"no directory")
    plan_directory(root, LAYOUT, quiet)
    note.inventory_for_start(root, LAYOUT, quiet)
    assert len(inventories) == 2
