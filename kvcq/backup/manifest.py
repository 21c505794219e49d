"""The manifest of a backup, and the names of files in the place of the backups.

| name there                      | content                                                       |
|---------------------------------|---------------------------------------------------------------|
| `kvcq-backups.json`             | which store the backups belong to                             |
| `backups/<id>.json`             | a manifest; written last, so a backup that has one is complete |
| `files/<place>.<bytes>.<crc>`   | a file of the store, by its path there; `crc` in hex          |

An id is the time of the backup in UTC. Ids rise from each backup to the next, even if the clock was
set back. A file whose content is already in the
place, under the same name, is not copied again, so backups share files.

A manifest is JSON, with the fields of `Backup` in camelCase, and `crc32c`: the CRC-32C of the other
fields as sorted JSON without white space. A segment that was not full is stored up to the end of
the log; a restore fills it up with zeros.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from kvcq.engine.rocks import crc32c
from kvcq.errors import BackupDamagedError, BackupRefusedError
from store.base import TEMPORARY_SUFFIX

PRODUCT = "kvcq backup"
#: Form 2 may have notes and snapshots; form 1 can still be read.
FORM = 2
MARKER = "kvcq-backups.json"
MANIFESTS = "backups/"
FILES = "files/"
SEGMENTS = "commitlog/"
QUEUES = "kvcq/"

#: Paths in a store that a backup may have: a restore writes no others.
_PLACE = re.compile(
    r"(?:(?:commitlog|kvcq|meta|notes|snapshots/\d{20})/)?[A-Za-z0-9][A-Za-z0-9._-]{0,200}"
)
_FILE = re.compile(
    rf"{FILES}{_PLACE.pattern}(?:\.\d+\.[0-9a-f]{{8}}|{re.escape(TEMPORARY_SUFFIX)})"
)
_ID = re.compile(r"\d{8}T\d{6}\.\d{3}Z")


class BackupFile(NamedTuple):
    place: str  # below the store's directory
    size: int  # bytes
    crc: int  # CRC-32C
    #: Inode and time of the last change (ns) of the file it was copied from: as long as both stay,
    #: its content does, and it need not be read again.
    source: tuple[int, int] = (0, 0)

    @property
    def name(self) -> str:
        """The name of the file in the place of the backups."""
        return f"{FILES}{self.place}.{self.size}.{self.crc:08x}"


def is_file(name: str) -> bool:
    """Whether it is the name of a backup's file, finished or being written. Other names below FILES
    belong to something else and are ignored."""
    return _FILE.fullmatch(name) is not None


@dataclass(frozen=True)
class Backup:
    backup_id: str
    taken_ms: int  # since 1970; everything stored before is in the backup
    store_created_ms: int
    segment_bytes: int
    start_offset: int  # physical offset of its log's begin
    end_offset: int  # end of the log, exclusive; everything below is dispatched
    files: tuple[BackupFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files)

    @property
    def segments(self) -> list[BackupFile]:
        """The segments of the log, by physical offset."""
        return [file for file in self.files if file.place.startswith(SEGMENTS)]


def id_of(taken_ms: int, newest: str = "") -> str:
    """The id of a backup taken then, after the one with the id `newest`: the same clock may have
    been ahead, or two may be taken in a millisecond."""
    moment = datetime.fromtimestamp(taken_ms / 1000, UTC)
    found = f"{moment:%Y%m%dT%H%M%S}.{taken_ms % 1000:03d}Z"
    if found > newest:
        return found
    after = datetime.strptime(newest, "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC)
    return id_of(round(after.timestamp() * 1000) + 1)


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def manifest_name(backup_id: str) -> str:
    return f"{MANIFESTS}{backup_id}.json"


def pack_manifest(backup: Backup) -> bytes:
    return _sealed(
        {
            "product": PRODUCT,
            "form": FORM,
            "id": backup.backup_id,
            "takenMs": backup.taken_ms,
            "storeCreatedMs": backup.store_created_ms,
            "segmentBytes": backup.segment_bytes,
            "startOffset": backup.start_offset,
            "endOffset": backup.end_offset,
            "files": [
                {
                    "place": file.place,
                    "bytes": file.size,
                    "crc32c": f"{file.crc:08x}",
                    "source": list(file.source),
                }
                for file in backup.files
            ],
        }
    )


def unpack_manifest(name: str, data: bytes) -> Backup:
    """Inverse of `pack_manifest`. Raises BackupDamagedError, naming `name`, if it is invalid;
    BackupRefusedError if a newer version wrote it."""
    document = _opened(name, data)
    try:
        backup = Backup(
            document["id"],
            document["takenMs"],
            document["storeCreatedMs"],
            document["segmentBytes"],
            document["startOffset"],
            document["endOffset"],
            tuple(
                BackupFile(
                    file["place"],
                    file["bytes"],
                    int(file["crc32c"], 16),
                    (file["source"][0], file["source"][1]),
                )
                for file in document["files"]
            ),
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise BackupDamagedError(f"{name} is not a backup manifest: {error!r}") from error
    _check(name, backup)
    return backup


def _check(name: str, backup: Backup) -> None:
    """Reject paths that lead out of a store: anyone who can write here can forge the checksum."""
    if not is_id(backup.backup_id) or name != manifest_name(backup.backup_id):
        raise BackupDamagedError(f"{name} is the manifest of {backup.backup_id!r}")
    for file in backup.files:
        if _PLACE.fullmatch(file.place) is None or ".." in file.place or file.size < 0:
            raise BackupDamagedError(f"{name} names {file.place!r}, which is not a file of a store")
    size = backup.segment_bytes
    expected = backup.start_offset
    segments = backup.segments
    for file in segments:
        last = file is segments[-1]
        whole = backup.end_offset - expected if last else size
        if (
            file.place != f"{SEGMENTS}{expected:020d}"
            or file.size != whole
            or not 0 <= whole <= size
        ):
            raise BackupDamagedError(f"{name} lists segments with a gap before {file.place!r}")
        expected += size
    if not segments:
        raise BackupDamagedError(f"{name} lists no log segments")


def pack_marker(created_ms: int, segment_bytes: int) -> bytes:
    """Returns the marker file for backups of the store that was created then."""
    return _sealed(
        {
            "product": PRODUCT,
            "form": FORM,
            "storeCreatedMs": created_ms,
            "segmentBytes": segment_bytes,
        }
    )


def created_of_marker(data: bytes) -> int:
    """Returns when the store was created, ms. Raises BackupDamagedError, BackupRefusedError."""
    created = _opened(MARKER, data).get("storeCreatedMs")
    if not isinstance(created, int):
        raise BackupDamagedError(f"{MARKER} does not name the store of the backups")
    return created


def _sealed(document: dict[str, Any]) -> bytes:
    return json.dumps({**document, "crc32c": _crc_of(document)}, indent=1).encode() + b"\n"


def _opened(name: str, data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError as error:
        raise BackupDamagedError(f"{name} is damaged, not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("product") != PRODUCT:
        raise BackupDamagedError(f"{name} was not written by a {PRODUCT}")
    if isinstance(form := document.get("form"), int) and form > FORM:
        raise BackupRefusedError(
            f"{name} has format {form}; this program reads up to {FORM}. Use a newer program"
        )
    stated = document.pop("crc32c", None)
    if stated != _crc_of(document):
        raise BackupDamagedError(f"{name} is damaged, its checksum does not match")
    return document


def _crc_of(document: dict[str, Any]) -> str:
    return f"{crc32c(json.dumps(document, sort_keys=True, separators=(',', ':')).encode()):08x}"
