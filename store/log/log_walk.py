"""The walk over the log: runs of whole records, and the gaps between them.

Everything that reads the log sequentially, on opening, behind the appender, for a repair, a check
or another side, uses this walk, and handles each kind of step. Records come in runs, so the walk
has no cost per record.

A walk must know whether bytes that are not a record are damage or the end of the log. Below
`written_end` everything was written, so they are damage. At or above it, anything that may be torn
is the end. A caller that knows no such offset, or knows that nothing can be torn, searches for
later records: if there is one, the bytes are damage, otherwise they are the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from store.errors import CorruptRecordError
from store.format import BLANK_BYTES, Found, check_record, dispatch_request, skip_whole
from store.log.log_bytes import mapped
from store.log.resync import find_next_record, next_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.consume_queue import DispatchRequest
    from store.format import FastParser
    from store.log.log_bytes import Look, Segments
    from store.log.segment import Segment

#: Records of a run, at most.
RUN = 4096
#: At least this much is held while records are looked at one after the other.
_HELD_BYTES = 64 << 10


class Run(NamedTuple):
    """Consecutive whole records."""

    # The requests derived from the records; empty in a walk without a parser.
    requests: list[DispatchRequest]
    record_count: int
    last_offset: int  # physical, where the last of them begins
    next_offset: int


class Blank(NamedTuple):
    """A blank record: the rest of the segment is unused."""

    physical_offset: int
    next_offset: int


class Poison(NamedTuple):
    """A whole record that no queue can hold."""

    physical_offset: int
    next_offset: int
    reason: str


class Damage(NamedTuple):
    """Bytes of the log that are not a record. The next step is what follows them."""

    physical_offset: int
    next_offset: int
    reason: str


class End(NamedTuple):
    """The end of the log, or of the requested range: the last step of every walk."""

    next_offset: int
    reason: str


Step = Run | Blank | Poison | Damage | End


def walk(
    log: Segments,
    start: int,
    *,
    end: int | None = None,
    written_end: int | None = None,
    may_be_torn: bool = True,
    parser: FastParser | None = None,
    count: int = RUN,
    look: Look = mapped,
) -> Iterator[Step]:
    """Walk the log from `start`, the beginning of a record. Changes nothing.

    Each step begins where the one before ends. Runs have at most `count` records; without a
    `parser` no requests are derived, and there is no poison. The walk ends at `end`, below which
    everything was written; without `end`, at the end of the log, see above: `may_be_torn` applies
    to bytes above `written_end`. Segments that are dropped from the front meanwhile are skipped. No
    bytes are held while the caller works. Raises what `look` raises, such as StoreClosedError.
    """
    if written_end is None:
        written_end = end
    at = start
    while end is None or at < end:
        segment = log.find(at)
        if segment is None:
            if at >= log.first_offset:
                yield End(at, "end of the last segment")
                return
            at = log.first_offset
            continue
        stop = segment.start_offset + segment.appended
        if end is not None:
            stop = min(stop, end)
        if at >= stop:
            break
        with _held(look, segment, at, stop) as view:
            run, behind = _run(view, segment, at, stop, parser, count)
        if run.record_count:
            yield run
            at = run.next_offset
        if isinstance(behind, str):
            gap = _gap(log, segment, at, stop, written_end, look, behind, may_be_torn)
            yield gap
            at = gap.next_offset
            if isinstance(gap, End):
                return
        elif behind is not None:
            yield behind
            at = behind.next_offset
    yield End(at, "end of what is written")


def _held(look: Look, segment: Segment, at: int, stop: int) -> memoryview:
    """The bytes from `at` on that are in memory; at least the whole first record, if there is
    one."""
    view = look(segment, at, stop, _HELD_BYTES)
    size = int.from_bytes(view[:4], "big", signed=True)
    return look(segment, at, stop, size) if len(view) < size <= stop - at else view


def _run(
    view: memoryview,
    segment: Segment,
    begin: int,
    stop: int,
    parser: FastParser | None,
    count: int,
) -> tuple[Run, Blank | Poison | str | None]:
    """Records from `begin` on, the start of the view, and what ended the run: None if more may
    follow; a text is the reason why there is no record."""
    at = last = begin
    held = begin + len(view)
    requests: list[DispatchRequest] = []
    passed = 0
    behind: Blank | Poison | str | None = None
    while True:
        if parser is None:
            at, sealed, newest = skip_whole(view, begin, at, held, count - passed)
            passed += sealed
            if sealed:
                last = newest
        else:
            run, at = parser.parse(view, begin, at, held, count - passed)
            passed += len(run)
            if run:
                last = run[-1].physical_offset
                requests += run
        if passed == count or at == stop or (held < stop and at > begin):
            break
        # A record of another kind, or none.
        position = at - begin
        checked = check_record(view, position, stop - begin, at)
        if checked.found is Found.BLANK:
            behind = Blank(at, segment.start_offset + segment.size)
            break
        if checked.found is Found.NOTHING:
            cut = segment.start_offset + segment.size - at < BLANK_BYTES
            behind = "no blank record closes the segment" if cut else checked.reason
            break
        if parser is not None:
            try:
                requests.append(dispatch_request(view, position))
            except CorruptRecordError as error:
                behind = Poison(at, at + checked.size, error.reason)
                break
        last = at
        at += checked.size
        passed += 1
    return Run(requests, passed, last, at), behind


def _gap(
    log: Segments,
    segment: Segment,
    at: int,
    stop: int,
    written_end: int | None,
    look: Look,
    reason: str,
    may_be_torn: bool,  # noqa: FBT001 - as the caller has it
) -> Damage | End:
    """Decide whether a missing record at `at` is damage or the end."""
    if written_end is None or (at >= written_end and not may_be_torn):
        goes_on = find_next_record(log, at, look)
        return End(at, reason) if goes_on is None else Damage(at, goes_on, reason)
    if at >= written_end:
        return End(at, reason)
    goes_on = next_record(segment, at, stop, look)
    if goes_on is None:
        goes_on = min(segment.start_offset + segment.size, written_end)
    return Damage(at, goes_on, reason)
