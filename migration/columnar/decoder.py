"""Decodes a commit log into blocks of records, range by range.

A range that does not begin at a segment's start finds its first record by searching. That is a
guess, because message bodies may contain anything. So every reader that ends before the segment's
end searches from its own end, too. If it does not find the record that its walk reached, the next
reader started at a wrong place, and the read fails. The first range of a segment begins at a
record, so if no range fails, all started correctly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from migration.columnar.log_layout import LogRange, Start, damage, open_segment
from migration.columnar.walk import Buffer, Stop, find_record, walk, walk_to

if TYPE_CHECKING:
    from collections.abc import Generator

    from migration.columnar.block import RecordBlock

#: Records of one batch. From 4,000 to 128,000 the size makes no difference to Spark.
BATCH_RECORDS = 32_768
#: A batch of large records is cut earlier, so that its columns stay far below Arrow's 2 GiB.
BATCH_BYTES = 64 << 20


class ReadOptions(NamedTuple):
    verify_crc: bool = False
    fail_on_corrupt: bool = True  # otherwise continue at the next record


DEFAULTS = ReadOptions()


def read_blocks(
    log_range: LogRange, options: ReadOptions = DEFAULTS
) -> Generator[RecordBlock, None, int]:
    """Yield the records of the range in log order. Returns the physical offset after the last one:
    the segment's end after a blank record, the range's end if no further record was found.

    Raises SegmentDamageError.
    """
    segment = log_range.segment
    data = open_segment(segment.path)
    base = segment.start
    limit = log_range.end - base
    at = _first_record(data, log_range)
    while at is not None and at < limit:
        walked = walk(data, base, at, limit, BATCH_RECORDS)
        block, at = walked.block, walked.next_position
        if options.verify_crc and (wrong := block.first_crc_mismatch()) is not None:
            index, reason = wrong
            position = int(block.physical_offset[index]) - base
            if options.fail_on_corrupt:
                raise damage(segment, position, reason)
            yield from block.first(index).pieces(BATCH_BYTES)
            at = find_record(data, base, position + 1, limit)
            continue
        yield from block.pieces(BATCH_BYTES)
        if walked.stop is Stop.NOTHING:
            if options.fail_on_corrupt:
                raise damage(segment, at, "no record")
            at = find_record(data, base, at + 1, limit)
        elif walked.stop is Stop.BLANK:
            return base + len(data)
        elif walked.stop is Stop.LIMIT and not log_range.last and options.fail_on_corrupt:
            _prove_next_start(data, log_range, at)
    return log_range.end if at is None else base + at


def _first_record(data: Buffer, log_range: LogRange) -> int | None:
    """Where to begin; None if no record begins in the range."""
    base = log_range.segment.start
    begin, limit = log_range.begin - base, log_range.end - base
    if log_range.start is Start.EXACT:
        return begin
    if log_range.start is Start.SEARCH:
        return find_record(data, base, begin, limit)
    at, stop = walk_to(data, base, 0, begin)
    if stop is Stop.LIMIT:
        return at
    return None if stop is Stop.BLANK else find_record(data, base, begin, limit)


def _prove_next_start(data: Buffer, log_range: LogRange, reached: int) -> None:
    """Check that a search from the range's end finds nothing before the record at `reached`."""
    base = log_range.segment.start
    guess = find_record(data, base, log_range.end - base, reached)
    if guess is not None:
        raise damage(
            log_range.segment,
            guess,
            "a message body holds the copy of a record, and a range was cut inside it;"
            " read whole segments instead (maxBytesPerPartition 0):",
        )
