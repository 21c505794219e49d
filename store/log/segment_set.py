"""The segments of one commit log, in order.

Invariants
- Segments are contiguous and do not overlap, and all have the same size. So the segment of an
offset is found by arithmetic.
- Only the last one takes appends. Earlier ones count as appended to their end.
- The list is never modified in place: a thread that holds it may continue to read while others roll
or drop.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from store.base import TEMPORARY_SUFFIX, Lock, free_name, fsync_directory, make_directory
from store.errors import InvalidArgumentError, StoreFormatError
from store.log.segment import Segment, parse_segment_name, segment_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

logger = logging.getLogger(__name__)

#: Unit of `least_pages`, whatever the machine's own page size is (RocketMQ: OS_PAGE_SIZE).
PAGE_BYTES = 4096


class SegmentSource:
    """A source of new segments: creates each on demand, on the appender's thread."""

    def __init__(self, directory: Path, segment_bytes: int) -> None:
        self.directory = directory
        self.segment_bytes = segment_bytes

    def start(self) -> None:
        """From now on `take` creates no segment itself, if the source supports that. Repeatable."""

    def take(self, start_offset: int, count: int = 1) -> Segment:
        """An empty segment that begins at `start_offset`, the first of `count` needed ones.

        Raises DiskFullError, SegmentNotReadyError. A caller that is interrupted before it has the
        segment may repeat the call.
        """
        path = self.directory / segment_name(start_offset)
        if path.exists() and not _holds_data(path):
            path.unlink()  # made by a call that was interrupted before it could say so
        return Segment.create(path, start_offset, self.segment_bytes)

    def wait_ready(self, start_offset: int, timeout_s: float) -> bool:
        """Block until a `take` after SegmentNotReadyError is worth a retry. Returns False after
        `timeout_s`."""
        return True

    def stop(self) -> None:
        """Remove prepared segments that were not taken. Repeatable."""


class SegmentSet:
    """The segments of one directory, in order.

    Thread: `roll` and `truncate` belong to the appender (`truncate` before there are readers),
    `flush` to the flush thread, `drop_first` to retention, everything else to any thread. Locks:
    `_lock`, for changes of the list: copy, modify, replace. Readers take none. A reader whose
    segment is dropped gets StoreClosedError from it.
    """

    def __init__(
        self,
        directory: Path,
        segment_bytes: int,
        source: SegmentSource,
        segments: list[Segment] | None = None,
    ) -> None:
        """Takes over `segments`. Use `load`."""
        # Constant after construction.
        self.directory = directory
        self.segment_bytes = segment_bytes
        self._source = source
        # Owned by the appender: empty files after the log's end, created for later rolls.
        self._reserved: list[Segment] = []
        # Replaced as a whole, under _lock; read without.
        self._segments = segments or []
        self._lock = Lock()

    @classmethod
    def load(
        cls,
        directory: Path,
        segment_bytes: int,
        source: SegmentSource | None = None,
        *,
        read_only: bool = False,
    ) -> SegmentSet:
        """Load the segments in `directory`, each as if it were full; recovery cuts the last ones.

        Removes what a crash leaves while a segment is created: temporary files, and a last file
        that is too short and empty. With `read_only` these are ignored and nothing is created.
        Raises StoreFormatError, with path and reason, on a foreign file, a wrong length, a gap, or
        data in a file that is too short; DiskFullError if blocks of the last segment cannot be
        allocated.
        """
        if not read_only:
            make_directory(directory)
        files = _segment_files(directory, segment_bytes, read_only=read_only)
        segments: list[Segment] = []
        try:
            for path in files:
                last = path is files[-1]
                segments.append(Segment.open(path, segment_bytes, writable=last and not read_only))
        except BaseException:
            for segment in segments:
                segment.close()
            raise
        return cls(
            directory, segment_bytes, source or SegmentSource(directory, segment_bytes), segments
        )

    # --- looking ---------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Segment]:
        """The segments as they are now, oldest first."""
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def first_offset(self) -> int:
        """Physical offset of the log's first byte; 0 if there is no segment yet."""
        segments = self._segments
        return segments[0].start_offset if segments else 0

    @property
    def end_offset(self) -> int:
        """Physical end of the appended bytes, exclusive; 0 if there is no segment yet."""
        segments = self._segments
        return segments[-1].start_offset + segments[-1].appended if segments else 0

    @property
    def last(self) -> Segment | None:
        """The segment that takes appends; None before the first `roll`."""
        segments = self._segments
        return segments[-1] if segments else None

    def find(self, physical_offset: int) -> Segment | None:
        """The segment whose file covers the offset, appended or not; None if there is none."""
        segments = self._segments
        if not segments:
            return None
        index = (physical_offset - segments[0].start_offset) // self.segment_bytes
        return segments[index] if 0 <= index < len(segments) else None

    # --- changing --------------------------------------------------------------------------

    def roll(self) -> Segment:
        """Seal the last segment and begin the next; returns it, empty.

        Raises DiskFullError, SegmentNotReadyError; the last segment is then unchanged and still
        takes appends.
        """
        self.reserve(1)
        segment = self._reserved[0]
        last = self.last
        if last is not None:
            end = last.start_offset + self.segment_bytes
            assert segment.start_offset == end, f"{segment!r} does not follow {last!r}"
            last.seal()
        with self._lock:
            self._segments = [*self._segments, segment]
        del self._reserved[0]  # last, so that an interrupt does not lose it
        return segment

    def reserve(self, count: int) -> None:
        """Prepare everything for the next `count` rolls, so that they cannot fail.

        Raises DiskFullError, SegmentNotReadyError; segments created so far are kept for later
        rolls. A crash leaves empty segments behind the end of the log, which the next recovery
        removes.
        """
        last = self.last
        end = last.start_offset + self.segment_bytes if last is not None else 0
        reserved = self._reserved
        if reserved and reserved[0] is last:  # an interrupted roll
            del reserved[0]
        while (have := len(reserved)) < count:
            start = end + have * self.segment_bytes
            reserved.append(self._source.take(start, count - have))

    def create_segments_in_background(self) -> None:
        """From now on rolls create no segments themselves; another thread does. Repeatable."""
        self._source.start()

    def wait_ready(self, start_offset: int, timeout_s: float) -> bool:
        """Block until a roll that raised SegmentNotReadyError is worth a retry. Returns False after
        `timeout_s`.

        Must not be called with a lock held.
        """
        return self._source.wait_ready(start_offset, timeout_s)

    def truncate(self, offset: int) -> int | None:
        """Cut the log at `offset`: later segments are removed, and the tail of its segment is
        zeroed.

        The segment that begins at `offset` stays, empty. Returns the physical offset of the first
        byte of the tail that was not zero, if there was one. Raises InvalidArgumentError if
        `offset` is outside the log, OSError. Durability: on return nothing above `offset` comes
        back, and everything below is durable, also what a killed process left only in the page
        cache. Segments are removed last one first, so a crash in between leaves a log without a
        gap, to be cut again.
        """
        if not self._segments and offset == 0:
            return None
        assert not self._reserved, "cut while something is appended"
        end = self.first_offset + len(self._segments) * self.segment_bytes
        if not self.first_offset <= offset <= end:
            raise InvalidArgumentError(
                "offset", f"{offset} is outside the log, {self.first_offset} to {end}"
            )
        while len(self._segments) > 1 and self._segments[-1].start_offset > offset:
            with self._lock:
                segment = self._segments[-1]
                self._segments = self._segments[:-1]
            segment.destroy()
        for segment in self._segments:
            segment.flush_file()
        last = self._segments[-1]
        changed = last.zero_from(offset - last.start_offset)
        return None if changed is None else last.start_offset + changed

    def set_aside(self, starts: Sequence[int]) -> Path:
        """End the log before the first of these segments, given oldest first, and move their files.
        Returns the new directory.

        It is beside the log's directory. Later segments that are not among `starts` are removed.
        Raises OSError. Durability: segments are moved last one first, so a crash in between leaves
        a log without a gap; already moved ones are then in another directory than the rest.
        """
        aside = free_name(self.directory, "cut")
        make_directory(aside)
        while len(self._segments) > 1 and self._segments[-1].start_offset >= starts[0]:
            with self._lock:
                segment = self._segments[-1]
                self._segments = self._segments[:-1]
            if segment.start_offset in starts:
                segment.path.rename(aside / segment.path.name)
                fsync_directory(aside)
                fsync_directory(self.directory)
                segment.close()
            else:
                segment.destroy()
        return aside

    def drop_first(self) -> Segment:
        """Remove the oldest segment with its file; returns it, closed.

        Raises InvalidArgumentError for the last segment, and for one that is not flushed; OSError
        if the file cannot be removed, and then the segment stays as well. Durability: the removal
        is fsynced before the next one can begin, so no gap can appear.
        """
        segments = self._segments
        if len(segments) < 2:
            raise InvalidArgumentError("segment", "the last segment is never dropped")
        segment = segments[0]
        if segment.flushed < segment.appended:
            raise InvalidArgumentError("segment", f"{segment!r} is not flushed")
        segment.unlink()
        with self._lock:
            self._segments = self._segments[1:]
        segment.close()
        return segment

    # --- durability ------------------------------------------------------------------------

    def flush(self, least_pages: int = 0) -> int:
        """Flush if at least `least_pages` pages wait, with 0 if any do. Returns the flushed end.

        Oldest first, so that the durable part is contiguous from the start. A full segment is
        flushed whatever `least_pages` says. Raises OSError.
        """
        segments = self._segments
        if not segments:
            return 0
        first = len(segments) - 1
        while first > 0 and segments[first - 1].flushed < segments[first - 1].size:
            first -= 1
        flushed = segments[first].start_offset
        for segment in segments[first:]:
            waiting = segment.appended // PAGE_BYTES - segment.flushed // PAGE_BYTES
            if segment.appended == segment.size or waiting >= least_pages:
                segment.flush()
            flushed = segment.start_offset + segment.flushed
        return flushed

    def close(self) -> None:
        """Close all segments without a flush, and remove prepared ones. Repeatable."""
        # Last one first: a crash in between leaves no gap.
        self._source.stop()
        last = self.last
        while self._reserved:
            segment = self._reserved.pop()
            if segment is last:  # an interrupted roll
                continue
            try:
                segment.destroy()
            except OSError:
                logger.exception("%r stays behind: the next recovery removes it", segment)
        for segment in self._segments:
            segment.close()


def _segment_files(directory: Path, segment_bytes: int, *, read_only: bool) -> list[Path]:
    """Files of valid segments, in order. Removes what a crash left, unless `read_only`."""
    files: list[Path] = []
    leftovers: list[Path] = []
    for path in sorted(directory.iterdir()):
        if path.is_dir():
            continue
        if parse_segment_name(path.name) is not None:
            files.append(path)
        elif (
            path.suffix == TEMPORARY_SUFFIX
            and parse_segment_name(path.name.removesuffix(TEMPORARY_SUFFIX)) is not None
        ):
            leftovers.append(path)
        else:
            raise StoreFormatError(
                path,
                "is not a segment of a commit log: move it elsewhere, then open the store again",
            )
    if files and files[-1].stat().st_size < segment_bytes:
        # Our own segments get their name when they are complete; other writers' do not.
        if _holds_data(files[-1]):
            raise StoreFormatError(
                files[-1],
                f"holds data but has {files[-1].stat().st_size} bytes, a segment here has "
                f"{segment_bytes}: it was cut short, or the store has another segment size",
            )
        leftovers.append(files.pop())
    for path in leftovers:
        logger.warning(
            "%s: an unfinished segment without data, %s",
            path,
            "left alone" if read_only else "removed",
        )
        if not read_only:
            path.unlink()
    if leftovers and not read_only:
        fsync_directory(directory)
    _check_order(files, segment_bytes)
    return files


def _check_order(files: list[Path], segment_bytes: int) -> None:
    expected: int | None = None
    for path in files:
        length = path.stat().st_size
        if length != segment_bytes:
            raise StoreFormatError(path, f"has {length} bytes, a segment here has {segment_bytes}")
        start = int(path.name)
        if start % segment_bytes:
            raise StoreFormatError(
                path, f"does not begin at a multiple of the segment size {segment_bytes}"
            )
        if expected is not None and start != expected:
            raise StoreFormatError(
                path, f"segment {segment_name(expected)} is missing before this one"
            )
        expected = start + segment_bytes


def _holds_data(path: Path) -> bool:
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            if chunk.count(0) != len(chunk):
                return True
    return False
