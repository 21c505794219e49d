"""The note in which a database says which one it is, so that the next opening can prove it.

RocksDB takes much for granted: a manifest whose record seems to end behind the file is cut there
without a word, and table files that are then named nowhere are removed. The file `KVCQ-NOTE`, in
the database's directory, holds what must be found again. All of it is durable before the note is,
and stays true while the database is written to: manifests and logs only grow, table files never
change. So an older note is no fault, it only proves less.

The file is the same text twice, so that damage to one half leaves the other. A half is a line of
JSON, a blank, the CRC-32C of the line in 8 hexadecimal digits, and a line feed. Fields:

| field          | meaning                                                                  |
|----------------|--------------------------------------------------------------------------|
| form           | 1                                                                        |
| manifest       | number in the name of the manifest that CURRENT names                    |
| manifest_bytes | its length up to the end of a record; it may have grown since            |
| manifest_crc   | CRC-32C of these bytes                                                   |
| files          | live table files: number -> [length, CRC-32C of the last 4 KiB]          |
| logs           | write-ahead logs, where there are any: number -> [bytes, CRC-32C of them] |
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from kvcq.engine.rocks.checksum import crc32c
from kvcq.errors import EngineDamagedError, EngineUnavailableError
from store.base import write_file

if TYPE_CHECKING:
    from pathlib import Path

NOTE_NAME = "KVCQ-NOTE"

_FORM = 1
_CRC_DIGITS = 8


class Sealed(NamedTuple):
    """So many bytes, and their CRC-32C."""

    size: int
    crc: int


class Note(NamedTuple):
    """What a note says: see the table above."""

    manifest: int
    manifest_seal: Sealed
    files: dict[int, Sealed]
    logs: dict[int, Sealed]


def write_note(database: Path, note: Note) -> None:
    """Durable on return. Raises OSError; the note before it is then still there."""
    document = {
        "form": _FORM,
        "manifest": note.manifest,
        "manifest_bytes": note.manifest_seal.size,
        "manifest_crc": note.manifest_seal.crc,
        "files": {str(number): seal for number, seal in sorted(note.files.items())},
        "logs": {str(number): seal for number, seal in sorted(note.logs.items())},
    }
    line = json.dumps(document, separators=(",", ":")).encode()
    write_file(database / NOTE_NAME, b"%b %08x\n" % (line, crc32c(line)) * 2)


def read_note(database: Path) -> Note | None:
    """The note; None when there is none.

    Raises EngineDamagedError when neither half verifies, EngineUnavailableError when a newer
    program wrote it.
    """
    try:
        data = (database / NOTE_NAME).read_bytes()
    except FileNotFoundError:
        return None
    middle = len(data) // 2
    line = _verified(data[:middle]) or _verified(data[middle:])
    if line is None:
        raise EngineDamagedError(f"{database / NOTE_NAME} is damaged, its checksums do not fit")
    document = json.loads(line)
    if document["form"] != _FORM:
        raise EngineUnavailableError(
            f"{database / NOTE_NAME} has form {document['form']}: a newer program wrote it"
        )
    return Note(
        document["manifest"],
        Sealed(document["manifest_bytes"], document["manifest_crc"]),
        {int(number): Sealed(*seal) for number, seal in document["files"].items()},
        {int(number): Sealed(*seal) for number, seal in document["logs"].items()},
    )


def _verified(half: bytes) -> bytes | None:
    """The line of a half, if its checksum fits."""
    line, stated = half[: -_CRC_DIGITS - 2], half[-_CRC_DIGITS - 2 :]
    return line if stated == b" %08x\n" % crc32c(line) else None
