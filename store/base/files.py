"""File operations that leave durable directory entries."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING

from store.errors import DiskFullError, OutOfDescriptorsError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Suffix of a file until it is complete. A crash may leave such a file; nothing reads it.
TEMPORARY_SUFFIX = ".tmp"


#: Modes of new files and directories: the owner's, readable by the group. Existing ones keep
#: theirs.
FILE_MODE = 0o640
DIRECTORY_MODE = 0o750

_TOO_MANY = (errno.EMFILE, errno.ENFILE)


@contextlib.contextmanager
def raising_out_of_descriptors() -> Iterator[None]:
    """Turn an OSError for a lack of file descriptors into OutOfDescriptorsError."""
    try:
        yield
    except OSError as error:
        if error.errno not in _TOO_MANY:
            raise
        raise OutOfDescriptorsError(f"{error.filename}: {error.strerror}") from error


@contextlib.contextmanager
def raising_disk_full(path: Path, size: int) -> Iterator[None]:
    """Turn an OSError for a lack of disk space into DiskFullError, with the `size` in bytes."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DiskFullError(f"no space for {size} bytes of {path}: {error.strerror}") from error


def fsync_directory(path: Path) -> None:
    """Make all entries created, renamed or removed in `path` so far survive a power loss.

    Raises OSError, OutOfDescriptorsError.
    """
    with raising_out_of_descriptors():
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Create the directory `path` with its parents, durably. Repeatable."""
    missing = [path]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for directory in reversed(missing):
        directory.mkdir(DIRECTORY_MODE, exist_ok=True)
        fsync_directory(directory.parent)


def write_file(path: Path, data: bytes) -> None:
    """Replace `path` with `data`, durably; after a crash it holds either `data` or its old content.

    Written under a temporary name, fsynced and renamed over `path`; then the directory is fsynced.
    The file keeps its mode; a new one gets FILE_MODE. Raises OSError; `path` is then unchanged, and
    no temporary file is left.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        with open(temporary, "wb", opener=open_new) as file:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    fsync_directory(path.parent)


def open_new(path: str, flags: int) -> int:
    """An opener for `open` that creates files with FILE_MODE."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def move_aside(path: Path, why: str) -> Path:
    """Rename to `<name>.<why>-<number>`, with the first free number. Returns the new path."""
    aside = free_name(path, why)
    path.rename(aside)
    return aside


def free_name(path: Path, why: str) -> Path:
    """Returns `<name>.<why>-<number>` beside `path`, with the first free number."""
    number = 1
    while (aside := path.with_name(f"{path.name}.{why}-{number}")).exists():
        number += 1
    return aside
