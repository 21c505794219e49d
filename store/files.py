"""Small steps on files that end in durable directory entries."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

#: What a file is called until it is complete. A crash may leave it; nothing reads it.
TEMPORARY_SUFFIX = ".tmp"


def fsync_directory(path: Path) -> None:
    """Entries created, renamed or removed in `path` so far survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """`path` is a directory, and its entry, and those of parents made for it, are durable."""
    missing = [path]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        fsync_directory(directory.parent)


def write_file(path: Path, data: bytes) -> None:
    """`path` holds exactly `data`, durably; after a crash, either that or what it held before.

    Written under a temporary name, fsynced, renamed over `path`, directory fsynced. Raises OSError;
    `path` is then unchanged, and no temporary file is left.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    fsync_directory(path.parent)
