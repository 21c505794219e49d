"""Notes: small named values beside the log, each in a file of its own that is replaced as a whole.

For data that belongs to one machine (jobs, the position of a scrub) or must not be in the log,
which others may read (users with their sealed secrets). A file in `notes/` holds the CRC-32 of the
value as eight hexadecimal digits and a line feed, then the value.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from store.base import TEMPORARY_SUFFIX, fsync_directory, make_directory, write_file
from store.errors import StoreFormatError

if TYPE_CHECKING:
    from pathlib import Path

#: The note of all users, with their sealed secrets: nothing else has them.
USERS_NOTE = "users"
_HEAD_BYTES = 9


class Notes:
    """The notes of one store.

    Thread: any; of concurrent writers of a note, the later one wins. Each call accesses the disk.
    Durability: a put is durable on return; after a crash before that, the old value is left.
    """

    def __init__(self, directory: Path) -> None:
        """`directory` need not exist."""
        self.directory = directory  # constant

    def get(self, name: str) -> bytes | None:
        """The value; None if there is none. Raises StoreFormatError if it is damaged."""
        path = self.directory / name
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        value = data[_HEAD_BYTES:]
        if data[:_HEAD_BYTES] != _head(value):
            raise StoreFormatError(
                path, "damaged, its checksum does not match: restore it from a backup"
            )
        return value

    def names(self) -> list[str]:
        """The names of all notes."""
        if not self.directory.is_dir():
            return []
        names = sorted(path.name for path in self.directory.iterdir())
        return [name for name in names if not name.endswith(TEMPORARY_SUFFIX)]

    def put(self, name: str, value: bytes) -> None:
        """Set the value, durably. Raises OSError."""
        make_directory(self.directory)
        write_file(self.directory / name, _head(value) + value)

    def drop(self, name: str) -> None:
        """Remove the note. Repeatable."""
        path = self.directory / name
        if path.exists():
            path.unlink(missing_ok=True)
            fsync_directory(self.directory)


def _head(value: bytes) -> bytes:
    return b"%08x\n" % zlib.crc32(value)
