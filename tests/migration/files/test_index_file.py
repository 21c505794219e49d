"""Index files against the bytes of the original, and a brute-force search."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migration.errors import IndexFileError
from migration.files.handles import FileHandles
from migration.files.index import IndexFileSet
from migration.files.index_file import IndexFile
from migration.formats.index import (
    ENTRY,
    HEADER,
    IndexLayout,
    index_key,
    index_name,
    key_hashes,
    parse_index_name,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TIME = 1_700_000_000_456
TINY = IndexLayout(slots=4, entries=4)
SMALL = IndexLayout(slots=3, entries=6)

GOLDEN_TINY = """
00 00 01 8b cf e5 69 c8 00 00 01 8b cf e5 73 8c
00 00 00 00 00 00 10 00 00 00 00 00 00 00 20 00
00 00 00 02 00 00 00 04 00 00 00 03 00 00 00 02
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 29 e6 a8
00 00 00 00 00 00 10 00 00 00 00 00 00 00 00 00
00 29 e6 a9 00 00 00 00 00 00 10 00 00 00 00 00
00 00 00 00 00 29 e6 ac 00 00 00 00 00 00 20 00
00 00 00 02 00 00 00 01
"""


class FixedClock:
    def __init__(self, now: int = TIME) -> None:
        self.now = now

    def now_ms(self) -> int:
        return self.now

    def monotonic_s(self) -> float:
        return 0.0


class Log:
    """Store times by physical offset."""

    def __init__(self) -> None:
        self.times: dict[int, int] = {}

    def store_time_ms(self, physical_offset: int) -> int | None:
        return self.times.get(physical_offset)


def make_set(
    root: Path, layout: IndexLayout = SMALL, log: Log | None = None, now: int = TIME
) -> IndexFileSet:
    store_time_ms = (log or Log()).store_time_ms
    return IndexFileSet(root / "index", layout, FileHandles(4), FixedClock(now), store_time_ms)


def save(index: IndexFileSet) -> None:
    index.write_back()
    index._handles.sync(*index._handles.take_dirty())


def reopen(root: Path, layout: IndexLayout = SMALL, log: Log | None = None) -> IndexFileSet:
    index = make_set(root, layout, log)
    index.load()
    return index


def java_hash(text: str) -> int:
    value, units = 0, text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


@pytest.mark.parametrize(
    ("key", "java", "key_hash", "slot_byte"),
    [
        ("TopicTest#k1", 2746024, 2746024, 10984136),
        ("TopicTest#0A0000010D2A2A9F0001", -1012031116, 1012031116, 8124504),
        ("AaTopic#Aa", -10606476, 10606476, 2425944),
        ("AaTopic#BB", -10606476, 10606476, 2425944),
        ("BBTopic#BB", -10606476, 10606476, 2425944),
        ("polygenelubricants", -2147483648, 0, 40),
    ],
)
def test_key_hash_is_the_original_one(key: str, java: int, key_hash: int, slot_byte: int) -> None:
    assert java_hash(key) == java
    assert key_hashes([key]).tolist() == [key_hash]
    layout = IndexLayout()
    assert layout.slot_position(key_hash % layout.slots) == slot_byte


@given(st.lists(st.text(st.characters(), max_size=300)))
def test_many_hashes_at_once_are_the_single_ones(keys: list[str]) -> None:
    expected = [abs(java_hash(key)) % (1 << 31) for key in keys]
    assert key_hashes(keys).tolist() == expected


def test_default_layout_has_the_size_of_the_original() -> None:
    assert IndexLayout().file_bytes == 420_000_040
    assert IndexLayout().entry_position(1) == 20_000_060


def test_tiny_file_has_the_bytes_of_the_original(tmp_path: Path) -> None:
    index = make_set(tmp_path, TINY)
    index.insert(
        [(4096, TIME, "TopicTest", ["k1", "k2"]), (8192, TIME + 2500, "TopicTest", ["k5"])]
    )
    save(index)
    (path,) = (tmp_path / "index").iterdir()
    assert path.read_bytes() == bytes.fromhex(GOLDEN_TINY.replace("\n", " "))
    assert TINY.file_bytes == 136


def test_one_batch_and_single_inserts_write_the_same(tmp_path: Path) -> None:
    records = [(100 * n, TIME + 700 * n, "T", [f"k{n % 5}", f"u{n}"]) for n in range(30)]
    batch, single = make_set(tmp_path / "a"), make_set(tmp_path / "b")
    for root in ("a", "b"):
        (tmp_path / root).mkdir()
    batch.insert(records)
    for record in records:
        single.insert([record])
    save(batch)
    save(single)
    left, right = (sorted((tmp_path / root / "index").iterdir()) for root in ("a", "b"))
    assert [path.name for path in left] == [path.name for path in right]
    assert [path.read_bytes() for path in left] == [path.read_bytes() for path in right]
    assert len(left) == 12  # 60 keys, 5 a file


def test_h23_first_entry_of_a_rolled_file_counts_from_its_own_begin(tmp_path: Path) -> None:
    index = make_set(tmp_path)
    index.insert([(100 * n, TIME + 60_000 * n, "T", ["k"]) for n in range(7)])
    save(index)
    second = sorted((tmp_path / "index").iterdir())[1].read_bytes()
    header = HEADER.unpack_from(second)
    assert header == (TIME + 300_000, TIME + 360_000, 500, 600, 1, 3)
    first_entry = ENTRY.unpack_from(second, SMALL.entry_position(1))
    assert first_entry[2] == 0
    assert ENTRY.unpack_from(second, SMALL.entry_position(2))[2] == 60


def test_entry_zero_stays_zero_and_a_file_takes_one_less(tmp_path: Path) -> None:
    index = make_set(tmp_path)
    index.insert([(n, TIME, "T", ["k"]) for n in range(5)])
    save(index)
    (path,) = (tmp_path / "index").iterdir()
    data = path.read_bytes()
    assert HEADER.unpack_from(data)[5] == SMALL.entries
    assert not data[SMALL.entry_position(0) : SMALL.entry_position(1)].strip(b"\0")


def test_file_names_rise_when_the_clock_does_not(tmp_path: Path) -> None:
    index = make_set(tmp_path)
    index.insert([(n, TIME, "T", ["k"]) for n in range(17)])
    names = sorted(path.name for path in (tmp_path / "index").iterdir())
    assert len(names) == 4
    assert all(parse_index_name(name) is not None for name in names)
    assert index_name(TIME - 10_000, names[-1]) > names[-1]


def test_dispatching_again_adds_nothing(tmp_path: Path) -> None:
    records = [(100 * n, TIME + n, "T", ["u", f"k{n}"]) for n in range(9)]
    index = make_set(tmp_path)
    index.insert(records)
    index.insert(records)
    save(index)
    again = reopen(tmp_path)
    again.insert(records)
    assert again.entry_count == 18
    again.insert([(900, TIME, "T", ["k9"])])
    assert again.entry_count == 19


def test_keys_of_one_message_in_two_files_are_not_doubled(tmp_path: Path) -> None:
    record = (100, TIME, "T", [f"k{n}" for n in range(13)])
    index = make_set(tmp_path)
    index.insert([record])
    save(index)
    again = reopen(tmp_path)
    again.insert([record])
    assert (again.file_count, again.entry_count) == (3, 13)


def test_interrupted_message_goes_on_with_its_next_key(tmp_path: Path) -> None:
    index = make_set(tmp_path)
    index.insert([(100, TIME, "T", ["a", "b"])])
    index.insert([(100, TIME, "T", ["a", "b", "c"])])
    assert index.entry_count == 3
    assert index.candidates("T", "c", 0, 1 << 62) == [[100]]


def brute_force(
    records: Sequence[tuple[int, int, str, Sequence[str]]], key: str, begin: int, end: int
) -> list[int]:
    return [offset for offset, time, _, keys in records if key in keys and begin <= time <= end]


@settings(max_examples=60, deadline=None)
@given(
    gaps=st.lists(st.integers(0, 3000), min_size=1, max_size=40),
    begin=st.integers(-2000, 40_000),
    length=st.integers(0, 20_000),
    on_disk=st.booleans(),
)
def test_no_message_is_missed_for_its_milliseconds(
    tmp_path_factory: pytest.TempPathFactory,
    gaps: list[int],
    begin: int,
    length: int,
    on_disk: bool,
) -> None:
    root = tmp_path_factory.mktemp("index")
    times = np.cumsum(gaps).tolist()
    records = [(100 * n, TIME + time, "T", [f"k{n % 3}"]) for n, time in enumerate(times)]
    index = make_set(root)
    index.insert(records)
    if on_disk:
        save(index)
        index = reopen(root)
    first, last = TIME + begin, TIME + begin + length
    for key in ("k0", "k1", "k2"):
        found = [offset for file in index.candidates("T", key, first, last) for offset in file]
        assert found == sorted(found)
        assert set(brute_force(records, key, first, last)) <= set(found)
        # And no more than the rounded second, or a file's first entry, can explain.
        wide = brute_force(records, key, first - 999, last + 999)
        assert len(set(found) - set(wide)) <= index.file_count * 2


def test_chain_that_leads_in_a_circle_ends(tmp_path: Path) -> None:
    index = make_set(tmp_path)
    index.insert([(n, TIME, "T", ["k"]) for n in range(5)])
    save(index)
    (path,) = (tmp_path / "index").iterdir()
    data = bytearray(path.read_bytes())
    at = SMALL.entry_position(3)
    fields = ENTRY.unpack_from(data, at)
    ENTRY.pack_into(data, at, *fields[:3], 5)
    path.write_bytes(data)
    assert reopen(tmp_path).candidates("T", "k", 0, 1 << 62) == [[2, 3, 4]]


@pytest.mark.parametrize(
    ("position", "number", "reason"),
    [(36, 7, "next entry is 7, of 6"), (36, -1, "next entry is -1"), (32, 4, "4 slots are used")],
)
def test_counts_out_of_range_are_reported(
    tmp_path: Path, position: int, number: int, reason: str
) -> None:
    index = make_set(tmp_path)
    index.insert([(n, TIME, "T", ["k"]) for n in range(3)])
    save(index)
    (path,) = (tmp_path / "index").iterdir()
    data = bytearray(path.read_bytes())
    data[position : position + 4] = number.to_bytes(4, "big", signed=True)
    path.write_bytes(data)
    with pytest.raises(IndexFileError, match=reason) as caught:
        reopen(tmp_path)
    assert (caught.value.path, caught.value.position) == (path, position)


def test_every_cut_of_a_file_is_reported(tmp_path: Path) -> None:
    index = make_set(tmp_path, TINY)
    index.insert([(0, TIME, "T", ["k"])])
    save(index)
    (path,) = (tmp_path / "index").iterdir()
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(IndexFileError) as caught:
            reopen(tmp_path, TINY)
        assert caught.value.position == size


def test_foreign_names_are_left_alone(tmp_path: Path) -> None:
    index = make_set(tmp_path)
    index.insert([(0, TIME, "T", ["k"])])
    save(index)
    (tmp_path / "index" / "00000000000000000000").write_bytes(b"a queue file")
    (tmp_path / "index" / "readme").write_bytes(b"")
    assert reopen(tmp_path).file_count == 1


def test_expiry_takes_whole_files_and_never_the_last(tmp_path: Path) -> None:
    index = make_set(tmp_path)
    index.insert([(100 * n, TIME, "T", ["k"]) for n in range(12)])
    assert index.expire(400) == 0
    assert index.expire(401) == 1
    assert index.expire(1 << 60) == 1
    assert (index.file_count, index.end_offset) == (1, 1100)


def images(index: IndexFileSet, root: Path) -> dict[str, bytes]:
    save(index)
    return {path.name: path.read_bytes() for path in sorted((root / "index").iterdir())}


@settings(max_examples=40, deadline=None)
@given(keys=st.lists(st.integers(0, 3), min_size=1, max_size=30), at=st.floats(0, 1))
def test_cut_leaves_the_bytes_of_never_having_had_more(
    tmp_path_factory: pytest.TempPathFactory, keys: list[int], at: float
) -> None:
    root = tmp_path_factory.mktemp("index")
    log = Log()
    records = []
    for n, count in enumerate(keys):
        log.times[100 * n] = TIME + 400 * n
        records.append((100 * n, TIME + 400 * n, "T", [f"k{m}" for m in range(count)]))
    kept = int(at * len(records))
    (root / "a").mkdir()
    (root / "b").mkdir()
    cut, short = make_set(root / "a", log=log), make_set(root / "b", log=log)
    cut.insert(records)
    cut.cut(100 * kept)
    short.insert(records[:kept])
    (root / "b" / "index").mkdir(exist_ok=True)
    (root / "a" / "index").mkdir(exist_ok=True)
    assert images(cut, root / "a") == images(short, root / "b")
    cut.insert(records)
    short.insert(records)
    assert images(cut, root / "a") == images(short, root / "b")


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_h22_what_a_crash_left_is_brought_back_from_the_log(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Entries that were not durable are kept, lost or torn; slots and header are behind."""
    root = tmp_path_factory.mktemp("index")
    log = Log()
    records = []
    for n in range(data.draw(st.integers(1, 14))):
        log.times[100 * n] = TIME + 400 * n
        records.append((100 * n, TIME + 400 * n, "T", ["u", f"k{n % 2}"]))
    durable = data.draw(st.integers(0, len(records)))
    index = make_set(root, log=log)
    index.insert(records[:durable])
    save(index)
    index.insert(records[durable:])
    if data.draw(st.booleans()):
        index.write_back()  # a flush was on its way
    for path in sorted((root / "index").iterdir()):
        image = bytearray(path.read_bytes())
        for number in range(1, SMALL.entries):
            at = SMALL.entry_position(number)
            if ENTRY.unpack_from(image, at)[1] >= 100 * durable and data.draw(st.booleans()):
                lost = data.draw(st.sampled_from([4, 12, 20]))
                image[at : at + lost] = bytes(lost)
        path.write_bytes(image)
    index = make_set(root, log=log)
    index.recover(100 * durable)
    index.insert(records[durable:])
    for key in ("u", "k0", "k1"):
        found = [offset for file in index.candidates("T", key, 0, 1 << 62) for offset in file]
        assert found == brute_force(records, key, 0, 1 << 62)


def test_file_that_was_never_sized_is_removed_after_a_crash(tmp_path: Path) -> None:
    index = make_set(tmp_path)
    index.insert([(0, TIME, "T", ["k"])])
    save(index)
    newest = tmp_path / "index" / "99990101000000000"
    newest.write_bytes(b"")
    index = make_set(tmp_path)
    index.recover(100)
    assert not newest.exists()
    assert index.entry_count == 1


def test_index_is_found_through_one_file_after_sealing(tmp_path: Path) -> None:
    handles = FileHandles(2)
    file = IndexFile(tmp_path / "20240101000000000", SMALL, handles).create()
    hashes = key_hashes([index_key("T", "k")])
    file.insert(hashes, np.array([7]), np.array([TIME]))
    file.write_back(seal=True)
    hits = list(file.candidates(int(hashes[0]), 0, 1 << 62))
    assert hits == [7]
