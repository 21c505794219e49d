"""Where the log ends after a stop of any kind, and that nothing behind it comes back."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from store.errors import StoreFormatError
from store.log.recovery import recover_log, scan
from store.log.segment import Segment
from store.log.segment_set import SegmentSet
from tests.support.log_writer import Entry, LogWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEGMENT = 4096


class Log:
    """Segments that another writer made, and the set that recovers them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.writer = LogWriter(directory, SEGMENT)
        self.opened: list[SegmentSet] = []

    def write(self, count: int, time_ms: int = 1_700_000_000_456) -> None:
        entry = Entry(body=b"x" * 400, store_time_ms=time_ms)
        self.writer.extend([entry] * count)
        self.writer.flush()

    def load(self) -> SegmentSet:
        self.opened.append(SegmentSet.load(self.directory, SEGMENT))
        return self.opened[-1]

    def change(self, offset: int, data: bytes) -> None:
        path = self.writer.path_of(offset)
        whole = bytearray(path.read_bytes())
        whole[offset % SEGMENT : offset % SEGMENT + len(data)] = data
        path.write_bytes(whole)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    made = Log(tmp_path / "log")
    yield made
    for segments in made.opened:
        segments.close()


def test_a_new_log_begins_with_a_segment(log: Log) -> None:
    segments = log.load()
    recovered = recover_log(segments, 0, clean=True)
    assert recovered[:4] == (0, None, 0, "a new log")
    assert (len(segments), segments.end_offset) == (1, 0)


@pytest.mark.parametrize("clean", [False, True])
def test_the_end_is_found_over_segments(log: Log, clean: bool) -> None:
    log.write(20, 1_700_000_000_777)
    segments = log.load()
    recovered = recover_log(segments, 0, clean=clean)
    assert recovered[:3] == (log.writer.end, 1_700_000_000_777, 20)
    assert segments.end_offset == log.writer.end
    assert segments.last is not None
    assert segments.last.writable


def test_what_is_flushed_is_not_read_again(log: Log) -> None:
    log.write(12)
    flushed = log.writer.end
    log.change(log.writer.rows[2].physical_offset, b"damage")
    log.write(3)
    assert recover_log(log.load(), flushed, clean=False).record_count == 3


def test_the_scan_ends_at_the_first_byte_that_is_no_record(log: Log) -> None:
    log.write(20)
    torn = log.writer.rows[11]
    log.change(torn.physical_offset + 60, b"\xff" * 8)
    segments = log.load()
    assert scan(segments, 0).end_offset == torn.physical_offset
    recovered = recover_log(segments, 0, clean=False)
    assert recovered.end_offset == torn.physical_offset == segments.end_offset
    # Later segments are gone, the tail of this one is zero: a second recovery says the same.
    assert [int(path.name) for path in sorted(log.directory.iterdir())] == [0, SEGMENT]
    tail = log.writer.path_of(torn.physical_offset).read_bytes()
    assert not any(tail[torn.physical_offset % SEGMENT :])
    segments.close()
    assert recover_log(log.load(), 0, clean=False)[:3] == recovered[:3]


def test_an_old_record_in_a_new_place_ends_the_scan(log: Log) -> None:
    log.write(3)
    end = log.writer.end
    old = log.writer.rows[0].record
    log.change(end, old)  # says it lies at 0
    assert recover_log(log.load(), 0, clean=False).end_offset == end


def test_a_full_last_segment_is_followed_by_an_empty_one(log: Log) -> None:
    log.write(4)
    log.writer.roll()
    segments = log.load()
    recovered = recover_log(segments, 0, clean=False)
    assert recovered.end_offset == SEGMENT
    assert (len(segments), segments.end_offset) == (2, SEGMENT)


def test_an_empty_prepared_segment_stays_or_goes_but_harms_nothing(log: Log) -> None:
    log.write(2)
    (log.directory / f"{SEGMENT:020}").write_bytes(bytes(SEGMENT))
    segments = log.load()
    assert recover_log(segments, 0, clean=False).end_offset == log.writer.end
    assert segments.end_offset == log.writer.end


@pytest.mark.parametrize("behind", [9, 60])
@pytest.mark.parametrize("clean", [False, True])
def test_what_was_not_flushed_is_written_again(
    log: Log, monkeypatch: pytest.MonkeyPatch, clean: bool, behind: int
) -> None:
    # After a failed fsync the kernel may call pages clean that are on no disk.
    log.write(12)
    flushed = log.writer.end
    log.write(behind)
    before = {path: path.read_bytes() for path in log.directory.iterdir()}
    written: list[tuple[int, int]] = []
    write_again = Segment.write_again

    def noting(self: Segment, start: int, end: int) -> None:
        written.append((self.start_offset + start, self.start_offset + end))
        write_again(self, start, end)

    monkeypatch.setattr(Segment, "write_again", noting)
    recovered = recover_log(log.load(), flushed, clean=clean)
    if clean:
        assert written == []
    else:
        assert (written[0][0], written[-1][1]) == (flushed, recovered.end_offset)
        assert all(end == start for (_, end), (start, _) in pairwise(written))
    assert {path: path.read_bytes() for path in log.directory.iterdir()} == before


def test_missing_files_are_refused_not_made_up(log: Log) -> None:
    with pytest.raises(StoreFormatError, match="missing"):
        recover_log(log.load(), 100, clean=False)
    log.write(3)
    with pytest.raises(StoreFormatError, match="missing"):
        recover_log(log.load(), SEGMENT + 1, clean=False)
    assert len(list(log.directory.iterdir())) == 1  # nothing was changed


def test_a_log_whose_first_segments_expired(log: Log) -> None:
    log.write(30)
    for start in (0, SEGMENT):
        (log.directory / f"{start:020}").unlink()
    segments = log.load()
    recovered = recover_log(segments, 100, clean=False)  # an old checkpoint
    assert recovered.end_offset == log.writer.end
    assert recovered.record_count == sum(
        row.physical_offset >= 2 * SEGMENT for row in log.writer.rows
    )


def test_progress_is_told(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "log", 64 << 20)
    writer.extend([Entry(body=b"x" * (1 << 20)) for _ in range(40)])
    writer.flush()
    segments = SegmentSet.load(tmp_path / "log", 64 << 20)
    told: list[int] = []
    recovered = scan(segments, 0, told.append)
    segments.close()
    assert recovered.record_count == 40
    assert told == sorted(told)
    assert len(told) <= 3
