"""Runs of records read beside the log that has them open: what `CommitLog` gives, or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.errors import CorruptRecordError, MessageNotFoundError
from store.log.record_run import LogFiles, run_end, verify
from tests.support.log_writer import Entry, LogWriter

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


@pytest.mark.parametrize("crc_item", [True, False])
def test_runs_over_several_files_are_read_whole_or_not_at_all(
    tmp_path: Path, crc_item: bool
) -> None:
    writer = LogWriter(tmp_path / "log", SEGMENT, crc_item=crc_item)
    rows = [writer.append(Entry(body=b"x" * 500)) for _ in range(20)]
    places = [(row.physical_offset, len(row.record)) for row in rows]
    writer.flush()
    files = LogFiles(tmp_path / "log", SEGMENT)
    assert files.read_all(places) == [row.record for row in rows]
    assert files.read_all(places[3::4]) == [row.record for row in rows[3::4]]
    with pytest.raises(CorruptRecordError):
        files.read_all([*places[:5], (places[5][0] + 1, places[5][1])])
    for start in (SEGMENT, 2 * SEGMENT):
        (tmp_path / "log" / f"{start:020d}").unlink()
    with pytest.raises(MessageNotFoundError, match="its segment is gone"):
        files.read_all(places)


def test_a_run_ends_at_a_gap_at_the_limit_and_where_places_fall() -> None:
    close, far = (100, 50), (1 << 20, 50)
    assert run_end([(0, 100), close, far], 0, 1 << 30) == 150
    assert run_end([(0, 100), close], 0, 120) == 100
    assert run_end([(0, 100), (50, 100)], 0, 1 << 30) == 100
    assert run_end([(0, 1 << 30), close], 0, 50) == 1 << 30, "the first is read whatever it is"
