"""Disk space of a directory, and what of it the system holds in memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK_BYTES = 512  # of st_blocks, whatever the file system's own is


def disk_bytes(directory: Path) -> dict[str, int]:
    """Allocated bytes of each entry of the store in `directory`; files may vanish meanwhile."""
    found: dict[str, int] = {}
    root = directory / "store"
    for entry in sorted(root.iterdir()) if root.exists() else ():
        total = 0
        for path in (entry, *entry.rglob("*")) if entry.is_dir() else (entry,):
            try:
                total += path.stat().st_blocks * _BLOCK_BYTES
            except FileNotFoundError:
                continue
        found[entry.name] = total
    return found


def drop_cached_log(directory: Path) -> None:
    """The log's pages that no process has touched through a mapping leave the page cache.

    So call it right after the store was opened. Dirty pages stay; so do those near the log's end.
    """
    for path in sorted((directory / "store" / "commitlog").glob("*")):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:  # a prepared segment got its name
            continue
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
