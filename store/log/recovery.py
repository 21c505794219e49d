"""Opening: finds the end of the log, and checks whether everything beyond its durable part is
whole.

Everything below the checkpoint's flushed offset was fsynced, so it is not read again. From there on
every record is checked, up to the first position without one.

After an unclean stop, with the checkpoint that was written last, that is the end of the log.
Everything behind it is a torn tail: bytes that were never acknowledged as durable. It is cut and
zeroed, so that no part of it can come back. A batch whose last record is missing was never
acknowledged either; it is cut where it begins. A whole segment behind the end that holds records is
set aside, not removed with the tail.

Otherwise, after a clean stop or if the checkpoint that was written last is lost, a position without
a record is only the end if no whole record follows. If one follows, it is damage, since more may
have been durable than is recorded. Nothing is cut then.
"""

from __future__ import annotations

import logging
import shlex
from typing import TYPE_CHECKING, NamedTuple

from store.errors import DamagedLogError, StoreFormatError
from store.format import BatchPlace, Found, place_of, store_time_of
from store.log.log_bytes import look_at, mapped
from store.log.log_walk import Damage, End, Run, walk
from store.log.resync import first_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.log.log_bytes import Look
    from store.log.segment import Segment
    from store.log.segment_set import SegmentSet

logger = logging.getLogger(__name__)

_PROGRESS_BYTES = 16 << 20
_WRITE_AGAIN_SEGMENTS = 2


class Recovered(NamedTuple):
    """The result of the scan."""

    end_offset: int  # of the log, after the cut
    last_store_time_ms: int | None  # of the last record scanned; None without one
    record_count: int  # scanned
    reason: str  # why the scan ended there
    last_offset: int | None = None  # where the last record scanned begins


def scan(
    segments: SegmentSet,
    start: int,
    progress: Callable[[int], None] | None = None,
    *,
    may_be_torn: bool = True,
    skip_damaged: bool = False,
) -> Recovered:
    """Check every record from `start`, the beginning of a record or the log's end. Changes nothing.

    If the tail `may_be_torn`, the log ends at the first position without a record. Otherwise raises
    DamagedLogError if the log continues behind such a position, unless `skip_damaged`.
    """
    count = 0
    last: int | None = None
    reported = end = start
    reason = ""
    for step in walk(segments, start, written_end=start, may_be_torn=may_be_torn):
        end = step.next_offset
        match step:
            case Damage() if not skip_damaged:
                raise DamagedLogError(*step, can_be_left_out=True)
            case Run():
                count += step.record_count
                last = step.last_offset
            case End():
                reason = step.reason
        if progress is not None and end - reported >= _PROGRESS_BYTES:
            reported = end
            progress(end)
    last_time = None if last is None else _store_time_at(segments, last)
    return Recovered(end, last_time, count, reason, last)


def recover_log(
    segments: SegmentSet,
    flushed_offset: int,
    progress: Callable[[int], None] | None = None,
    *,
    clean: bool,
    is_newest: bool = True,
    skip_damaged: bool = False,
    dispatched_offset: int = 0,
    before_cut: Callable[[int], None] = lambda _end: None,
) -> Recovered:
    """Find the end of the log, cut everything behind it, and leave a segment that takes appends.

    `flushed_offset`: a record boundary known to be durable, from the checkpoint; `is_newest`:
    whether that is the checkpoint that was written last. `dispatched_offset`: a record boundary
    that the derived database has seen. After a `clean` stop nothing is behind the end, and nothing
    is cut. `before_cut` is called with the end before segments are removed, to cut derived data.
    Raises StoreFormatError if files of the log are missing: it ends before `flushed_offset`, its
    files end before `dispatched_offset`, or after a clean stop it ends before that. Raises
    DamagedLogError if it continues behind damage that a power loss does not explain, unless
    `skip_damaged`. Nothing is changed then. Durability: the cut is fsynced.
    """
    if not len(segments):
        proven = max(flushed_offset, dispatched_offset)
        if proven > 0:
            raise StoreFormatError(
                segments.directory,
                f"no segments, but the log reached {proven}: files are missing. "
                "Restore them, or remove the whole store directory to start over",
            )
        segments.roll()
        return Recovered(0, None, 0, "a new log")
    files_end = segments.first_offset + len(segments) * segments.segment_bytes
    check_has_durable(segments, flushed_offset)
    if dispatched_offset > files_end:
        # A file is durable before its first record is written, and derived data is cut before files
        # are. So no crash leaves this state.
        raise _missing(segments, files_end, dispatched_offset)
    start = max(flushed_offset, segments.first_offset)
    found = scan(
        segments,
        start,
        progress,
        may_be_torn=is_newest,
        skip_damaged=skip_damaged,
    )
    if clean and is_newest and not _ends_there(segments, found.end_offset, flushed_offset):
        # Only now: to search what was made ready for later appends takes seconds.
        found = scan(segments, start, progress, may_be_torn=False, skip_damaged=skip_damaged)
    if not clean:
        found = _without_open_batch(segments, start, found)
        if not flushed_offset:
            # Without a checkpoint the scan begins far back, and it is not known what was flushed.
            least = found.end_offset - _WRITE_AGAIN_SEGMENTS * segments.segment_bytes
            start = max(start, least)
        _write_again(segments, start, found.end_offset)
    if clean and found.end_offset < dispatched_offset:
        raise _missing(segments, found.end_offset, dispatched_offset)
    before_cut(found.end_offset)
    files_end = _set_aside(segments, found.end_offset, files_end)
    if not clean and files_end:
        logger.info("the last run did not stop in order: the log ends at %d", found.end_offset)
    if found.end_offset == files_end:
        for segment in segments:
            segment.flush_file()
        segments.roll()
    else:
        was_there = segments.truncate(found.end_offset)
        if clean and was_there is not None:
            logger.error(
                "the log was closed in order and ends at %d, but bytes that are no record of it "
                "lay behind, from %d on: they are removed",
                found.end_offset,
                was_there,
            )
    return found


def check_has_durable(segments: SegmentSet, flushed_offset: int) -> None:
    """Raise StoreFormatError if files are missing: they end before what the checkpoint calls
    durable."""
    files_end = segments.first_offset + len(segments) * segments.segment_bytes
    if flushed_offset > files_end:
        raise StoreFormatError(
            segments.directory,
            f"ends at {files_end}, but was durable up to {flushed_offset}: files are missing. "
            f"`kvcq check {segments.directory.parent}` says what to do",
        )


def _ends_there(segments: SegmentSet, end: int, flushed_offset: int) -> bool:
    """Whether a cleanly closed log ends at its last checkpoint, with nothing written behind it."""
    last = segments.find(end)
    return end == flushed_offset and (last is None or last.is_zero_from(end - last.start_offset))


def holds_record(segment: Segment, look: Look = mapped) -> bool:
    """Whether the segment has a whole record anywhere."""
    begin = segment.start_offset
    return first_record(segment, begin, begin + segment.size, look) is not None


def _set_aside(segments: SegmentSet, end: int, files_end: int) -> int:
    """Move segments that hold whole records behind the log's `end` out of the log; returns the new
    end of its files. The first segment of the log stays.

    According to the checkpoint no flush covered them. But it may be wrong after two faults
    together, and segments that are set aside can be inspected.
    """
    behind = [segment for segment in list(segments)[1:] if segment.start_offset >= end]
    kept = [segment.start_offset for segment in behind if holds_record(segment)]
    if not kept:
        return files_end
    aside = segments.set_aside(kept)
    logger.error(
        "behind the log's end at %d, segments from %d on hold records that were in no flush that "
        "the checkpoint knows of, as a loss of power leaves them: they are set aside in %s. Remove "
        "it when nothing is missed: rm -r %s",
        end,
        kept[0],
        aside,
        shlex.quote(str(aside)),
    )
    return kept[0]


def _missing(segments: SegmentSet, end: int, dispatched_offset: int) -> StoreFormatError:
    return StoreFormatError(
        segments.directory,
        f"ends at {end}, but the queues have records up to {dispatched_offset}: the end of the log "
        "is missing, which no loss of power explains. Nothing was changed. Bring the segments back "
        "from a copy; or, to go on without those messages, have the queues rebuilt from what "
        f"is there: `kvcq repair {segments.directory.parent} --queues`",
    )


def _without_open_batch(segments: SegmentSet, start: int, found: Recovered) -> Recovered:
    """End the log before the batch that its last record leaves incomplete. Changes nothing."""
    place = None if found.last_offset is None else _place_at(segments, found.last_offset)
    if found.last_offset is None or place is None or place.is_last:
        return found
    begin = found.last_offset - place.distance
    first = _place_at(segments, begin) if begin >= start else None
    if first is None or first.distance:  # not one of our records, so the batch's begin is unknown
        logger.error("the last record, at %d, has an impossible place in its batch", begin)
        return found
    logger.info(
        "the batch at %d was not finished: its first %d bytes are left out",
        begin,
        found.end_offset - begin,
    )
    return found._replace(end_offset=begin, reason="a batch that was not finished")


def _store_time_at(segments: SegmentSet, offset: int) -> int:
    segment = segments.find(offset)
    assert segment is not None
    with segment.view(0, segment.size) as view:
        return store_time_of(view, offset - segment.start_offset)


def _place_at(segments: SegmentSet, offset: int) -> BatchPlace | None:
    """The batch place of the record at `offset`; None without a record or a place."""
    segment = segments.find(offset)
    if segment is None:
        return None
    end = segment.start_offset + segment.size
    checked, record = look_at(segment, offset, end, mapped)
    return place_of(record, 0) if checked.found is Found.RECORD else None


def _write_again(segments: SegmentSet, start: int, end: int) -> None:
    """Overwrite the records behind the durable part with themselves, so that they reach the disk
    even after a failed fsync."""
    for segment in segments:
        first = max(start - segment.start_offset, 0)
        last = min(end - segment.start_offset, segment.size)
        if first < last:
            segment.write_again(first, last)
