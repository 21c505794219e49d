"""Fetches segments from a bucket into a local file."""

from __future__ import annotations

import mmap
import tempfile

from kvcq.backup import open_place
from kvcq.errors import BackupError
from migration.columnar.errors import LogLayoutError

_FILES = "/files/"


def fetch_segment(path: str) -> mmap.mmap:
    """Fetch the whole file into an unnamed file, which is deleted with the mapping. Needs that much
    space in the directory for temporary files. Raises LogLayoutError."""
    base, _, name = path.rpartition(_FILES)
    try:
        with tempfile.TemporaryFile(prefix="kvcq-segment-") as file:
            for piece in open_place(base).read(f"{_FILES[1:]}{name}"):
                file.write(piece)
            file.flush()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except BackupError as error:
        raise LogLayoutError(str(error)) from error
