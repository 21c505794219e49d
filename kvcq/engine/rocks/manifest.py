"""What a manifest of RocksDB says: which files are live, and which write-ahead logs still count.

A manifest only grows, record by record, until another one takes its place. Each record is an edit,
a run of tagged fields; of these the ones below matter here, the others are skipped. Tags, numbers
and lengths are varints (7 bits a byte, low bits first), "text" is a length and so many bytes.

| tag | meaning           | fields                                                              |
|----:|-------------------|---------------------------------------------------------------------|
|   2 | log number        | the family's rows of older logs are in files                        |
|   6 | file removed      | level, number                                                       |
|  10 | oldest log kept   | number                                                              |
| 103 | file added        | level, number, bytes, first and last key (text), two sequence       |
|     |                   | numbers, then tagged texts up to a tag of 1                         |
| 200 | family            | the family the edit is about, 0 when it is missing                  |
| 202 | family dropped    | none                                                                |

Source: RocksDB 10, its version edits.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kvcq.engine.rocks.checksum import crc32c
from kvcq.engine.rocks.log_format import FIRST, LAST, WHOLE, read_frames

if TYPE_CHECKING:
    from pathlib import Path

_LOG_NUMBER, _REMOVED, _OLDEST_LOG, _ADDED, _FAMILY, _DROPPED = 2, 6, 10, 103, 200, 202
#: Fields to step over: a letter for each value, n for a number, t for a text.
_OTHER = {1: "t", 3: "n", 4: "n", 5: "nt", 9: "n", 201: "t", 203: "n", 300: "n"}
#: Tags with this bit may be unknown: a text follows.
_MAY_BE_UNKNOWN = 1 << 13
_LAST_OF_A_FILE = 1


class UnknownEditError(Exception):
    """An edit of a kind that this program does not know: a newer RocksDB wrote it."""


class Manifest:
    """A manifest, read as far as it goes; `advance` reads on where it has grown.

    Thread: one at a time.
    """

    def __init__(self, path: Path) -> None:
        """Reads nothing yet."""
        self.path = path
        self._name = str(path)
        #: End of the last whole record, and the CRC-32C of all that is before it.
        self.size = 0
        self.crc = 0
        #: Length of the file when it was last read: more than `size` when its end is torn.
        self.file_size = 0
        #: Numbers of the live table files.
        self.files: set[int] = set()
        self._logs: dict[int, int] = {}  # family -> log number
        self._oldest_log = 0

    @property
    def oldest_log(self) -> int:
        """Rows in write-ahead logs of lower numbers are in table files."""
        return max(min(self._logs.values(), default=0), self._oldest_log)

    @property
    def has_grown(self) -> bool:
        """Since it was last read. Cheap. Raises OSError when another one has taken its place."""
        return os.stat(self._name).st_size != self.file_size  # noqa: PTH116 - a third of the time

    def advance(self, *, sync: bool = False) -> None:
        """Read what came since. With `sync`, what was read is durable.

        Raises OSError, TurnedBitError, UnknownEditError.
        """
        with self.path.open("rb") as file:
            file_size = os.fstat(file.fileno()).st_size
            if sync:
                os.fdatasync(file.fileno())
            file.seek(self.size)
            data = file.read(file_size - self.size)
        start = self.size
        self.file_size = start + len(data)
        parts: list[bytes] = []
        for frame in read_frames(data, start):
            if frame.type in (WHOLE, FIRST):
                parts.clear()
            parts.append(frame.payload)
            if frame.type in (WHOLE, LAST):
                self._apply(b"".join(parts))
                self.size = frame.end
        self.crc = crc32c(data[: self.size - start], self.crc)

    def _apply(self, edit: bytes) -> None:
        fields = _Fields(edit)
        family = 0
        log_number: int | None = None
        dropped = False
        while not fields.at_end:
            tag = fields.number()
            if tag == _LOG_NUMBER:
                log_number = fields.number()
            elif tag == _REMOVED:
                fields.number()
                self.files.discard(fields.number())
            elif tag == _OLDEST_LOG:
                self._oldest_log = fields.number()
            elif tag == _ADDED:
                self.files.add(fields.added_file())
            elif tag == _FAMILY:
                family = fields.number()
            elif tag == _DROPPED:
                dropped = True
            elif tag in _OTHER:
                fields.skip(_OTHER[tag])
            elif tag & _MAY_BE_UNKNOWN:
                fields.text()
            else:
                raise UnknownEditError(f"{self.path.name} has an edit with tag {tag}")
        if dropped:
            self._logs.pop(family, None)
        elif log_number is not None:
            self._logs[family] = log_number


class _Fields:
    """Reads the fields of one edit. Raises UnknownEditError when they do not fit it."""

    def __init__(self, edit: bytes) -> None:
        self._edit = edit
        self._at = 0

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._edit)

    def number(self) -> int:
        value = shift = 0
        edit = self._edit
        for at in range(self._at, len(edit)):
            byte = edit[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self._at = at + 1
                return value
            shift += 7
        raise UnknownEditError("an edit ends within a number")

    def text(self) -> None:
        """Step over a text."""
        length = self.number()
        self._at += length
        if self._at > len(self._edit):
            raise UnknownEditError("an edit ends within a text")

    def skip(self, kinds: str) -> None:
        for kind in kinds:
            if kind == "n":
                self.number()
            else:
                self.text()

    def added_file(self) -> int:
        """The number of a file that was added; what else is said of it is stepped over."""
        self.number()
        number = self.number()
        self.skip("nttnn")
        while self.number() != _LAST_OF_A_FILE:
            self.text()
        return number
