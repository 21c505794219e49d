"""Runs of records read beside the log that has them open: what `CommitLog` gives, or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.errors import CorruptRecordError, MessageNotFoundError, StoreFormatError
from store.log.record_run import MOST_MAPS, LogFiles, LogMaps, run_end, verify
from tests.support.log_writer import Entry, LogWriter
from tests.support.open_files import open_files

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT = 4096


def test_records_of_others_are_verified_too(tmp_path: Path) -> None:
    row = LogWriter(tmp_path / "log", SEGMENT, crc_item=False).append(Entry())
    verify(row.record, 0, len(row.record))
    with pytest.raises(CorruptRecordError):
        verify(row.record, 1, len(row.record))
    with pytest.raises(CorruptRecordError):
        verify(row.record, 0, len(row.record) - 1)
    for size in (0, 1, 19, 21):
        with pytest.raises(CorruptRecordError):
            verify(row.record[:size], 0, size)


@pytest.mark.parametrize("kind", [LogFiles, LogMaps])
@pytest.mark.parametrize("crc_item", [True, False])
def test_runs_over_several_files_are_read_whole_or_not_at_all(
    tmp_path: Path, crc_item: bool, kind: type[LogFiles]
) -> None:
    writer = LogWriter(tmp_path / "log", SEGMENT, crc_item=crc_item)
    rows = [writer.append(Entry(body=b"x" * 500)) for _ in range(20)]
    places = [(row.physical_offset, len(row.record)) for row in rows]
    writer.flush()
    files = kind(tmp_path / "log", SEGMENT)
    assert files.read_all(places) == [row.record for row in rows]
    assert files.read_all(places[3::4]) == [row.record for row in rows[3::4]]
    with pytest.raises(CorruptRecordError):
        files.read_all([*places[:5], (places[5][0] + 1, places[5][1])])
    for start in (SEGMENT, 2 * SEGMENT):
        (tmp_path / "log" / f"{start:020d}").unlink()
    if isinstance(files, LogMaps):
        assert files.read_all(places) == [row.record for row in rows], "it is mapped still"
        files.let_go()
        files.read_all(places[:1])
        files.let_go()
    with pytest.raises(MessageNotFoundError, match="its segment is gone"):
        files.read_all(places)


def test_few_files_are_mapped_and_none_that_is_not_read(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "log", SEGMENT)
    rows = [writer.append(Entry(body=b"x" * 3000)) for _ in range(2 * MOST_MAPS)]
    places = [(row.physical_offset, len(row.record)) for row in rows]
    writer.flush()
    maps = LogMaps(tmp_path / "log", SEGMENT)
    for _ in range(2):
        assert maps.read_all(places) == [row.record for row in rows]
        assert maps.count == MOST_MAPS == open_files(tmp_path)
    maps.let_go()
    maps.read_all(places[-2:])
    maps.let_go()
    assert maps.count == 2 == open_files(tmp_path)
    maps.let_go()
    assert maps.count == 0 == open_files(tmp_path)


def test_a_file_that_is_too_short_is_not_mapped(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "log", SEGMENT)
    row = writer.append(Entry())
    writer.flush()
    (tmp_path / "log" / f"{0:020d}").write_bytes(row.record)
    with pytest.raises(StoreFormatError, match=f"a segment here has {SEGMENT}"):
        LogMaps(tmp_path / "log", SEGMENT).read_all([(0, len(row.record))])


def test_a_run_ends_at_a_gap_at_the_limit_and_where_places_fall() -> None:
    close, far = (100, 50), (1 << 20, 50)
    assert run_end([(0, 100), close, far], 0, 1 << 30) == 150
    assert run_end([(0, 100), close], 0, 120) == 100
    assert run_end([(0, 100), (50, 100)], 0, 1 << 30) == 100
    assert run_end([(0, 1 << 30), close], 0, 50) == 1 << 30, "the first is read whatever it is"
