"""One walk over the log: the same steps as a plain reader takes, record by record, in any log."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import CorruptRecordError
from store.format.fast_scan import FastParser
from store.format.record import Found, check_record, dispatch_request
from store.log import log_bytes, log_walk
from store.log.log_bytes import PreadWindow, mapped, pread
from store.log.log_walk import Blank, Damage, End, Poison, Run, Step, walk
from store.log.segment_set import SegmentSet
from tests.support.damaged_log import SEGMENT, START, Harm, entries, harms, write_damaged
from tests.support.log_writer import Entry, LogWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.consume_queue import DispatchRequest

Steps = list["Step | DispatchRequest | int"]


def plainly(
    data: bytes, end: int | None, written_end: int | None, *, derive: bool
) -> Iterator[Step | DispatchRequest | int]:
    """What a walk must yield, its runs taken apart: a request or an offset for each record."""
    files_end = START + len(data)
    written_end = end if written_end is None else written_end
    at = START
    while at < (files_end if end is None else end):
        begin = (at - START) // SEGMENT * SEGMENT
        segment = data[begin : begin + SEGMENT]
        segment_end = START + begin + SEGMENT
        stop = min(SEGMENT, files_end - START if end is None else end - START - begin)
        position = at - START - begin
        checked = check_record(segment, position, stop, at)
        if checked.found is Found.RECORD:
            try:
                request = dispatch_request(segment, position)
                yield request if derive else at
            except CorruptRecordError as error:
                yield Poison(at, at + checked.size, error.reason) if derive else at
            at += checked.size
        elif checked.found is Found.BLANK:
            yield Blank(at, segment_end)
            at = segment_end
        else:
            reason = checked.reason
            if SEGMENT - position < 8:
                reason = "no blank record closes the segment"
            behind = next_by_bytes(segment, START + begin, at, START + begin + stop)
            if written_end is None:
                later = range(segment_end, files_end, SEGMENT)
                whole = (each for each in later if is_record(data, each))
                behind = next(whole, None) if behind is None else behind
            elif at >= written_end:
                behind = None
            elif behind is None:
                behind = min(segment_end, written_end)
            if behind is None:
                yield End(at, reason)
                return
            yield Damage(at, behind, reason)
            at = behind
    yield End(at, "end of what is written" if end is not None else "end of the last segment")


def next_by_bytes(segment: bytes, base: int, at: int, stop: int) -> int | None:
    for start in range(at + 1, stop):
        checked = check_record(segment, start - base, stop - base, start)
        if checked.found is Found.RECORD:
            return start
        remaining = int.from_bytes(segment[start - base : start - base + 4], "big")
        if checked.found is Found.BLANK and remaining == base + len(segment) - start:
            return start
    return None


def is_record(data: bytes, at: int) -> bool:
    begin = at - START
    return check_record(data[begin : begin + SEGMENT], 0, SEGMENT, at).found is Found.RECORD


def taken_apart(steps: list[Step], sizes: bytes, *, derive: bool) -> Steps:
    """The steps, with what a run says of itself held against what is in it."""
    found: Steps = []
    before = START
    for step in steps:
        if isinstance(step, Run):
            at = last = before
            while at < step.next_offset:
                if not derive:
                    found.append(at)
                last = at
                at += int.from_bytes(sizes[at - START : at - START + 4], "big")
            assert (at, last) == (step.next_offset, step.last_offset)
            found += step.requests
            assert step.record_count == len(step.requests) or not derive
        else:
            assert isinstance(step, End) or step.physical_offset == before
            found.append(step)
        before = step.next_offset
    return found


@given(
    st.lists(entries, min_size=1, max_size=25),
    st.lists(harms, max_size=3),
    st.data(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 2, 3, 4096]),
    st.sampled_from([mapped, pread, "window"]),
)
def test_a_walk_finds_what_a_plain_reader_finds(
    made: list[Entry],
    harmed: list[Harm],
    data: st.DataObject,
    crc_item: bool,
    derive: bool,
    count: int,
    how: object,
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_bytes, "_WINDOW_BYTES", 300)
        patch.setattr(log_walk, "_HELD_BYTES", 100)
        raw = write_damaged(Path(name), made, harmed, crc_item=crc_item)
        files_end = START + len(raw)
        end = data.draw(st.none() | st.just(files_end))
        written_end = data.draw(st.none() | st.integers(START, files_end)) if end is None else None
        segments = SegmentSet.load(Path(name), SEGMENT, read_only=True)
        steps = list(
            walk(
                segments,
                START,
                end=end,
                written_end=written_end,
                parser=FastParser() if derive else None,
                count=count,
                look=PreadWindow() if how == "window" else how,  # type: ignore[arg-type]
            )
        )
        segments.close()
    assert isinstance(steps[-1], End)
    assert all(step.record_count <= count for step in steps if isinstance(step, Run))
    expected = list(plainly(raw, end, written_end, derive=derive))
    assert taken_apart(steps, raw, derive=derive) == expected


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SegmentSet]:
    writer = LogWriter(tmp_path / "log", SEGMENT, start=START)
    writer.extend([Entry(body=bytes(500))] * 9)
    writer.flush()
    segments = SegmentSet.load(tmp_path / "log", SEGMENT)
    segments.truncate(writer.end)
    yield segments
    segments.close()


def test_it_ends_where_appends_go_on(log: SegmentSet) -> None:
    assert list(walk(log, START))[-1] == End(log.end_offset, "end of what is written")
    assert list(walk(log, log.end_offset)) == [End(log.end_offset, "end of what is written")]


def test_what_was_dropped_meanwhile_is_passed_over(log: SegmentSet) -> None:
    steps = walk(log, START, count=1)
    next(steps)
    for segment in log:
        segment.flush()
    log.drop_first()
    assert [type(step) for step in steps][-1] is End
    assert next(walk(log, START)).next_offset > log.first_offset


def test_it_holds_no_bytes_between_two_steps(log: SegmentSet) -> None:
    last = log.last
    assert last is not None
    steps = walk(log, START, count=1)
    next(steps)
    log.close()  # closes the mappings, unless bytes of them are held
    with pytest.raises(ValueError, match="closed"):
        last._map[0]
