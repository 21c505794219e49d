"""One file of the commit log: of fixed size, with allocated blocks, mapped into memory.

Invariants
- A file with a segment's name has its full length and all its blocks from the start: it is created
under a temporary name, and renamed once it is durable. Writing to a sparse mapping on a full disk
would raise SIGBUS, which kills the process; here a full disk is DiskFullError.
- Bytes at and above `appended` are zero in a segment that takes appends.
- 0 <= flushed <= appended <= size. `appended` moves on the appender's thread, `flushed` on the
flush thread; any thread may read both.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
from typing import TYPE_CHECKING

from store.base import (
    FILE_MODE,
    TEMPORARY_SUFFIX,
    Lock,
    fsync_directory,
    raising_disk_full,
    raising_out_of_descriptors,
)
from store.errors import InvalidArgumentError, StoreClosedError, StoreFormatError
from store.log.file_ranges import (
    CHUNK_BYTES,
    ZEROS,
    allocate,
    data_ranges,
    not_zero,
    write_all,
    zero_out,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

logger = logging.getLogger(__name__)

NAME_DIGITS = 20
#: Appends of at least this many bytes are written through the file, see `Segment.append`.
WRITTEN_BYTES = 32 << 10
#: A flush of less than this is a small one, see `Segment.append`.
SMALL_FLUSH_BYTES = 128 << 10
#: Zeros written ahead at a time. A flush has them to write: more are a longer wait for that one.
ZEROED_BYTES = 128 << 10
_PAGE_BYTES = 4096


def segment_name(start_offset: int) -> str:
    """File name of the segment that begins at `start_offset`; names sort as offsets do."""
    return f"{start_offset:0{NAME_DIGITS}d}"


def parse_segment_name(name: str) -> int | None:
    """Start offset in a segment's file name; None if it is not such a name."""
    if len(name) == NAME_DIGITS and name.isascii() and name.isdigit():
        return int(name)
    return None


class Segment:
    """One preallocated, mapped file.

    Thread: `append`, `buffer`, `seal`, `zero_from` belong to the appender (or to recovery, before
    there is one); `flush` to the flush thread; `read`, `pread`, `view`, `close` to any thread.
    Locks: `_lock`, innermost: counts the users of the file descriptor, so that it is closed after
    the last of them; never held while a file is read, written or flushed. Closing: later readers
    get StoreClosedError. Views handed out stay readable; the mapping is released with the last of
    them.
    """

    __slots__ = (
        "_are_flushes_small",
        "_closed",
        "_descriptor",
        "_limit",
        "_lock",
        "_map",
        "_users",
        "_zeroed",
        "appended",
        "copied",
        "flushed",
        "path",
        "size",
        "start_offset",
    )

    def __init__(
        self, path: Path, start_offset: int, size: int, descriptor: int, *, writable: bool
    ) -> None:
        """Takes over `descriptor`. Use `create` or `open`."""
        # Constant after construction.
        self.path = path
        self.start_offset = start_offset
        self.size = size
        # Position in the file, bytes.
        self.appended = 0
        self.flushed = 0
        # Bytes that appends copied into the mapping; their pages had to be in memory, or were
        # faulted in.
        self.copied = 0
        # Owned by the appender: appends end at or below this; 0 once sealed or closed, so that
        # the hot path has one comparison for "full", "sealed" and "closed".
        self._limit = size if writable else 0
        # Owned by the appender: zeros were written ahead of the appended bytes up to here.
        self._zeroed = 0
        # Set by the thread that flushes, read by the appender.
        self._are_flushes_small = False
        self._map = _map(descriptor, size, writable=writable)
        # Guarded by _lock.
        self._lock = Lock()
        self._descriptor = descriptor
        self._users = 0
        self._closed = False

    # --- making and opening ----------------------------------------------------------------

    @classmethod
    def create(cls, path: Path, start_offset: int, size: int) -> Segment:
        """Create an empty segment of zeros. `size` must be a multiple of the page size.

        Raises DiskFullError, OutOfDescriptorsError; no file is left then. Durability: file, length,
        blocks and directory entry survive a power loss on return. A crash before that leaves a file
        under a temporary name, or none.
        """
        if path.exists():
            raise StoreFormatError(path, "already exists, but a new segment needs that name")
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        temporary.unlink(missing_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with raising_disk_full(path, size), raising_out_of_descriptors():
            descriptor = os.open(temporary, flags, FILE_MODE)
            try:
                allocate(descriptor, 0, size)
                os.fsync(descriptor)
                temporary.rename(path)
                fsync_directory(path.parent)
                return cls(path, start_offset, size, descriptor, writable=True)
            except BaseException:
                os.close(descriptor)
                for leftover in (temporary, path):
                    with contextlib.suppress(OSError):
                        leftover.unlink()
                raise

    @classmethod
    def open(cls, path: Path, size: int, *, writable: bool = False) -> Segment:
        """Open the segment in `path` as if it were full; recovery finds its end, and cuts it there.

        With `writable` all its blocks are allocated first, since files copied or made by others may
        be sparse; otherwise nothing on disk is touched. Raises StoreFormatError if name or length
        is wrong, DiskFullError.
        """
        start_offset = parse_segment_name(path.name)
        if start_offset is None:
            raise StoreFormatError(path, f"not a segment: the name is not {NAME_DIGITS} digits")
        flags = os.O_RDWR if writable else os.O_RDONLY
        descriptor = os.open(path, flags | os.O_CLOEXEC)
        try:
            length = os.fstat(descriptor).st_size
            if length != size:
                raise StoreFormatError(path, f"has {length} bytes, a segment here has {size}")
            if writable:
                with raising_disk_full(path, size):
                    allocate(descriptor, 0, size)
            segment = cls(path, start_offset, size, descriptor, writable=writable)
        except BaseException:
            os.close(descriptor)
            raise
        segment.appended = segment.flushed = size
        return segment

    # --- appending -------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        """Whether it takes appends: not sealed, opened read-only, or closed."""
        return self._limit > 0

    @property
    def buffer(self) -> mmap.mmap:
        """The mapping, for writing in place.

        Bytes written at or above `appended` are not readable until the caller raises `appended`. Do
        not export views of it that outlive the segment's use.
        """
        return self._map

    def append(self, data: bytes | bytearray | memoryview) -> int:
        """Append `data`; returns the position it begins at. Not durable yet.

        A long append is written through the file, into the pages that the mapping shows. The kernel
        takes it in large pieces and need not clear pages that it is about to fill. On a virtual
        machine that saves a quarter of the server's cost for a message of 1 KiB.

        Where flushes are small, a short append does the same, and also writes zeros ahead. The
        first write to a block makes the file system journal it, and a flush waits for that as long
        as for the data. With zeros ahead, one flush journals the blocks of many appends.
        """
        start = self.appended
        size = len(data)
        end = start + size
        if end > self._limit:
            raise self._refusal(size)
        is_small = self._are_flushes_small
        if is_small and end > self._zeroed:
            self._zero_ahead(end)
        if not (is_small or size >= WRITTEN_BYTES) or not self._write(data, start):
            self._map[start:end] = data
            self.copied += size
        self.appended = end
        return start

    def seal(self) -> None:
        """Stop appends. The rest of the file counts as appended; it stays zero, or blank.

        The mapping stays as it is, since replacing a mapping of 1 GiB would stop the appender while
        the old pages are unmapped.
        """
        self._limit = 0
        self.appended = self.size

    def is_zero_from(self, position: int) -> bool:
        """Whether only zeros follow from `position` on. Fast even for an unused tail of 1 GiB."""
        with self._in_use() as descriptor:
            # As in `zero_from`.
            os.posix_fadvise(descriptor, position, 0, os.POSIX_FADV_DONTNEED)
            return not any(
                True
                for start, end in data_ranges(descriptor, position, self.size)
                for _ in not_zero(descriptor, start, end)
            )

    def zero_from(self, position: int) -> int | None:
        """Cut the segment at `position`, from where it takes appends again.

        Everything from `position` on becomes zero, with allocated blocks. Only existing data is
        overwritten, so an unused tail of 1 GiB takes no time. Returns the position of the first
        byte that was not zero, if there was one. Raises OSError, DiskFullError. Durability: on
        return the whole file is fsynced, including the part before `position`.
        """
        if not 0 <= position <= self.size:
            raise InvalidArgumentError("position", f"{position} is outside 0 to {self.size}")
        self._reopen_writable()
        with self._in_use() as descriptor, raising_disk_full(self.path, self.size):
            self.appended = position
            self.flushed = min(self.flushed, position)
            # Pages that were only read count as data: let the kernel forget them. What was written
            # and is not on the disk yet stays.
            os.posix_fadvise(descriptor, position, 0, os.POSIX_FADV_DONTNEED)
            changed: list[int] = []
            for start, end in data_ranges(descriptor, position, self.size):
                zero_out(descriptor, start, end, changed)
            if position < self.size:
                allocate(descriptor, position, self.size - position)
            os.fsync(descriptor)
        self.flushed = position
        self._limit = self.size
        return changed[0] if changed else None

    # --- reading ---------------------------------------------------------------------------

    def read(self, position: int, size: int) -> bytes:
        """A copy of bytes below `appended`. Raises InvalidArgumentError, StoreClosedError.

        For hot data: reading a page from disk holds the GIL.
        """
        if position < 0 or size < 0 or position + size > self.appended:
            raise self._out_of_bounds(position, size)
        if self._closed:
            raise StoreClosedError(f"segment {self.path.name}")
        try:
            data: bytes = self._map[position : position + size]
        except ValueError as error:  # closed since the check
            raise StoreClosedError(f"segment {self.path.name}") from error
        return data

    def view(self, position: int, size: int) -> memoryview:
        """Like `read`, without the copy. Read-only; keeps the mapping alive until released."""
        if position < 0 or size < 0 or position + size > self.appended:
            raise self._out_of_bounds(position, size)
        if self._closed:
            raise StoreClosedError(f"segment {self.path.name}")
        try:
            return memoryview(self._map)[position : position + size].toreadonly()
        except ValueError as error:  # closed since the check
            raise StoreClosedError(f"segment {self.path.name}") from error

    def pread(self, position: int, size: int) -> bytes:
        """Like `read`, through the file, which releases the GIL during disk reads."""
        if position < 0 or size < 0 or position + size > self.appended:
            raise self._out_of_bounds(position, size)
        with self._in_use() as descriptor:
            try:
                data = os.pread(descriptor, size, position)
                while len(data) < size:  # a signal may cut a read short; the file's end may not
                    more = os.pread(descriptor, size - len(data), position + len(data))
                    if not more:
                        raise StoreFormatError(self.path, f"ends within {position} to {self.size}")
                    data += more
            except OSError as error:  # an error of the descriptor, so it names no file
                reason = f"{error.strerror}, reading {size} bytes at {position}"
                raise OSError(error.errno, reason, str(self.path)) from error
        return data

    def written_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of the positions start..end that may have non-zero bytes, ascending.

        Leaves out blocks that were allocated and never written, if the file system can tell.
        """
        with self._in_use() as descriptor:
            yield from data_ranges(descriptor, start, end)

    def touch(self, position: int, size: int) -> None:
        """Load these pages of the file into memory, appended or not. Releases the GIL."""
        with self._in_use() as descriptor:
            os.pread(descriptor, size, position)

    # --- durability and end of life --------------------------------------------------------

    def flush(self) -> int:
        """Make everything appended before the call durable; returns that position.

        Uses os.fdatasync, which writes the same pages as mmap.flush but releases the GIL. Length
        and blocks do not change, so only data has to be flushed. Raises OSError; the state of bytes
        above `flushed` is then unknown permanently, see the flush services.
        """
        end = self.appended
        if end > self.flushed:
            self.flush_file()
            self._are_flushes_small = end - self.flushed < SMALL_FLUSH_BYTES
            self.flushed = end
        return end

    def flush_file(self) -> None:
        """Make the whole file durable, whoever wrote it. Raises OSError."""
        with self._in_use() as descriptor:
            os.fdatasync(descriptor)

    def write_again(self, start: int, end: int) -> None:
        """Overwrite start..end with its own bytes, so that the next flush really writes it.

        After a failed fsync the kernel may mark pages clean that never reached the disk. Reads
        return them while they are in memory, and fsync would report them as durable. Raises
        OSError.
        """
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            for position in range(start, end, CHUNK_BYTES):
                size = min(CHUNK_BYTES, end - position)
                write_all(descriptor, os.pread(descriptor, size, position), position)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Close the file without a flush. Repeatable."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._limit = 0
            if self._users == 0:
                os.close(self._descriptor)
        # With views still out the mapping stays until the last of them is gone.
        with contextlib.suppress(BufferError):
            self._map.close()

    @property
    def is_removed(self) -> bool:
        """Whether the file has no name any more, so that data written to it will be lost."""
        with self._in_use() as descriptor:
            return os.fstat(descriptor).st_nlink == 0

    def destroy(self) -> None:
        """Remove the file and close it. Durability: it does not come back after a crash."""
        self.unlink()
        self.close()

    def unlink(self) -> None:
        """Remove the file, durably; the segment stays readable until `close`. Repeatable."""
        self.path.unlink(missing_ok=True)
        fsync_directory(self.path.parent)

    def __repr__(self) -> str:
        return f"<Segment {self.path.name} appended={self.appended} flushed={self.flushed}>"

    # --- inside ----------------------------------------------------------------------------

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[int]:
        """The descriptor, kept open meanwhile: a closed number may be reused for another file."""
        with self._lock:
            if self._closed:
                raise StoreClosedError(f"segment {self.path.name}")
            self._users += 1
            descriptor = self._descriptor
        try:
            yield descriptor
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._closed and self._users == 0:
                os.close(self._descriptor)

    def _zero_ahead(self, end: int) -> None:
        """Write zeros behind `end`, over zeros."""
        last = min(-(-end // _PAGE_BYTES) * _PAGE_BYTES + ZEROED_BYTES, self.size)
        self._write(ZEROS[: last - end], end)
        self._zeroed = last

    def _write(self, data: bytes | bytearray | memoryview, position: int) -> bool:
        """Whether the file took all of it. A partial write does not fail the append: the mapping
        takes the rest, and the next flush reports what is wrong with the disk."""
        with self._in_use() as descriptor:
            try:
                return os.pwrite(descriptor, data, position) == len(data)
            except OSError as error:
                logger.warning("%s: writing through the mapping: %s", self.path, error)
                return False

    def _reopen_writable(self) -> None:
        """Replace a read-only descriptor and mapping."""
        with self._lock:
            if self._closed:
                raise StoreClosedError(f"segment {self.path.name}")
            assert self._users == 0, "cut while in use"
            descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            old_map, self._map = self._map, _map(descriptor, self.size, writable=True)
            os.close(self._descriptor)
            self._descriptor = descriptor
        with contextlib.suppress(BufferError):
            old_map.close()

    def _refusal(self, size: int) -> Exception:
        if self._closed:
            return StoreClosedError(f"segment {self.path.name}")
        return InvalidArgumentError(
            "data", f"{size} bytes at {self.appended} do not fit in {self!r}, size {self.size}"
        )

    def _out_of_bounds(self, position: int, size: int) -> InvalidArgumentError:
        return InvalidArgumentError(
            "position", f"{size} bytes at {position} are not below {self.appended} in {self!r}"
        )


def _map(descriptor: int, size: int, *, writable: bool) -> mmap.mmap:
    return mmap.mmap(descriptor, size, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
