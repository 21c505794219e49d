"""Files that this process has open."""

from __future__ import annotations

from pathlib import Path


def open_files(directory: Path) -> int:
    """Of that directory; a mapping has one, which is listed as well.

    Of others the collector closes some whenever it likes.
    """
    files = [one.readlink() for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    return sum(file.is_relative_to(directory) for file in files)
