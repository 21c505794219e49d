"""Each fault of a legacy store is found, with file and position; a sound store has none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvcq.inspect import Finding, Kind, Remedy
from migration.files.file_check import FileCheck
from migration.files.options import FileQueueOptions
from migration.files.queue_check import NOWHERE, UNCOVERED
from migration.files.store import FileQueueStore
from migration.formats.index import IndexLayout
from migration.formats.unit import BLANK_UNIT, UNIT_SIZE, pack_units
from migration.plan.legacy import files_not_read, planned_finding
from store.base import no_progress
from tests.support.dispatch_log import DispatchLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq.inspect import Take
    from migration.formats import BoolArray, IntArray
    from store.base import Progress
    from store.consume_queue import DispatchRequest

PER_FILE = 8
FILE_BYTES = PER_FILE * UNIT_SIZE
LAYOUT = IndexLayout(slots=5, entries=12)
FIRST = f"{0:020d}"
SECOND = f"{FILE_BYTES:020d}"
THIRD = f"{2 * FILE_BYTES:020d}"


def written(root: Path, count: int = 60, start: int = 0) -> DispatchLog:
    log = DispatchLog(start)
    for n in range(count):
        light = ("%LMQ%a",) if n % 4 == 0 else ()
        log.append(f"T{n % 2}", n % 2, keys=(f"u{n}", "k"), light=light, size=100 + n)
    store = FileQueueStore(
        root,
        store_time_ms=log.store_time_ms,
        record_at=log.record_at,
        options=FileQueueOptions(units_per_file=PER_FILE, index=LAYOUT),
    )
    store.dispatch(log.requests, log.end)
    store.close()
    return log


class WalkedLog:
    """A log that was walked up to its damage, if it has any."""

    cut_offset = NOWHERE

    def __init__(
        self,
        log: DispatchLog,
        record_at: Callable[[int], DispatchRequest | None] | None = None,
        damaged_from: int | None = None,
    ) -> None:
        self.start_offset = log.start
        self.end_offset = log.end
        self.walked_end = log.end if damaged_from is None else damaged_from
        self.record_at = record_at or log.record_at
        self._damaged_from = damaged_from

    def in_question(self, offsets: IntArray) -> BoolArray:
        return (offsets >= self.start_offset) & (offsets < self.walked_end)

    def is_damaged(self, physical_offset: int) -> bool:
        return self._damaged_from is not None and physical_offset >= self._damaged_from


def check(
    root: Path,
    log: DispatchLog,
    *,
    record_at: Callable[[int], DispatchRequest | None] | None = None,
    damaged_from: int | None = None,
    progress: Progress = no_progress,
) -> list[Finding]:
    """What is found when the records of the log are those that `record_at` gives."""
    walked = WalkedLog(log, record_at, damaged_from)
    read = (walked.record_at(each.physical_offset) for each in log.requests)
    records = [each for each in read if each and each.physical_offset < walked.walked_end]
    findings = files_not_read(root)
    files = FileCheck(
        root,
        FileQueueOptions(units_per_file=PER_FILE, index=LAYOUT),
        lambda *what, **where: findings.append(planned_finding(*what, **where)),
        log_start=log.start,
        progress=progress,
    )

    def walk(take: Take) -> None:
        for at in range(0, len(records), 7):
            take(records[at : at + 7])

    walk(files.take)
    files.compare(walked, walk, is_required=lambda *_: True)
    return findings


def only(findings: list[Finding], fault: Kind) -> Finding:
    assert [each.kind for each in findings] == [fault], findings
    return findings[0]


def patch(path: Path, position: int, data: bytes) -> None:
    image = bytearray(path.read_bytes())
    image[position : position + len(data)] = data
    path.write_bytes(image)


def queue(root: Path) -> Path:
    """T0, queue 0: 30 units, in four files."""
    return root / "consumequeue" / "T0" / "0"


def test_sound_store_has_no_findings(tmp_path: Path) -> None:
    assert check(tmp_path, written(tmp_path)) == []


def test_sound_store_after_expiry_has_no_findings(tmp_path: Path) -> None:
    log = written(tmp_path)
    (queue(tmp_path) / FIRST).unlink()
    log.drop(log.requests[25].physical_offset)
    assert check(tmp_path, log) == []


def test_blanks_before_the_first_unit_are_in_order(tmp_path: Path) -> None:
    log = DispatchLog()
    log.append("T", queue_offset=13)
    store = FileQueueStore(
        tmp_path,
        store_time_ms=log.store_time_ms,
        record_at=log.record_at,
        options=FileQueueOptions(units_per_file=PER_FILE, index=LAYOUT),
    )
    store.dispatch(log.requests, log.end)
    store.close()
    assert check(tmp_path, log) == []


def test_nothing_at_all_has_no_findings(tmp_path: Path) -> None:
    assert check(tmp_path, DispatchLog()) == []


@pytest.mark.parametrize("size", [0, 33, FILE_BYTES - 1])
def test_truncated_queue_file(tmp_path: Path, size: int) -> None:
    log = written(tmp_path)
    path = queue(tmp_path) / SECOND
    os.truncate(path, size)
    findings = check(tmp_path, log)
    assert findings[0] == Finding(
        Kind.TRUNCATED,
        str(path.relative_to(tmp_path)),
        f"{FILE_BYTES} bytes",
        f"{size} bytes",
        "T0",
        0,
        (FILE_BYTES + size) // UNIT_SIZE,
        position=size,
        side="files",
        own_remedy=Remedy.REBUILD_QUEUE,
    )
    assert findings[0].place in str(findings[0])
    assert f"position {size}" in str(findings[0])
    assert findings[0].remedy.value == "rebuild queue from the log"


def test_oversized_queue_file(tmp_path: Path) -> None:
    log = written(tmp_path)
    path = queue(tmp_path) / SECOND
    os.truncate(path, FILE_BYTES + 40)
    found = only(check(tmp_path, log), Kind.OVERSIZED)
    assert (tmp_path / found.place, found.position) == (path, FILE_BYTES)


def test_overlapping_queue_file(tmp_path: Path) -> None:
    log = written(tmp_path)
    path = queue(tmp_path) / f"{FILE_BYTES - 40:020d}"
    shutil.copy(queue(tmp_path) / SECOND, path)
    findings = check(tmp_path, log)
    assert findings[0].kind is Kind.OVERLAPPING
    assert (tmp_path / findings[0].place, findings[0].position) == (path, 0)


def test_missing_queue_file(tmp_path: Path) -> None:
    log = written(tmp_path)
    (queue(tmp_path) / SECOND).unlink()
    found = only(check(tmp_path, log), Kind.MISSING)
    assert (Path(found.place).name, found.queue_offset, found.count) == (THIRD, PER_FILE, PER_FILE)


def test_missing_first_and_last_file(tmp_path: Path) -> None:
    log = written(tmp_path)
    (queue(tmp_path) / FIRST).unlink()
    (queue(tmp_path) / f"{3 * FILE_BYTES:020d}").unlink()
    late, early = check(tmp_path, log)
    assert (late.kind, late.queue_offset, late.count) == (Kind.STARTS_LATE, 0, 8)
    assert (early.kind, early.queue_offset, early.count) == (Kind.ENDS_EARLY, 24, 6)


def test_missing_queue(tmp_path: Path) -> None:
    log = written(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue" / "%LMQ%a")
    found = only(check(tmp_path, log), Kind.MISSING_QUEUE)
    assert (found.topic, found.queue_id, found.count) == ("%LMQ%a", 0, 15)


def test_foreign_files_are_left_where_they_are(tmp_path: Path) -> None:
    log = written(tmp_path)
    base = tmp_path / "consumequeue"
    foreign = [
        base / "000012.sst",  # RocksDB in the same directory
        base / "T0" / "0" / "0000000000000000000x",
        base / "T0" / "notes",
        tmp_path / "index" / "123",
    ]
    for path in foreign:
        path.write_bytes(b"x")
    findings = check(tmp_path, log)
    assert {tmp_path / each.place for each in findings} == set(foreign)
    assert {(each.kind, each.remedy) for each in findings} == {(Kind.FOREIGN, Remedy.IGNORE)}


@pytest.mark.parametrize(("at", "count"), [(0, 1), (2, 1), (3, 3), (7, 2), (6, 12)])
@pytest.mark.parametrize("unit", [bytes(UNIT_SIZE), BLANK_UNIT])
def test_hole(tmp_path: Path, at: int, count: int, unit: bytes) -> None:
    log = written(tmp_path)
    for offset in range(at, at + count):
        name = f"{offset // PER_FILE * FILE_BYTES:020d}"
        patch(queue(tmp_path) / name, offset % PER_FILE * UNIT_SIZE, unit)
    findings = check(tmp_path, log)
    if at == 0:
        assert only(findings, Kind.STARTS_LATE).count == count
        return
    holes = [each for each in findings if each.kind is Kind.HOLE]
    assert sum(each.count for each in holes) == count
    assert (holes[0].queue_offset, Path(holes[0].place).name) == (
        at,
        f"{at // PER_FILE * FILE_BYTES:020d}",
    )
    assert holes[0].position == at % PER_FILE * UNIT_SIZE


def test_zeros_after_the_last_unit_are_the_end(tmp_path: Path) -> None:
    log = written(tmp_path)
    path = queue(tmp_path) / f"{3 * FILE_BYTES:020d}"
    patch(path, 5 * UNIT_SIZE, bytes(UNIT_SIZE))
    assert only(check(tmp_path, log), Kind.ENDS_EARLY).queue_offset == 29


@pytest.mark.parametrize(
    ("unit", "fault"),
    [
        ((-5, 100, 7), Kind.IMPOSSIBLE),
        ((5, -100, 7), Kind.IMPOSSIBLE),
        ((2, 100, 7), Kind.FALLING_OFFSET),
        ((1 << 50, 100, 7), Kind.PAST_LOG),
    ],
)
def test_unit_that_cannot_be(tmp_path: Path, unit: tuple[int, int, int], fault: Kind) -> None:
    log = written(tmp_path)
    path = queue(tmp_path) / f"{3 * FILE_BYTES:020d}"
    patch(path, 4 * UNIT_SIZE, pack_units(unit))
    findings = check(tmp_path, log)
    assert (findings[0].kind, tmp_path / findings[0].place, findings[0].position) == (
        fault,
        path,
        80,
    )


def test_unit_that_points_nowhere_or_at_the_wrong_record(tmp_path: Path) -> None:
    log = written(tmp_path)
    path = queue(tmp_path) / FIRST
    mine, other = log.requests[6], log.requests[7]
    for unit, fault, detail in [
        ((mine.physical_offset + 1, mine.record_size, 7), Kind.NO_RECORD, "nothing"),
        ((other.physical_offset, other.record_size, 7), Kind.WRONG_UNIT, "'T1', offset 3"),
        ((mine.physical_offset, 55, 7), Kind.WRONG_UNIT, "106, found 55"),
        ((mine.physical_offset, mine.record_size, 8), Kind.WRONG_UNIT, "7, found 8"),
    ]:
        patch(path, 3 * UNIT_SIZE, pack_units(unit))
        found = only(check(tmp_path, log), fault)
        assert (tmp_path / found.place, found.position, found.queue_offset) == (path, 60, 3)
        assert detail in found.detail


def newest_index(root: Path) -> Path:
    return max((root / "index").iterdir())


@pytest.mark.parametrize("size", [0, 30, 41, 100, 299])
def test_index_file_cut_short(tmp_path: Path, size: int) -> None:
    log = written(tmp_path)
    path = min((tmp_path / "index").iterdir())
    os.truncate(path, size)
    findings = check(tmp_path, log)
    assert (findings[0].kind, tmp_path / findings[0].place, findings[0].position) == (
        Kind.TRUNCATED,
        path,
        size,
    )
    assert findings[0].remedy is Remedy.REBUILD_INDEX


@pytest.mark.parametrize(
    ("position", "number", "fault"),
    [
        (36, 13, Kind.BAD_HEADER),
        (36, -1, Kind.BAD_HEADER),
        (32, 6, Kind.BAD_HEADER),
        (44, 12, Kind.BAD_CHAIN),
        (48, -1, Kind.BAD_CHAIN),
        (LAYOUT.entry_position(4) + 16, 4, Kind.BAD_CHAIN),
        (LAYOUT.entry_position(4), -9, Kind.IMPOSSIBLE),
        (LAYOUT.entry_position(4), 12345, Kind.WRONG_INDEX_ROW),
        (LAYOUT.entry_position(11) + 4, 1 << 20, Kind.PAST_LOG),
        (LAYOUT.entry_position(4) + 8, 1, Kind.FALLING_OFFSET),
    ],
)
def test_damaged_index_file(tmp_path: Path, position: int, number: int, fault: Kind) -> None:
    log = written(tmp_path)
    path = sorted((tmp_path / "index").iterdir())[1]
    patch(path, position, number.to_bytes(4, "big", signed=True))
    findings = check(tmp_path, log)
    assert fault in {each.kind for each in findings}
    found = next(each for each in findings if each.kind is fault)
    assert tmp_path / found.place == path
    assert found.position is not None
    assert abs(found.position - position) <= 16
    assert found.remedy is Remedy.REBUILD_INDEX


def test_records_behind_damage_in_the_log_are_no_fault_of_the_queues(tmp_path: Path) -> None:
    log = written(tmp_path)
    damaged = log.requests[20].physical_offset

    def record_at(offset: int) -> DispatchRequest | None:
        return None if offset == damaged else log.record_at(offset)

    def faults(damaged_from: int | None) -> list[Kind]:
        found = check(tmp_path, log, record_at=record_at, damaged_from=damaged_from)
        return [each.kind for each in found]

    assert set(faults(None)) == {Kind.NO_RECORD}
    assert faults(damaged) == []
    assert set(faults(damaged + 1)) == {Kind.NO_RECORD}


def test_a_record_that_does_not_agree_is_not_cleared_of_damage(tmp_path: Path) -> None:
    log = written(tmp_path)
    wrong = log.requests[20]

    def record_at(offset: int) -> DispatchRequest | None:
        record = log.record_at(offset)
        if record is None or offset != wrong.physical_offset:
            return record
        return record._replace(keys=("other",), tag_code=77)

    findings = check(tmp_path, log, record_at=record_at)
    assert {each.remedy for each in findings} == {Remedy.REBUILD_QUEUE, Remedy.REBUILD_INDEX}
    for finding in findings:
        assert finding.kind in (Kind.WRONG_UNIT, Kind.WRONG_INDEX_ROW)
        assert finding.detail.endswith(UNCOVERED)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("batchconsumequeue", Remedy.REFUSE), ("consumequeue_ext", Remedy.IGNORE)],
)
def test_kinds_of_queue_files_that_are_not_read_are_found(
    tmp_path: Path, name: str, remedy: Remedy
) -> None:
    log = written(tmp_path)
    queue = tmp_path / name / "T0" / "0"
    queue.mkdir(parents=True)
    assert check(tmp_path, log) == []  # nothing is in it
    (queue / FIRST).write_bytes(b"x")
    found = only(check(tmp_path, log), Kind.NOT_READ)
    assert (tmp_path / found.place, found.remedy, found.topic) == (queue, remedy, "T0")


def test_h22_index_without_its_newest_file(tmp_path: Path) -> None:
    log = written(tmp_path)
    newest_index(tmp_path).unlink()
    assert only(check(tmp_path, log), Kind.ENDS_EARLY).remedy is Remedy.REBUILD_INDEX


@pytest.mark.parametrize("number", [0, 2])
def test_index_without_one_of_its_files(tmp_path: Path, number: int) -> None:
    log = written(tmp_path)
    files = sorted((tmp_path / "index").iterdir())
    assert len(files) > number + 1
    files[number].unlink()
    found = only(check(tmp_path, log), Kind.MISSING)
    assert (tmp_path / found.place, found.remedy) == (files[number + 1], Remedy.REBUILD_INDEX)


def test_checking_writes_nothing_and_reports_progress(tmp_path: Path) -> None:
    log = written(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    steps: list[tuple[str, float]] = []
    findings = check(tmp_path, log, progress=lambda step, done: steps.append((step, done)))
    assert findings == []
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert {step for step, _ in steps} == {"consume queues", "index files"}
    assert all(0 <= done <= 1 for _, done in steps)
