"""A file system of a few megabytes that a test fills up and empties again."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class SmallDisk:
    """In memory, so that filling it costs nothing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._filler = root / "filler"

    def fill(self) -> None:
        """No page is left."""
        descriptor = os.open(self._filler, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        page = bytes(4096)
        try:
            while True:
                os.write(descriptor, page)
        except OSError:
            pass
        finally:
            os.close(descriptor)

    def free(self, size: int | None = None) -> None:
        """That many bytes are free again; all of them without a size."""
        if size is None:
            self._filler.unlink()
        else:
            os.truncate(self._filler, self._filler.stat().st_size - size)


@contextmanager
def small_disk(root: Path, size_bytes: int = 160 << 20) -> Iterator[SmallDisk]:
    """Mounted at `root`; the test is skipped where that is not allowed."""
    root.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(root)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False, text=True)
    except FileNotFoundError:
        pytest.skip("no mount command")
    if mounted.returncode != 0:
        pytest.skip(f"a file system cannot be mounted: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(root)
    finally:
        subprocess.run(["umount", "--lazy", str(root)], check=True)
