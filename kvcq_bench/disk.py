"""Disk space of a directory."""

from __future__ import annotations

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
