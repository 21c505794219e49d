"""The columnar walk finds the records that the store's walk finds, in any log, and no others."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from migration.columnar.decoder import ReadOptions, read_blocks
from migration.columnar.errors import SegmentDamageError
from migration.columnar.log_layout import list_segments, read_layout, split
from migration.columnar.walk import find_record
from store.format.fast_scan import FastParser
from store.log.log_walk import Damage, Poison, Run, walk
from store.log.segment_set import SegmentSet
from tests.support.damaged_log import SEGMENT, START, Harm, entries, harms, write_damaged
from tests.support.log_writer import Entry, LogWriter

LENIENT = ReadOptions(verify_crc=True, fail_on_corrupt=False)
STRICT = ReadOptions(verify_crc=True)


def columnar(directory: Path, end: int, options: ReadOptions) -> tuple[list[int], list[int], int]:
    """Offsets of records that queues can hold, of poison, and of the first damage."""
    sound: list[int] = []
    poison: list[int] = []
    layout = read_layout(directory, end=end)
    try:
        for log_range in split(layout, START, end, 0):
            for block in read_blocks(log_range, options):
                bad = (block.queue_id < 0) | (block.queue_offset < 0) | block.undecodable
                offsets = block.physical_offset
                poison += offsets[bad].tolist()
                sound += offsets[~bad].tolist()
    except SegmentDamageError as error:
        return sound, poison, error.physical_offset
    return sound, poison, end


@given(st.lists(entries, min_size=1, max_size=25), st.lists(harms, max_size=3), st.booleans())
def test_both_walks_find_the_same(made: list[Entry], harmed: list[Harm], crc_item: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        end = START + len(write_damaged(Path(name), made, harmed, crc_item=crc_item))
        segments = SegmentSet.load(Path(name), SEGMENT, read_only=True)
        steps = list(walk(segments, START, end=end, parser=FastParser()))
        segments.close()
        found = columnar(Path(name), end, LENIENT)
        first_damage = columnar(Path(name), end, STRICT)[2]
        assert len(list_segments(Path(name))[0]) == (end - START) // SEGMENT
    runs = [step.requests for step in steps if isinstance(step, Run)]
    sound = [request.physical_offset for run in runs for request in run]
    poison = [step.physical_offset for step in steps if isinstance(step, Poison)]
    damage = [step.physical_offset for step in steps if isinstance(step, Damage)]
    assert found == (sound, poison, end)
    assert first_damage == (damage[0] if damage else end)


class Mapped(bytes):
    """As a mapping is searched before Python 3.11.4: up to the byte behind the end."""

    __slots__ = ()

    def find(self, sub: Any, start: Any = 0, end: Any = None, /) -> int:  # noqa: ANN401
        assert end < len(self), "there may be nothing behind a mapping: a segmentation fault"
        return super().find(sub, start, end)


def test_a_mapping_is_searched_to_no_byte_behind_it(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "log", SEGMENT)
    row = writer.append(Entry(body=b"x" * 100))
    record = Mapped(row.record)
    assert find_record(record, 0, 0, len(record)) == 0
    assert find_record(Mapped(bytes(50) + record), -50, 0, 50 + len(record)) == 50
    assert find_record(record, 0, 1, len(record)) is None
