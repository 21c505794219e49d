"""One file consume queue against the layout of the original, and against a plain list."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from migration.errors import QueueFileError, UnitConflictError
from migration.files.handles import FileHandles
from migration.files.queue import FileQueue, Unit
from migration.formats.unit import BLANK_UNIT, UNIT_SIZE, pack_units, unpack_units, valid_units

PER_FILE = 8
FILE_BYTES = PER_FILE * UNIT_SIZE


@pytest.fixture
def handles() -> FileHandles:
    return FileHandles(4)


def open_queue(root: Path, handles: FileHandles, per_file: int = PER_FILE) -> FileQueue:
    return FileQueue("T", 0, str(root / "T" / "0"), per_file * UNIT_SIZE, handles).load()


def put(queue: FileQueue, first: int, units: list[Unit], log_start: int = 0) -> int:
    """Dispatch units; how many had to be written."""
    fields = [number for unit in units for number in unit]
    pending = queue.check(list(range(first, first + len(units))), fields, log_start, lambda _: None)
    if pending is None:
        return 0
    queue.write(pending)
    queue.commit(pending)
    return sum(len(run) for _, run in pending.runs) // 3


def units_of(queue: FileQueue, start: int = 0, count: int = 1000) -> dict[int, Unit]:
    found = {}
    for first, units in queue.read(start, count):
        ok = valid_units(units).tolist()
        for at, unit in enumerate(units.tolist()):
            if ok[at]:
                found[first + at] = unit
    return found


def some(count: int, start: int = 0) -> list[Unit]:
    return [(start + 100 * n, 100, n) for n in range(count)]


def test_files_are_full_size_and_named_by_byte_offset(tmp_path: Path, handles: FileHandles) -> None:
    queue = open_queue(tmp_path, handles)
    put(queue, 0, some(PER_FILE + 1))
    names = sorted(path.name for path in (tmp_path / "T" / "0").iterdir())
    assert names == [f"{0:020d}", f"{FILE_BYTES:020d}"]
    data = (tmp_path / "T" / "0" / names[0]).read_bytes()
    assert data == pack_units([n for unit in some(PER_FILE) for n in unit])
    last = (tmp_path / "T" / "0" / names[1]).read_bytes()
    assert last == pack_units(some(PER_FILE + 1)[-1]) + bytes(FILE_BYTES - UNIT_SIZE)


def test_first_unit_at_300123_is_filled_up_with_123_blanks(
    tmp_path: Path, handles: FileHandles
) -> None:
    queue = open_queue(tmp_path, handles, per_file=300_000)
    put(queue, 300_123, [(4096, 156, 2598919)])
    (path,) = (tmp_path / "T" / "0").iterdir()
    assert path.name == "00000000000006000000"
    assert path.stat().st_size == 6_000_000
    head = path.read_bytes()[: 125 * UNIT_SIZE]
    assert head[: 123 * UNIT_SIZE] == BLANK_UNIT * 123
    assert head[123 * UNIT_SIZE :] == pack_units((4096, 156, 2598919)) + bytes(UNIT_SIZE)
    assert queue.bounds(0) == (300_123, 300_124)


def test_h20_units_behind_a_gap_stand_at_their_own_index(
    tmp_path: Path, handles: FileHandles
) -> None:
    """The original writes them at the index behind the last one."""
    queue = open_queue(tmp_path, handles)
    put(queue, 0, some(3))
    put(queue, 5, [(900, 100, 0)])
    assert queue.bounds(0) == (0, 6)
    for again in (queue, open_queue(tmp_path, handles)):
        assert units_of(again) == {**dict(enumerate(some(3))), 5: (900, 100, 0)}
    path = tmp_path / "T" / "0" / f"{0:020d}"
    assert path.read_bytes()[3 * UNIT_SIZE : 5 * UNIT_SIZE] == BLANK_UNIT * 2


@pytest.mark.parametrize("have", [0, 2])
def test_h20_gaps_inside_a_batch(tmp_path: Path, handles: FileHandles, have: int) -> None:
    queue = open_queue(tmp_path, handles)
    if have:
        put(queue, 0, some(have))
    fields = [200, 100, 0, 300, 100, 0, 400, 100, 0, 500, 100, 0]
    pending = queue.check([2, 4, 20, 21], fields, 0, lambda _: None)
    assert pending is not None
    queue.write(pending)
    queue.undo(pending)
    assert units_of(open_queue(tmp_path, handles)) == dict(enumerate(some(have)))
    queue.write(pending)
    queue.commit(pending)
    behind = {2: (200, 100, 0), 4: (300, 100, 0), 20: (400, 100, 0), 21: (500, 100, 0)}
    assert units_of(queue) == units_of(open_queue(tmp_path, handles))
    assert units_of(queue) == {**dict(enumerate(some(have))), **behind}


def test_h21_blanks_are_no_units_after_a_restart(tmp_path: Path, handles: FileHandles) -> None:
    put(open_queue(tmp_path, handles), 5, [(700, 100, 1)])
    queue = open_queue(tmp_path, handles)
    assert queue.bounds(0) == (5, 6)
    assert units_of(queue) == {5: (700, 100, 1)}
    assert queue.unit(4) is None


def test_h21_trailing_blank_does_not_count_as_dispatched(
    tmp_path: Path, handles: FileHandles
) -> None:
    put(open_queue(tmp_path, handles), 5, [(700, 100, 1)])
    (path,) = (tmp_path / "T" / "0").iterdir()
    # The original's pre-fill, killed before the unit itself was written.
    path.write_bytes(BLANK_UNIT * 5 + bytes(FILE_BYTES - 5 * UNIT_SIZE))
    queue = open_queue(tmp_path, handles)
    assert (queue.physical_end, queue.bounds(0)) == (0, (5, 5))
    put(queue, 5, [(700, 100, 1)])
    assert units_of(queue) == {5: (700, 100, 1)}


def test_equal_unit_again_changes_nothing(tmp_path: Path, handles: FileHandles) -> None:
    queue = open_queue(tmp_path, handles)
    put(queue, 0, some(10))
    before = [path.read_bytes() for path in sorted((tmp_path / "T" / "0").iterdir())]
    assert put(queue, 0, some(10)) == 0
    assert put(queue, 4, [*some(10)[4:], (5000, 100, 3)]) == 1
    assert queue.end == 11
    assert before[0] == sorted((tmp_path / "T" / "0").iterdir())[0].read_bytes()


@pytest.mark.parametrize("other", [(301, 100, 3), (300, 101, 3), (300, 100, 4)])
def test_other_unit_at_the_same_offset_is_reported(
    tmp_path: Path, handles: FileHandles, other: Unit
) -> None:
    queue = open_queue(tmp_path, handles)
    put(queue, 0, some(6))
    with pytest.raises(UnitConflictError) as caught:
        put(queue, 3, [other])
    assert caught.value.queue_offset == 3
    assert units_of(queue) == dict(enumerate(some(6)))


def test_unit_behind_the_last_record_is_refused(tmp_path: Path, handles: FileHandles) -> None:
    queue = open_queue(tmp_path, handles)
    put(queue, 0, some(6))
    with pytest.raises(UnitConflictError):
        put(queue, 6, [(50, 100, 0)])


def test_hole_is_filled_by_the_log(tmp_path: Path, handles: FileHandles) -> None:
    put(open_queue(tmp_path, handles), 0, some(6))
    path = tmp_path / "T" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[2 * UNIT_SIZE : 4 * UNIT_SIZE] = bytes(2 * UNIT_SIZE)
    path.write_bytes(data)
    queue = open_queue(tmp_path, handles)
    assert sorted(units_of(queue)) == [0, 1, 4, 5]
    assert queue.end == 6
    assert put(queue, 0, some(6)) == 2
    assert units_of(queue) == dict(enumerate(some(6)))


def test_missing_first_file_is_filled_by_the_log(tmp_path: Path, handles: FileHandles) -> None:
    put(open_queue(tmp_path, handles), 0, some(20))
    for start in (0, FILE_BYTES):
        (tmp_path / "T" / "0" / f"{start:020d}").unlink()
    queue = open_queue(tmp_path, FileHandles(4))
    assert queue.bounds(0) == (16, 20)
    put(queue, 2, some(20)[2:])
    assert queue.bounds(0) == (2, 20)
    assert list(units_of(queue).items()) == list(enumerate(some(20)))[2:]
    first = (tmp_path / "T" / "0" / f"{0:020d}").read_bytes()
    assert first[: 2 * UNIT_SIZE] == BLANK_UNIT * 2


@pytest.mark.parametrize("size", [FILE_BYTES - 1, FILE_BYTES + UNIT_SIZE, 0])
def test_file_of_wrong_size_is_reported_with_its_path(
    tmp_path: Path, handles: FileHandles, size: int
) -> None:
    put(open_queue(tmp_path, handles), 0, some(2))
    path = tmp_path / "T" / "0" / f"{0:020d}"
    os.truncate(path, size)
    with pytest.raises(QueueFileError, match=f"{path}.*{size} bytes"):
        open_queue(tmp_path, handles)


def test_file_at_impossible_start_is_reported(tmp_path: Path, handles: FileHandles) -> None:
    put(open_queue(tmp_path, handles), 0, some(2))
    directory = tmp_path / "T" / "0"
    shutil.copy(directory / f"{0:020d}", directory / f"{FILE_BYTES + 20:020d}")
    with pytest.raises(QueueFileError, match="no multiple"):
        open_queue(tmp_path, handles)


def test_foreign_names_are_left_alone(tmp_path: Path, handles: FileHandles) -> None:
    put(open_queue(tmp_path, handles), 0, some(2))
    (tmp_path / "T" / "0" / "notes.txt").write_text("mine")
    assert open_queue(tmp_path, handles).end == 2


def test_h13_cut_at_an_equal_offset_keeps_all_before_it(
    tmp_path: Path, handles: FileHandles
) -> None:
    for count in range(1, 20):
        for target in range(count + 1):
            root = tmp_path / f"{count}-{target}"
            queue = open_queue(root, handles)
            put(queue, 0, some(count))
            queue.cut(100 * target)
            assert queue.end == target
            assert units_of(queue) == dict(enumerate(some(target)))
            assert open_queue(root, handles).end == target


def test_h1_cut_units_cannot_come_back(tmp_path: Path, handles: FileHandles) -> None:
    queue = open_queue(tmp_path, handles)
    put(queue, 0, some(12))
    queue.cut(550)
    (path,) = (tmp_path / "T" / "0").iterdir()
    assert path.read_bytes()[6 * UNIT_SIZE :] == bytes(FILE_BYTES - 6 * UNIT_SIZE)
    put(queue, 6, [(600, 70, 9)])
    assert open_queue(tmp_path, handles).end == 7


def test_min_is_the_first_unit_at_or_above_the_start_of_the_log(
    tmp_path: Path, handles: FileHandles
) -> None:
    queue = open_queue(tmp_path, handles)
    put(queue, 3, some(20))
    for log_start, expected in [(0, 3), (1, 4), (100, 4), (101, 5), (1900, 22), (1901, 23)]:
        assert queue.bounds(log_start) == (expected, 23)
    assert queue.bounds(0) == (3, 23)


def test_expiry_never_takes_the_last_file(tmp_path: Path, handles: FileHandles) -> None:
    queue = open_queue(tmp_path, handles)
    put(queue, 0, some(20))
    assert queue.drop_leading(700) == 0
    assert queue.drop_leading(701) == 1
    assert queue.drop_leading(1 << 60) == 1
    assert queue.bounds(1 << 60) == (20, 20)
    assert open_queue(tmp_path, handles).bounds(0) == (16, 20)
    put(queue, 20, [(1 << 60, 100, 0)])
    assert queue.bounds(1 << 60) == (20, 21)


def test_undo_leaves_the_files_as_they_were(tmp_path: Path, handles: FileHandles) -> None:
    queue = open_queue(tmp_path, handles)
    put(queue, 0, some(6))
    before = (tmp_path / "T" / "0" / f"{0:020d}").read_bytes()
    pending = queue.check([6, 7, 8], [600, 100, 0, 700, 100, 0, 800, 100, 0], 0, lambda _: None)
    assert pending is not None
    queue.write(pending)
    assert queue.end == 6
    assert sorted(units_of(queue)) == list(range(6))
    queue.undo(pending)
    assert (tmp_path / "T" / "0" / f"{0:020d}").read_bytes() == before
    assert open_queue(tmp_path, handles).end == 6


@pytest.mark.parametrize("first", [1, 5, 7, 8, 9, 16])
def test_offsets_go_on_after_a_cut_that_takes_all_units(
    tmp_path: Path, handles: FileHandles, first: int
) -> None:
    queue = open_queue(tmp_path, handles)
    put(queue, first, some(12, start=1000))
    for _ in range(2):
        queue.cut(1000)
        assert queue.bounds(0) == (first, first)
        queue = open_queue(tmp_path, handles)
        assert (queue.bounds(0), queue.physical_end, units_of(queue)) == ((first, first), 0, {})
    # What the original would take for a unit points at the start of a log long gone.
    (path,) = (tmp_path / "T" / "0").iterdir()
    blanks = first % PER_FILE
    expected = BLANK_UNIT * (blanks - 1) + pack_units((0, 1, 0)) if blanks else b""
    assert path.read_bytes() == expected.ljust(FILE_BYTES, b"\0")
    put(queue, first, some(12, start=1000))
    assert queue.bounds(0) == (first, first + 12)
    assert open_queue(tmp_path, handles).end == first + 12


class QueueMachine(RuleBasedStateMachine):
    """A file queue is a list of units, whatever is done to its files in between."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.handles = FileHandles(3)
        self.queue = open_queue(self.root, self.handles)
        self.units: dict[int, Unit] = {}  # what the log says
        self.end = 0
        self.log_end = 1
        self.log_start = 0
        self.durable = 0  # physical offset

    def teardown(self) -> None:
        self.handles.close()
        shutil.rmtree(self.root)

    @rule(sizes=st.lists(st.integers(2, 300), min_size=1, max_size=20), skip=st.integers(0, 30))
    def append(self, sizes: list[int], skip: int) -> None:
        if not self.end:
            self.end = skip
        first = self.end
        units = []
        for size in sizes:
            units.append((self.log_end, size, -size))
            self.units[self.end] = units[-1]
            self.end += 1
            self.log_end += size
        assert put(self.queue, first, units, self.log_start) == len(units)

    @rule()
    def dispatch_the_live_log_again(self) -> None:
        live = {at: unit for at, unit in self.units.items() if unit[0] >= self.log_start}
        if live:
            assert put(self.queue, min(live), list(live.values()), self.log_start) == 0

    @rule()
    def flush(self) -> None:
        self.handles.sync(*self.handles.take_dirty())
        self.durable = self.log_end

    @rule()
    def reopen(self) -> None:
        self.handles.close()
        self.queue = open_queue(self.root, self.handles)

    @rule(at=st.floats(0, 1))
    def truncate(self, at: float) -> None:
        offsets = [unit[0] for unit in self.units.values()] + [self.log_end]
        target = offsets[int(at * (len(offsets) - 1))]
        self.queue.cut(target)
        cut = [n for n, unit in self.units.items() if unit[0] >= target]
        if cut:
            self.end = min(cut)
        for n in cut:
            del self.units[n]
        self.log_end = min(self.log_end, target)
        self.log_start = min(self.log_start, self.log_end)
        self.durable = min(self.durable, self.log_end)

    @rule(at=st.floats(0, 1))
    def expire(self, at: float) -> None:
        self.log_start = max(self.log_start, int(self.log_end * at))
        self.queue.drop_leading(self.log_start)
        kept = self.queue.bounds(0).min_offset
        gone = [self.units.pop(n) for n in list(self.units) if n < kept]
        assert all(unit[0] < self.log_start for unit in gone)

    @precondition(lambda self: self.log_end > self.durable)
    @rule(data=st.data())
    def lose_power(self, data: st.DataObject) -> None:
        """Pages of units that were not durable are kept, zeroed or torn, each by itself."""
        self.handles.close()
        for offset, unit in self.units.items():
            if unit[0] < self.durable:
                continue
            start = offset * UNIT_SIZE // FILE_BYTES * FILE_BYTES
            path = self.root / "T" / "0" / f"{start:020d}"
            image = bytearray(path.read_bytes())
            position = offset * UNIT_SIZE - start
            # A unit lies across two pages at most, so one side of a cut can be lost.
            # A page begins with the file, so the first unit is whole or gone.
            cut = data.draw(st.sampled_from([0, 8, 12, UNIT_SIZE] if position else [UNIT_SIZE]))
            if data.draw(st.booleans()):
                image[position : position + cut] = bytes(cut)
            else:
                image[position + cut : position + UNIT_SIZE] = bytes(UNIT_SIZE - cut)
            path.write_bytes(image)
        self.queue = FileQueue("T", 0, str(self.root / "T" / "0"), FILE_BYTES, self.handles)
        self.queue.load(repair=True).cut(self.durable)
        # The log is durable in this test: all of it is dispatched again.
        again = {n: unit for n, unit in self.units.items() if unit[0] >= self.durable}
        if again:
            put(self.queue, min(again), list(again.values()), self.log_start)

    @invariant()
    def same_as_the_list(self) -> None:
        assert self.queue.end == self.end
        assert units_of(self.queue) == self.units
        live = [n for n, unit in self.units.items() if unit[0] >= self.log_start]
        low = min(live) if live else self.end
        assert self.queue.bounds(self.log_start) == (low, self.end)

    @invariant()
    def nothing_lies_beyond_the_end(self) -> None:
        for path in sorted(self.root.glob("T/0/*")):
            assert path.stat().st_size == FILE_BYTES
            data = path.read_bytes()
            beyond = max(0, self.end * UNIT_SIZE - int(path.name))
            assert not data[beyond:].strip(b"\0")
            assert valid_units(unpack_units(data)).any() or not self.units


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
