"""Segments that are in a bucket come to a file here."""

from __future__ import annotations

import mmap
import tempfile

from kvcq.backup import open_place
from kvcq.errors import BackupError
from migration.columnar.errors import LogLayoutError

_FILES = "/files/"


def fetch_segment(path: str) -> mmap.mmap:
    """The whole file, from a bucket to a file without a name: it goes with the mapping.

    Takes as much space in the directory for temporary files. Raises LogLayoutError.
    """
    base, _, name = path.rpartition(_FILES)
    try:
        with tempfile.TemporaryFile(prefix="kvcq-segment-") as file:
            for piece in open_place(base).read(f"{_FILES[1:]}{name}"):
                file.write(piece)
            file.flush()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except BackupError as error:
        raise LogLayoutError(str(error)) from error
