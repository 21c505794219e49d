"""Proves, before RocksDB opens a database, that it is the one that was last noted; keeps the note.

What is looked at before RocksDB changes anything, and what it would do without a word:

* CURRENT names a manifest that is there and not older than the noted one.
* The manifest has the noted bytes; what it grew by since is whole, or torn as a crash leaves it,
  but no record has a turned bit (RocksDB drops the rest from there on, and removes the files that
  only the rest names).
* Each noted table file that is there has the noted length and end; RocksDB checks its blocks, but
  not the footer that says where they lie. One that is missing and live fails RocksDB's opening.
* Each noted write-ahead log that still counts is there with the noted bytes, and what it grew by
  is whole or torn, too (RocksDB takes a missing log for one that is not needed any more).

Where manifest or log lost a page behind the noted bytes, it ends before the first record that is
not whole: nothing from there on was synced. RocksDB is given the files cut there.

A directory without a note, from an older program or a copy made by RocksDB, is opened unproven.
"""

from __future__ import annotations

import logging
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

from kvcq.engine.rocks.checksum import crc32c
from kvcq.engine.rocks.log_format import LAST, WHOLE, TurnedBitError, has_hole, read_frames
from kvcq.engine.rocks.manifest import Manifest, UnknownEditError
from kvcq.engine.rocks.note import Note, Sealed, read_note, write_note
from kvcq.errors import EngineDamagedError, EngineUnavailableError
from store.base import Lock

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

_CURRENT = re.compile(rb"MANIFEST-(\d{6,})\n")
_LOG = re.compile(r"(\d{6,})\.log")
#: The end of a table file: its footer and the block that says where its other blocks are.
_END_BYTES = 4 << 10
_PIECE_BYTES = 256 << 10
_NOTHING = Sealed(0, 0)


def prove(database: Path) -> dict[Path, int]:
    """The database at `database` is what its note says, or has grown from that. Changes nothing.

    Returns the files of which a power loss took pages, and how many bytes before these are whole.

    Time: its manifest and write-ahead logs are read, some 50 MB/s where they grew since the note,
    and 4 KiB of each table file.
    Raises EngineDamagedError, which names the file; EngineUnavailableError when a newer RocksDB
    or program wrote it; OSError.
    """
    note = read_note(database)
    if note is None:
        return {}
    number = _current(database)
    if number < note.manifest:
        raise EngineDamagedError(
            f"{database / 'CURRENT'} names manifest {number}, older than the noted {note.manifest}"
        )
    manifest = Manifest(_manifest_path(database, number))
    noted = 0
    if number == note.manifest:
        _prove_prefix(manifest.path, note.manifest_seal)
        noted = note.manifest_seal.size
    try:
        if number > note.manifest or note.logs or manifest.path.stat().st_size > noted:
            manifest.advance()
    except FileNotFoundError:
        raise EngineDamagedError(f"{manifest.path} is missing, CURRENT names it") from None
    except TurnedBitError as error:
        raise EngineDamagedError(f"{manifest.path}: {error}") from error
    except UnknownEditError as error:
        raise EngineUnavailableError(f"{database}: {error}; another RocksDB wrote it") from error
    for table, seal in note.files.items():
        _prove_table(_table_path(database, table), seal)
    for log, seal in note.logs.items():
        if log >= manifest.oldest_log:
            _prove_prefix(_log_path(database, log), seal)
    cuts: dict[Path, int] = {}
    if manifest.size < manifest.file_size:
        cuts |= _whole_before_hole(manifest.path, noted)
    for log, path in _logs(database):
        if note.logs and log >= manifest.oldest_log:
            cuts |= _whole_before_hole(path, note.logs.get(log, _NOTHING).size)
    return cuts


def cut(path: Path, whole: int) -> None:
    """The file ends behind its first `whole` bytes, durably. Raises OSError."""
    logger.warning(
        "%s: a power loss took a page behind its first %d bytes, what follows is cut off. Nothing "
        "of it was durable, unless the disk lost what was written in the last second before",
        path,
        whole,
    )
    with path.open("r+b") as file:
        file.truncate(whole)
        os.fsync(file.fileno())


def sync_logs(database: Path) -> None:
    """What was appended to the write-ahead logs is durable. Raises OSError.

    For a log that RocksDB does not touch any more, since an append to it failed.
    """
    for _, path in _logs(database):
        with suppress(FileNotFoundError), path.open("rb") as file:
            # One that RocksDB removed meanwhile: its rows are in tables, which it has synced.
            os.fdatasync(file.fileno())


class NoteKeeper:
    """Keeps the note of an open database up to date.

    Thread: any; one at a time writes the note, others do not wait for it.
    Failure: a note that cannot be written is logged once; the one before stays, and stays true.
    """

    def __init__(self, database: Path, *, wal: bool) -> None:
        """`wal`: the database has write-ahead logs. The database is open, or was closed."""
        # Constant after construction.
        self._database = database
        self._wal = wal
        self._writing = Lock()
        # Guarded by _writing; `is_due` reads _manifest without it.
        self._manifest: Manifest | None = None
        self._ends: dict[int, Sealed] = {}  # of table files, which do not change
        self._logs: dict[int, Sealed] = {}
        self._noted: Note | None = None
        self._is_failing = False

    @property
    def is_due(self) -> bool:
        """Whether the manifest has changed since the note. Cheap: one look at a file's length."""
        manifest = self._manifest
        try:
            return manifest is None or manifest.has_grown
        except OSError:
            return True  # another one has taken its place

    @property
    def are_logs_due(self) -> bool:
        """Whether a write-ahead log has grown since the note, or there is a new one. Looks at the
        directory, which a write cannot afford."""
        if not self._wal:
            return False
        noted = {number: seal.size for number, seal in self._logs.items()}
        with suppress(OSError):  # one was removed meanwhile
            return any(noted.get(log) != path.stat().st_size for log, path in self._live_logs())
        return True

    def _live_logs(self) -> list[tuple[int, Path]]:
        oldest = 0 if self._manifest is None else self._manifest.oldest_log
        return [(log, path) for log, path in _logs(self._database) if log >= oldest]

    def refresh(self) -> None:
        """The note says what the database is now, durably; nothing is written if it did before."""
        if not self._writing.acquire(blocking=False):
            return
        try:
            note = self._look()
            if note != self._noted:
                write_note(self._database, note)
                self._noted = note
            self._is_failing = False
        except (OSError, EngineDamagedError, TurnedBitError, UnknownEditError) as error:
            # A file may also have been removed since its name was read.
            if not self._is_failing and not isinstance(error, FileNotFoundError):
                logger.warning("the note of %s is not up to date: %s", self._database, error)
                self._is_failing = True
        finally:
            self._writing.release()

    def _look(self) -> Note:
        path = _manifest_path(self._database, number := _current(self._database))
        manifest = self._manifest
        if manifest is None or manifest.path != path:
            manifest = Manifest(path)
        manifest.advance(sync=True)
        self._manifest = manifest
        for table in self._ends.keys() - manifest.files:
            del self._ends[table]
        for table in manifest.files - self._ends.keys():
            try:
                self._ends[table] = _end_of(_table_path(self._database, table))
            except FileNotFoundError:
                continue  # compacted away since
        before, self._logs = self._logs, {}
        for log, path in self._live_logs() if self._wal else ():
            self._logs[log] = _grown(path, before.get(log, _NOTHING))
        seal = Sealed(manifest.size, manifest.crc)
        return Note(number, seal, dict(self._ends), dict(self._logs))


def _current(database: Path) -> int:
    """The number of the manifest that counts. Raises EngineDamagedError."""
    path = database / "CURRENT"
    try:
        found = _CURRENT.fullmatch(path.read_bytes())
    except FileNotFoundError:
        raise EngineDamagedError(f"{path} is missing") from None
    if found is None:
        raise EngineDamagedError(f"{path} does not name a manifest")
    return int(found[1])


def _manifest_path(database: Path, number: int) -> Path:
    return database / f"MANIFEST-{number:06}"


def _table_path(database: Path, number: int) -> Path:
    return database / f"{number:06}.sst"


def _log_path(database: Path, number: int) -> Path:
    return database / f"{number:06}.log"


def _logs(database: Path) -> list[tuple[int, Path]]:
    """Write-ahead logs by number."""
    found = [(_LOG.fullmatch(entry.name), entry) for entry in database.iterdir()]
    return sorted((int(match[1]), path) for match, path in found if match is not None)


def _end_of(table: Path) -> Sealed:
    """The length of a table file, and the checksum of its last 4 KiB."""
    with table.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - _END_BYTES))
        return Sealed(size, crc32c(file.read(_END_BYTES)))


def _grown(log: Path, before: Sealed) -> Sealed:
    """What the log holds, durable on return; `before` was the beginning of it."""
    with log.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        os.fdatasync(file.fileno())
        file.seek(before.size)
        return Sealed(size, _checksum(file, size - before.size, before.crc))


def _checksum(file: BinaryIO, size: int, crc: int = 0) -> int:
    """Of the next `size` bytes, in pieces: each holds the GIL."""
    while size > 0 and (data := file.read(min(size, _PIECE_BYTES))):
        crc = crc32c(data, crc)
        size -= len(data)
    return crc


def _prove_prefix(path: Path, seal: Sealed) -> None:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            crc = _checksum(file, seal.size)
    except FileNotFoundError:
        raise EngineDamagedError(f"{path} is missing, the note of the database names it") from None
    if size < seal.size:
        raise EngineDamagedError(f"{path} has {size} bytes, at least {seal.size} were noted")
    if crc != seal.crc:
        raise EngineDamagedError(f"{path} is damaged in its first {seal.size} bytes")


def _prove_table(path: Path, seal: Sealed) -> None:
    try:
        found = _end_of(path)
    except FileNotFoundError:
        return  # compacted away since, or RocksDB misses it
    if found != seal:
        raise EngineDamagedError(f"{path} has another length or another end than was noted")


def _whole_before_hole(path: Path, noted: int) -> dict[Path, int]:
    """The file, and where its records end, if a power loss took a page behind the noted bytes."""
    data = path.read_bytes()
    whole = end = 0
    try:
        for frame in read_frames(data):
            end = frame.end
            if frame.type in (WHOLE, LAST):
                whole = end
    except TurnedBitError as error:
        raise EngineDamagedError(f"{path}: {error}") from error
    return {path: whole} if has_hole(data, end, noted) else {}
