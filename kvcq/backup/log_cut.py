"""Finds where a copied log ends, or may be cut: at the end of a record, not inside a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from store.format import FastParser, place_of
from store.log import PreadWindow, Run, look_at, pread, walk

if TYPE_CHECKING:
    from store.log import SegmentSet


class LogEnd(NamedTuple):
    end_offset: int  # physical, exclusive
    last_time_ms: int  # store time of the last record; 0: none was found


def find_end(
    segments: SegmentSet,
    start: int,
    end: int,
    *,
    until_ms: int | None = None,
    until_offset: int | None = None,
) -> LogEnd:
    """The end of the last record of `start..end` that was stored at `until_ms` at the latest, ends
    at `until_offset` at the latest, and ends its batch.

    `start`: the beginning of a record or segment; everything below `end` was written. An incomplete
    batch at the log's end was never acknowledged. Raises OSError.
    """
    at = start
    last_time_ms = 0
    places: list[tuple[int, int]] = []  # the records of the last run that are kept: offset, time
    for step in walk(segments, start, end=end, parser=FastParser(), look=PreadWindow()):
        if isinstance(step, Run):
            kept = step.requests
            for number, request in enumerate(kept):
                late = until_ms is not None and request.store_time_ms > until_ms
                ends = request.physical_offset + request.record_size
                if late or (until_offset is not None and ends > until_offset):
                    kept = kept[:number]
                    break
            if kept:
                last_time_ms = kept[-1].store_time_ms
                places = [(one.physical_offset, one.store_time_ms) for one in kept]
                at = kept[-1].physical_offset + kept[-1].record_size
            if len(kept) < len(step.requests):
                break
        elif until_offset is not None and step.next_offset > until_offset:
            break
        at = max(at, min(step.next_offset, end))
    return _without_open_batch(segments, LogEnd(at, last_time_ms), places, start)


def _without_open_batch(
    segments: SegmentSet, found: LogEnd, records: list[tuple[int, int]], start: int
) -> LogEnd:
    if not records or found.end_offset <= start:
        return found
    last, _ = records[-1]
    segment = segments.find(last)
    assert segment is not None, "it was walked over"
    _, data = look_at(segment, last, segment.start_offset + segment.size, pread)
    place = place_of(data, 0)
    if place is None or place.is_last:
        return found
    begin = last - place.distance
    before = [time_ms for at, time_ms in records if at < begin]
    # A batch has one store time, or what came before it has an earlier one: never a later.
    return LogEnd(begin, before[-1] if before else found.last_time_ms)
