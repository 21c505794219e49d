"""The check of a stopped store: silent about a good one, exact about each planted fault."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED, metadata_profile
from kvcq.inspect.findings import Finding, Findings, Kind, Remedy, size_text
from kvcq.metadata_store import MetadataStore
from kvcq.tables.keys import (
    BOUNDS,
    DISPATCHED_KEY,
    INDEX,
    UNITS,
    index_key,
    max_key,
    pack_i64,
    unit_key,
    unpack_index_key,
)
from kvcq.tables.values import pack_max, pack_unit, unpack_unit
from migration.check import check_store, examine_store
from migration.errors import IllegalStepError
from migration.formats import pack_units
from migration.migrator import open_migrator
from migration.repair.rebuild_side import set_side_aside
from migration.state.routes import SideName
from migration.state.routing import RoutingPolicy, parse_rules
from migration.state.state import Phase
from store.clock import SystemClock
from store.errors import StoreFormatError, StoreLockedError
from store.format.checkpoint import read_checkpoint
from store.message import Message
from store.metadata import DeleteMark
from tests.support.fake_clock import FakeClock
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
from tests.support.stores import SEGMENT_BYTES, open_small
from tests.support.tree import tree_digest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kvcq.engine.protocol import KvEngine
    from store.message_store import MessageStore

TOPICS = ("alpha", "beta")


def fill(store: MessageStore, clock: FakeClock, count: int = 30) -> None:
    for number in range(count):
        store.put(
            [
                Message(
                    topic,
                    b"x" * 900,
                    queue_id=number % 2,
                    tag="t",
                    keys=(f"k{number % 5}",),
                    light_queues=("%LMQ%light",) if number % 3 == 0 else (),
                    properties={"UNIQ_KEY": f"{topic}{number}"},
                )
                for topic in TOPICS
            ]
        )
        clock.advance(1)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store: two topics and a light queue over two segments."""
    root = tmp_path_factory.mktemp("template") / "store"
    clock = FakeClock()
    with open_small(root, clock) as store:
        fill(store, clock)
        store.commit_offsets("group", [("alpha", 0, 3)])
    return root


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "store"
    shutil.copytree(template, copy)
    return copy


@contextmanager
def database(root: Path) -> Iterator[KvEngine]:
    engine = RocksEngine.open(root / "kvcq", DERIVED)
    yield engine
    engine.close()


def faults(root: Path) -> list[Finding]:
    return [finding for finding in check_store(root) if finding.is_fault]


def only(root: Path, kind: Kind) -> Finding:
    found = faults(root)
    assert {finding.kind for finding in found} == {kind}, [str(finding) for finding in found]
    return found[0]


def flip(path: Path, position: int, mask: int = 1) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ mask]))


def segment(root: Path, number: int = 0) -> Path:
    return root / "commitlog" / f"{number * SEGMENT_BYTES:020}"


# --- good stores ------------------------------------------------------------------------------


def test_a_good_store_has_no_findings_and_is_left_alone(root: Path) -> None:
    before = tree_digest(root)
    steps: list[tuple[str, float]] = []
    assert check_store(root, lambda what, share: steps.append((what, share))) == []
    assert tree_digest(root) == before
    assert all(0 <= share <= 1 for _, share in steps)
    assert all(share == 1 for share in dict(steps).values())
    assert {what for what, _ in steps} >= {"records of the log", "rows of default"}


def test_names_that_a_migration_keeps_in_files_are_not_missed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_on_files(root, RoutingPolicy(rules=parse_rules(["payments=files", "%LMQ%*=files"])))
    with open_store(config(root)) as store:
        store.put(messages(0, 200))
    assert check_store(root) == []
    with open_store(config(root)) as store:
        advance(store, Phase.FINISHED)
    assert check_store(root) == []
    with database(root) as engine:
        engine.write(KvBatch(deletes=[(UNITS, unit_key("orders", 0, 4))]))
    assert {finding.kind for finding in faults(root)} == {Kind.MISSING_UNIT, Kind.HOLE}


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
    # 600 messages, every fifth in a light queue as well, on each of both sides.
    assert (checked.checked.records, checked.checked.units) == (600, 2 * 720)


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
            with pytest.raises(IllegalStepError, match="may be the right one"):
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
    make_on_files(root, RoutingPolicy(rules=parse_rules(["payments=files", "audit*=both"])))
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


def test_a_damaged_migration_state_is_a_fault(root: Path) -> None:
    (root / "migration.json").write_text("{")
    found = only(root, Kind.IDENTITY)
    assert found.place == "migration.json"


def test_what_was_looked_at_is_counted(root: Path) -> None:
    checked = examine_store(root).checked
    assert (checked.records, checked.units, checked.index_rows) == (60, 80, 120)
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
        store.put([Message("alpha", b"p", sys_flag=4), Message("alpha", b"r", sys_flag=12)])
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


# --- after a crash: information, no fault -----------------------------------------------------


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
        end = store.log.appended_offset
        fill(store, clock, 5)
        store.queues.flush()
        shutil.copytree(root, image)
    last = segment(image)
    last.write_bytes(last.read_bytes()[:end].ljust(SEGMENT_BYTES, b"\0"))
    found = check_store(image)
    ahead = [finding for finding in found if finding.kind is Kind.AHEAD_OF_LOG]
    assert len(ahead) == 1
    assert not ahead[0].is_fault
    with open_small(image):
        pass
    assert check_store(image) == []


def test_no_database_is_no_fault(root: Path) -> None:
    shutil.rmtree(root / "kvcq")
    assert [finding.kind for finding in check_store(root)] == [Kind.NO_DATABASE]


# --- the log ----------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [3, 5, 30, 60, 100, 1000])
def test_a_damaged_record(root: Path, position: int) -> None:
    with database(root) as engine:
        record = unpack_unit(engine.get(UNITS, unit_key("alpha", 1, 4)) or b"")
    flip(segment(root), record.physical_offset + position)
    finding = only(root, Kind.DAMAGED_RECORD)
    assert finding.physical_offset == record.physical_offset
    assert finding.place == f"commitlog/{0:020}"
    assert str(record.physical_offset + record.record_size) in finding.found
    assert (finding.topic, finding.queue_id, finding.queue_offset) == ("alpha", 1, 4)
    assert "41 records follow" in finding.found


def test_a_damaged_record_without_queues_is_named_by_its_header(root: Path) -> None:
    with database(root) as engine:
        record = unpack_unit(engine.get(UNITS, unit_key("alpha", 1, 4)) or b"")
    shutil.rmtree(root / "kvcq")
    flip(segment(root), record.physical_offset + 500)
    finding = only(root, Kind.DAMAGED_RECORD)
    assert (finding.topic, finding.queue_id, finding.queue_offset) == ("alpha", 1, 4)


def test_a_damaged_record_that_no_row_leads_to_is_information(root: Path) -> None:
    with database(root) as engine:
        unit = unpack_unit(engine.get(UNITS, unit_key("alpha", 1, 4)) or b"")
        rows = [
            (UNITS, unit_key("alpha", 1, 4)),
            (UNITS, unit_key("%LMQ%light", 0, 6)),
            *(
                (INDEX, key)
                for key, _ in engine.scan(INDEX, b"", b"\xff" * 8)
                if unpack_index_key(key)[3] == unit.physical_offset
            ),
        ]
        assert len(rows) == 4
    flip(segment(root), unit.physical_offset + 500)
    for row in rows:
        assert only(root, Kind.DAMAGED_RECORD).queue_offset == 4
        with database(root) as engine:
            engine.write(KvBatch(deletes=[row]))
    [told] = check_store(root)
    assert (told.kind, told.is_fault) == (Kind.LEFT_OUT, False)
    assert (told.topic, told.queue_id, told.queue_offset) == ("alpha", 1, 4)


def test_a_hole_with_damage_in_it_hides_no_missing_unit(root: Path) -> None:
    with database(root) as engine:
        unit = unpack_unit(engine.get(UNITS, unit_key("alpha", 1, 4)) or b"")
        rows = [unit_key("alpha", 1, 4), unit_key("alpha", 1, 5)]
        engine.write(KvBatch(deletes=[(UNITS, key) for key in rows]))
    flip(segment(root), unit.physical_offset + 500)
    found = faults(root)
    assert Kind.MISSING_UNIT in {finding.kind for finding in found}
    [missing] = [finding for finding in found if finding.kind is Kind.MISSING_UNIT]
    assert missing.queue_offset == 5


def test_a_zeroed_end_of_the_durable_log(root: Path) -> None:
    checkpoint = read_checkpoint(root / "checkpoint")
    assert checkpoint is not None
    end = checkpoint.flushed_offset
    path = root / "commitlog" / f"{end - end % SEGMENT_BYTES:020}"
    data = path.read_bytes()
    path.write_bytes(data[: end % SEGMENT_BYTES - 500].ljust(SEGMENT_BYTES, b"\0"))
    kinds = {finding.kind for finding in faults(root)}
    assert Kind.DAMAGED_RECORD in kinds


def test_a_log_that_ends_early(root: Path) -> None:
    segment(root).write_bytes(bytes(SEGMENT_BYTES))
    kinds = {finding.kind for finding in faults(root)}
    assert {Kind.DAMAGED_RECORD, Kind.WRONG_UNIT} & kinds


def test_a_gap_between_segments(root: Path) -> None:
    shutil.copy(segment(root), segment(root, 2))
    assert only(root, Kind.SEGMENTS).place.endswith(f"{2 * SEGMENT_BYTES:020}")


def test_a_damaged_checkpoint_file(root: Path) -> None:
    flip(root / "checkpoint", 44)
    assert only(root, Kind.CHECKPOINT_FILE).place == "checkpoint"


def test_a_damaged_store_json(root: Path) -> None:
    (root / "store.json").write_bytes(b"{")
    assert only(root, Kind.IDENTITY).place == "store.json"


# --- rows -------------------------------------------------------------------------------------


def test_a_missing_unit(root: Path) -> None:
    with database(root) as engine:
        engine.write(KvBatch(deletes=[(UNITS, unit_key("alpha", 1, 4))]))
    found = faults(root)
    assert {finding.kind for finding in found} == {Kind.MISSING_UNIT, Kind.HOLE}
    for finding in found:
        assert (finding.topic, finding.queue_id, finding.queue_offset) == ("alpha", 1, 4)


def test_a_missing_unit_of_a_topic_that_was_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvcq.inspect.sums._BUCKETS", 1)  # every row is looked at again
    root = tmp_path / "store"
    clock = FakeClock()
    with open_small(root, clock) as store:
        fill(store, clock, 20)
        store.delete_topic("beta")
        store.create_topics([("beta", 3)])
        fill(store, clock, 12)
    with database(root) as engine:
        engine.write(KvBatch(deletes=[(UNITS, unit_key("beta", 0, 3))]))
    found = faults(root)
    assert {finding.kind for finding in found} == {Kind.MISSING_UNIT, Kind.HOLE}
    assert len(found) == 2


def test_missing_first_and_last_units(root: Path) -> None:
    with database(root) as engine:
        keys = [unit_key("alpha", 1, 0), unit_key("beta", 0, 14)]
        engine.write(KvBatch(deletes=[(UNITS, key) for key in keys]))
    kinds = {finding.kind for finding in faults(root)}
    assert kinds == {Kind.MISSING_UNIT, Kind.WRONG_BOUND}


@pytest.mark.parametrize("change", ["size", "tag", "time", "stamp", "offset"])
def test_a_wrong_unit(root: Path, change: str) -> None:
    key = unit_key("alpha", 1, 4)
    with database(root) as engine:
        unit = unpack_unit(engine.get(UNITS, key) or b"")
        other = unpack_unit(engine.get(UNITS, unit_key("alpha", 0, 4)) or b"")
        value = pack_unit(
            {
                "size": unit._replace(record_size=unit.record_size + 1),
                "tag": unit._replace(tag_code=1),
                "time": unit._replace(store_time_ms=unit.store_time_ms + 1),
                "stamp": unit,
                "offset": other,  # a record of another queue
            }[change]
        )
        if change == "stamp":
            value = value[:-1] + b"\x00"
        engine.write(KvBatch(puts={UNITS: [(key, value)]}))
    assert only(root, Kind.WRONG_UNIT).queue_offset == 4


def test_a_unit_that_points_at_no_record(root: Path) -> None:
    key = unit_key("alpha", 1, 4)
    with database(root) as engine:
        unit = unpack_unit(engine.get(UNITS, key) or b"")
        moved = unit._replace(physical_offset=unit.physical_offset + 1)
        engine.write(KvBatch(puts={UNITS: [(key, pack_unit(moved))]}))
    assert only(root, Kind.WRONG_UNIT).physical_offset == moved.physical_offset


def test_two_units_of_one_record(root: Path) -> None:
    # As a light queue gets them when one offset is given out twice.
    with database(root) as engine:
        value = engine.get(UNITS, unit_key("%LMQ%light", 0, 3)) or b""
        engine.write(KvBatch(puts={UNITS: [(unit_key("%LMQ%light", 0, 4), value)]}))
    kinds = {finding.kind for finding in faults(root)}
    assert kinds == {Kind.WRONG_UNIT, Kind.FALLING_OFFSET}


def test_a_unit_behind_the_end_of_its_queue(root: Path) -> None:
    with database(root) as engine:
        value = engine.get(UNITS, unit_key("alpha", 1, 4)) or b""
        engine.write(KvBatch(puts={UNITS: [(unit_key("alpha", 1, 99), value)]}))
    kinds = {finding.kind for finding in faults(root)}
    assert {Kind.WRONG_UNIT, Kind.HOLE, Kind.WRONG_BOUND} <= kinds


def test_missing_and_wrong_bounds(root: Path) -> None:
    with database(root) as engine:
        engine.write(KvBatch(deletes=[(BOUNDS, max_key("alpha", 1))]))
    assert only(root, Kind.MISSING_BOUND).queue_id == 1
    with database(root) as engine:
        unit = unpack_unit(engine.get(UNITS, unit_key("alpha", 1, 13)) or b"")
        stale = pack_max(unit.physical_offset, 13)
        engine.write(KvBatch(puts={BOUNDS: [(max_key("alpha", 1), stale)]}))
    assert only(root, Kind.WRONG_BOUND).queue_offset == 14


def test_a_bound_without_units(root: Path) -> None:
    with database(root) as engine:
        engine.write(KvBatch(puts={BOUNDS: [(max_key("alpha", 3), pack_max(0, 0))]}))
    assert only(root, Kind.WRONG_BOUND).queue_id == 3


def test_families_at_two_points(root: Path) -> None:
    # The checkpoint is behind the units: as if families had been flushed one by one.
    with database(root) as engine:
        unit = unpack_unit(engine.get(UNITS, unit_key("beta", 1, 14)) or b"")
        row = (DISPATCHED_KEY, pack_i64(unit.physical_offset))
        engine.write(KvBatch(puts={BOUNDS: [row]}))
    found = check_store(root)
    assert {finding.kind for finding in found} == {Kind.OLD_DATABASE, Kind.BEYOND_CHECKPOINT}
    places = {finding.place for finding in found if finding.is_fault}
    assert places == {UNITS, BOUNDS, INDEX}


def test_a_checkpoint_ahead_of_a_closed_log(root: Path) -> None:
    with database(root) as engine:
        engine.write(KvBatch(puts={BOUNDS: [(DISPATCHED_KEY, pack_i64(1 << 40))]}))
    assert only(root, Kind.AHEAD_OF_LOG).physical_offset == 1 << 40


def test_missing_and_wrong_index_rows(root: Path) -> None:
    with database(root) as engine:
        unit = unpack_unit(engine.get(UNITS, unit_key("alpha", 1, 4)) or b"")
        key = index_key("alpha", "k4", unit.store_time_ms, unit.physical_offset)
        value = engine.get(INDEX, key) or b""
        assert value
        engine.write(KvBatch(deletes=[(INDEX, key)]))
    assert only(root, Kind.MISSING_INDEX_ROW).physical_offset == unit.physical_offset
    wrong = index_key("alpha", "other", unit.store_time_ms, unit.physical_offset)
    with database(root) as engine:
        engine.write(KvBatch(puts={INDEX: [(key, value), (wrong, value)]}))
    assert "other" in only(root, Kind.WRONG_INDEX_ROW).found


def test_rows_of_a_topic_that_does_not_exist(root: Path) -> None:
    engine = RocksEngine.open(root / "meta", metadata_profile())
    MetadataStore(engine).delete_topic(DeleteMark("beta", 1 << 40, 1))
    MetadataStore(engine).drop_marks([1])
    engine.close()
    finding = only(root, Kind.DEAD_ROW)
    assert finding.topic == "beta"
    assert finding.count == 1


def test_a_deletion_to_be_finished_is_no_fault(root: Path) -> None:
    engine = RocksEngine.open(root / "meta", metadata_profile())
    MetadataStore(engine).delete_topic(DeleteMark("beta", 1 << 40, 1))
    engine.close()
    assert [finding.kind for finding in check_store(root)] == [Kind.PENDING_DELETION]
    open_small(root).close()
    assert check_store(root) == []


def test_rows_of_no_layout(root: Path) -> None:
    with database(root) as engine:
        engine.write(
            KvBatch(
                puts={
                    UNITS: [(b"\x00\x00\x00\x01\x01", b"x"), (unit_key("alpha", 1, 4), b"x" * 5)],
                    BOUNDS: [(b"\x00", b"")],
                    INDEX: [(b"\x00\x00", b"")],
                }
            )
        )
    kinds = [finding.kind for finding in faults(root)]
    assert kinds.count(Kind.BAD_ROW) == 4


@pytest.mark.parametrize("family", ["kvcq", "meta"])
def test_a_damaged_database(root: Path, family: str) -> None:
    engine = RocksEngine.open(root / family, DERIVED if family == "kvcq" else metadata_profile())
    for name in engine._profile.names:
        engine.compact(name)
    engine.close()
    for path in (root / family).glob("*.sst"):
        for position in range(10, path.stat().st_size, 300):
            flip(path, position, 0x10)
    kind = Kind.DATABASE if family == "kvcq" else Kind.METADATA
    assert kind in {finding.kind for finding in faults(root)}


# --- the list ---------------------------------------------------------------------------------


def test_findings_are_bounded() -> None:
    findings = Findings(3)
    for number in range(10):
        findings.add(Kind.HOLE, "default", number, number)
    findings.add(Kind.TORN_TAIL, "commitlog", 1, 2)
    listed = findings.result()
    assert [finding.count for finding in listed] == [1, 1, 8, 1]
    assert [finding.is_fault for finding in listed] == [True, True, True, False]
    assert "and 7 more" in str(listed[2])


def test_a_finding_says_where() -> None:
    finding = Finding(Kind.HOLE, "default", "offset 4", "offset 5", "t", 1, 4, 4096)
    assert str(finding) == (
        "default, topic 't', queue 1, offset 4, physical offset 4096: hole in a queue: "
        "expected offset 4, found offset 5"
    )


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (1, "1 byte"),
        (999, "999 bytes"),
        (1500, "1.5 kB"),
        (22 * 10**6, "22 MB"),
        (10**12, "1,000 GB"),
    ],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert size_text(size) == text
