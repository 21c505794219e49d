"""A directory of backups."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kvcq.errors import BackupDamagedError, BackupTargetError
from store.base import TEMPORARY_SUFFIX, fsync_directory, make_directory, open_new

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PIECE_BYTES = 256 << 10
#: Written out at a time, so that a flush of the store's log never waits behind a gigabyte of a
#: copy, and a copy's memory does not depend on the size of its files.
_SETTLE_BYTES = 32 << 20


class Directory:
    """Files below one directory. See Place.

    A file gets its name when it is complete and durable. A directory that disappears during a
    backup, because its disk is unmounted, is not created again, since that would write to another
    disk. `root` may be a symbolic link; links below it are rejected, as they lead out of the
    backup.
    """

    def __init__(self, root: Path, *, make: bool = False) -> None:
        # Constant after construction.
        self.names_first = False
        self.url = str(root)
        self._root = root
        with self._errors():
            if make:
                make_directory(root)
            found = root.stat()
            if not root.is_dir():
                raise BackupTargetError(f"{root} is not a directory")
        self._key = found.st_dev, found.st_ino

    def sizes(self, prefix: str) -> dict[str, int]:
        self._check_there()
        with self._errors():
            return {
                path.relative_to(self._root).as_posix(): self._not_a_link(path).stat().st_size
                for path in self._files(prefix)
                if path.suffix != TEMPORARY_SUFFIX and path.is_file()
            }

    def read(self, name: str) -> Iterator[bytes]:
        self._check_there()
        try:
            with self._path(name).open("rb") as file:
                while piece := file.read(PIECE_BYTES):
                    yield piece
        except FileNotFoundError:
            raise BackupDamagedError(f"{name} is missing in {self.url}") from None
        except OSError as error:
            raise self._failed(error) from error

    def put(
        self,
        stem: str,
        source: Path,
        size: int,
        tell: Callable[[bytes], None],
        name: Callable[[], str],
    ) -> None:
        with source.open("rb") as file:
            self._put(stem, pieces_of(file.fileno(), size), tell, name)

    def put_bytes(self, name: str, data: bytes) -> None:
        self._put(name, iter((data,)), lambda _: None, lambda: name)

    def _put(
        self,
        stem: str,
        pieces: Iterator[bytes],
        tell: Callable[[bytes], None],
        name: Callable[[], str],
    ) -> None:
        self._check_there()
        temporary = self._path(f"{stem}{TEMPORARY_SUFFIX}")
        with self._errors():
            temporary.parent.mkdir(parents=True, exist_ok=True)
            try:
                with open(temporary, "wb", buffering=0, opener=open_new) as file:
                    written = settled = 0
                    for piece in pieces:
                        left = memoryview(piece)
                        while left:
                            left = left[file.write(left) :]
                        tell(piece)
                        written += len(piece)
                        if written - settled >= _SETTLE_BYTES:
                            os.fdatasync(file.fileno())
                            _forget(file.fileno(), settled, written - settled)
                            settled = written
                    os.fsync(file.fileno())
                    _forget(file.fileno(), settled, 0)
                path = self._path(name())
                temporary.replace(path)
            except BaseException:
                with suppress(OSError):
                    temporary.unlink()
                raise
            self._settle(path)

    def remove(self, name: str) -> None:
        self._check_there()
        path = self._path(name)
        with self._errors():
            path.unlink(missing_ok=True)
            fsync_directory(path.parent)

    def unfinished(self, prefix: str) -> list[str]:
        self._check_there()
        with self._errors():
            return [
                path.relative_to(self._root).as_posix()
                for path in self._files(prefix)
                if path.suffix == TEMPORARY_SUFFIX
            ]

    def _files(self, prefix: str) -> list[Path]:
        """Also raises OSError for an unreadable directory, which `Path.rglob` would skip."""
        base = self._path(prefix)
        if not base.exists():
            return []
        return [
            Path(directory, name)
            for directory, _, names in os.walk(base, onerror=_raise)
            for name in names
        ]

    def link(self, name: str, source: Path) -> bool:
        self._check_there()
        path = self._path(name)
        with self._errors():
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.unlink(missing_ok=True)
            path.hardlink_to(source)
        except OSError:  # another file system, or one without hard links
            return False
        with self._errors():
            self._settle(path)
        return True

    def _path(self, name: str) -> Path:
        """Raises BackupTargetError if the path, or a directory above it, is a link."""
        path = self._root / name
        for each in (path, *path.parents):
            if each == self._root:
                break
            self._not_a_link(each)
        return path

    def _not_a_link(self, path: Path) -> Path:
        if path.is_symlink():
            raise BackupTargetError(
                f"{path} is a symbolic link, and backups do not follow links below {self.url}. "
                "Replace the link by what it points to, or back up to that place directly"
            )
        return path

    def _settle(self, path: Path) -> None:
        """Make its name, and those of directories created for it, durable."""
        for directory in path.parents:
            fsync_directory(directory)
            if directory == self._root:
                return

    def _check_there(self) -> None:
        with self._errors():
            found = self._root.stat()
        if (found.st_dev, found.st_ino) != self._key:
            raise BackupTargetError(f"{self.url} was replaced by another directory while in use")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> BackupTargetError:
        return BackupTargetError(f"{error.filename or self.url}: {error.strerror or error}")


def _raise(error: OSError) -> None:
    raise error


def pieces_of(descriptor: int, size: int) -> Iterator[bytes]:
    """The first `size` bytes of a file. The kernel may drop them from its cache afterwards, except
    pages that a process has mapped, such as those of a server's consumers. Raises OSError, also if
    the file is shorter."""
    at = forgotten = 0
    while at < size:
        piece = os.pread(descriptor, min(PIECE_BYTES, size - at), at)
        if not piece:
            raise OSError(errno.EIO, f"ends at {at}, before the {size} bytes it had")
        yield piece
        at += len(piece)
        if at - forgotten >= _SETTLE_BYTES:
            _forget(descriptor, forgotten, at - forgotten)
            forgotten = at
    _forget(descriptor, forgotten, 0)


def _forget(descriptor: int, at: int, size: int) -> None:
    """Let the kernel drop the range from its cache, since backups are not read soon. `size` 0: to
    the end."""
    os.posix_fadvise(descriptor, at, size, os.POSIX_FADV_DONTNEED)
