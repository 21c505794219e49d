"""A bounded set of open files. Tracks files with bytes that are not durable yet.

A broker may have 50,000 queues of one file each, and the process cannot have 50,000 open files.
Files are opened on access and closed when others need the slot.

Durable: nothing, until `sync` returns. A file that was closed with dirty pages is reopened for the
sync. The kernel keeps those pages, and errors of writing them back, by inode and not by handle, so
the sync covers them.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import OrderedDict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from store.base import FILE_MODE, Lock, fsync_directory, raising_out_of_descriptors
from store.errors import DiskFullError, OutOfDescriptorsError
from store.log import data_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable

_FULL = (errno.ENOSPC, errno.EDQUOT)


class _Handle:
    __slots__ = ("fd", "gone", "pins")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.pins = 0
        self.gone = False  # removed from the table: the last user closes it


class FileHandles:
    """Reads and writes files by path with at most about `limit` of them open.

    Thread: any. A handle in use is never closed, so more than `limit` threads may exceed it. Locks:
    only `_lock`, held while a file is opened, never during reads or writes.
    """

    def __init__(self, limit: int) -> None:
        self._lock = Lock()
        # Guarded by _lock. Least recently used file first.
        self._limit = limit
        self._table: OrderedDict[str, _Handle] = OrderedDict()
        self._dirty: set[str] = set()
        self._dirty_directories: set[str] = set()

    @property
    def open_count(self) -> int:
        return len(self._table)

    @property
    def dirty_count(self) -> int:
        return len(self._dirty)

    def read(self, path: str, size: int, position: int) -> bytes:
        """Up to `size` bytes at `position`; fewer at the end of the file.

        Raises FileNotFoundError.
        """
        handle = self._pin(path)
        try:
            return os.pread(handle.fd, size, position)
        finally:
            self._unpin(handle)

    def write(self, path: str, data: bytes | memoryview, position: int) -> None:
        """Write all of `data` into the page cache. Raises DiskFullError.

        The file must exist: a missing file is an error, and is not created.
        """
        handle = self._pin(path, dirty=True)
        try:
            written = os.pwrite(handle.fd, data, position)
            while written < len(data):
                written += os.pwrite(handle.fd, memoryview(data)[written:], position + written)
        except OSError as error:
            raise _told(error, path) from error
        finally:
            self._unpin(handle)

    def create(self, path: str, size: int) -> None:
        """Create a sparse file of `size` zero bytes, and mark its directory dirty. Sparse is safe:
        only `write` writes to it, and raises if the disk is full; a mapping would get a signal."""
        try:
            with self._lock:
                fd = self._open(path, os.O_CREAT | os.O_EXCL)
            try:
                os.ftruncate(fd, size)
            finally:
                os.close(fd)
        except OSError as error:
            raise _told(error, path) from error
        with self._lock:
            self._dirty.add(path)
        self.mark_directory(path.rpartition("/")[0])

    def resize(self, path: str, size: int) -> None:
        """Give an existing file its full size; new bytes are zero."""
        handle = self._pin(path, dirty=True)
        try:
            os.ftruncate(handle.fd, size)
        except OSError as error:
            raise _told(error, path) from error
        finally:
            self._unpin(handle)

    def clear(self, path: str, start: int, end: int) -> bool:
        """Overwrite bytes in [start, end) that are not zero. Returns whether there were any.

        Holes of a sparse file stay.
        """
        changed = False
        for first, last in self.data_ranges(path, start, end):
            for position in range(first, last, _CLEAR_CHUNK):
                size = min(_CLEAR_CHUNK, last - position)
                if self.read(path, size, position).strip(b"\0"):
                    self.write(path, bytes(size), position)
                    changed = True
        return changed

    def data_ranges(self, path: str, start: int, end: int) -> list[tuple[int, int]]:
        """Parts of [start, end) that may have non-zero bytes, ascending."""
        handle = self._pin(path)
        try:
            return list(data_ranges(handle.fd, start, min(end, os.fstat(handle.fd).st_size)))
        finally:
            self._unpin(handle)

    def remove(self, path: str) -> None:
        """Delete the file, if it exists. Durable after the next `sync`."""
        Path(path).unlink(missing_ok=True)
        self.forget([path])
        self.mark_directory(path.rpartition("/")[0])

    def forget(self, paths: Iterable[str]) -> None:
        """Drop the handles of files that were deleted or moved away. They need no sync."""
        with self._lock:
            for path in paths:
                self._dirty.discard(path)
                handle = self._table.pop(path, None)
                if handle is not None:
                    self._retire(handle)

    def forget_below(self, directory: str) -> None:
        """Call `forget` for every file below a directory, and for directories below it."""
        prefix = directory + "/"
        with self._lock:
            known = {*self._table, *self._dirty}
            self._dirty_directories = {
                path
                for path in self._dirty_directories
                if path != directory and not path.startswith(prefix)
            }
        self.forget(path for path in known if path.startswith(prefix))

    def mark_directory(self, directory: str) -> None:
        """Note that the directory's entries changed; `sync` makes that durable."""
        with self._lock:
            self._dirty_directories.add(directory)

    def take_dirty(self) -> tuple[set[str], set[str]]:
        """Return the files and directories that are not durable yet. They count as clean then."""
        with self._lock:
            files, self._dirty = self._dirty, set()
            directories, self._dirty_directories = self._dirty_directories, set()
            return files, directories

    def sync(self, files: Iterable[str], directories: Iterable[str]) -> None:
        """Make these durable. Skips files that were deleted meanwhile.

        Raises OSError as the kernel returned it; the caller must treat that as final. After
        OutOfDescriptorsError all of them count as dirty again.
        """
        files, directories = set(files), set(directories)
        try:
            for path in files:
                try:
                    handle = self._pin(path)
                except FileNotFoundError:
                    continue
                try:
                    os.fdatasync(handle.fd)
                finally:
                    self._unpin(handle)
            for directory in directories:
                with contextlib.suppress(FileNotFoundError):
                    fsync_directory(Path(directory))
        except OutOfDescriptorsError:
            with self._lock:
                self._dirty |= files
                self._dirty_directories |= directories
            raise

    def close(self) -> None:
        """Close every file. Repeatable; a later read reopens them."""
        with self._lock:
            handles = list(self._table.values())
            self._table.clear()
            for handle in handles:
                self._retire(handle)

    def _pin(self, path: str, *, dirty: bool = False) -> _Handle:
        with self._lock:
            handle = self._table.get(path)
            if handle is None:
                handle = _Handle(self._open(path))
                self._table[path] = handle
                handle.pins += 1
                if len(self._table) > self._limit:
                    self._evict(len(self._table) - self._limit)
            else:
                handle.pins += 1
                self._table.move_to_end(path)
            if dirty:  # before the write: a failed write may have changed the file, too
                self._dirty.add(path)
            return handle

    def _unpin(self, handle: _Handle) -> None:
        with self._lock:
            handle.pins -= 1
            if handle.gone and handle.pins == 0:
                os.close(handle.fd)

    def _open(self, path: str, more_flags: int = 0) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | more_flags
        with contextlib.suppress(OutOfDescriptorsError), raising_out_of_descriptors():
            return os.open(path, flags, FILE_MODE)
        # Other parts of the process need descriptors: use half as many from now on.
        self._limit = max(1, len(self._table) // 2)
        self._evict(len(self._table) - self._limit)
        with raising_out_of_descriptors():
            return os.open(path, flags, FILE_MODE)

    def _evict(self, count: int) -> None:
        idle = (path for path, handle in self._table.items() if not handle.pins)
        for path in list(islice(idle, count)):
            self._retire(self._table.pop(path))

    def _retire(self, handle: _Handle) -> None:
        handle.gone = True
        if handle.pins == 0:
            os.close(handle.fd)


_CLEAR_CHUNK = 1 << 16


def _told(error: OSError, path: str) -> Exception:
    if error.errno in _FULL:
        return DiskFullError(f"{path}: {error.strerror}")
    return error
