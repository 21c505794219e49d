"""A store directory: what is where, whose it is, and who may open it.

    <root>/
      lock          held by the process that has the store open
      store.json    what this store is, with a checksum; made once
      abort         pid of the process that has it open; left behind by a crash
      checkpoint    see format/checkpoint.py, and beside it checkpoint.previous
      commitlog/    segments
      kvcq/         RocksDB: units, bounds, key index, state
      notes/        small values: see notes.py
      snapshots/    see kvcq/snapshots/
      meta/         RocksDB: topics, groups, committed offsets of a store of format 1
      migration.json           the state of a migration, while there is one
      consumequeue/ index/     files of RocketMQ's kind, during a migration

The lock is taken before anything is read that could change, and before anything is written. A
directory is ours from the moment store.json has its name; a crash before that leaves at most
`lock`, `abort` and a temporary file, which counts as empty.
"""

from __future__ import annotations

import enum
import errno
import fcntl
import json
import os
import shutil
import struct
import zlib
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from store.base import (
    FILE_MODE,
    TEMPORARY_SUFFIX,
    Lock,
    fsync_directory,
    make_directory,
    write_file,
)
from store.errors import StoreFormatError, StoreLockedError
from store.notes import Notes

if TYPE_CHECKING:
    from pathlib import Path

    from store.base import Clock

#: Version of everything below the root. A store that says more is not opened.
FORMAT_VERSION = 2
#: The state of a migration. It decides how the store is opened.
MIGRATION_FILE = "migration.json"
#: Part of the names of files that an upgrade keeps.
OLD_FORMAT = "format-1"
_PRODUCT = "kvcq"
_LOCK = "lock"
_IDENTITY = "store.json"
_CRC = "crc"
#: Entries that a directory may have before a store is created in it.
_BLANK_ENTRIES = frozenset(
    {_LOCK, "abort", "abort" + TEMPORARY_SUFFIX, _IDENTITY + TEMPORARY_SUFFIX, "lost+found"}
)

#: Linux `struct flock`: type, whence, start, length, pid.
_FLOCK = struct.Struct("@hhqqi")

# A lock of this kind belongs to the process, and is lost when the process closes *any* descriptor
# of the file. So a second open in one process must be refused before it opens the file.
_held: set[tuple[int, int]] = set()
_held_guard = Lock()


@dataclass(frozen=True)
class StoreIdentity:
    """The content of store.json, apart from the mark that it is ours."""

    format_version: int
    created_ms: int
    segment_bytes: int
    #: Physical offset below which no records have changes of topics and groups; a snapshot has the
    #: state there. 0 in a store that was created by this program in this format.
    base_offset: int = 0


class DirKind(enum.Enum):
    """Which program a directory belongs to."""

    BLANK = "blank"  # absent, empty, or creation was cut short
    OURS = "ours"
    ROCKETMQ = "rocketmq"  # a broker's store, to be taken over by a migration
    FOREIGN = "foreign"


def inspect(root: Path) -> tuple[DirKind, StoreIdentity | None]:
    """Which program `root` belongs to, and its identity if it is ours. Read-only.

    Raises StoreFormatError if store.json is damaged or lost, or a newer version wrote it.
    """
    try:
        names = {entry.name for entry in root.iterdir()}
    except FileNotFoundError:
        return DirKind.BLANK, None
    except NotADirectoryError:
        raise StoreFormatError(root, "is not a directory") from None
    if _IDENTITY in names:
        return DirKind.OURS, _read_identity(root / _IDENTITY)
    if names <= _BLANK_ENTRIES:
        return DirKind.BLANK, None
    if "commitlog" in names and names & {"kvcq", "meta"}:
        # RocketMQ creates neither of them. If this directory were taken for RocketMQ's, its topics
        # would be lost.
        raise StoreFormatError(root / _IDENTITY, f"is missing. {_lost_identity(root)}")
    if "commitlog" in names and names & {"checkpoint", "abort", "config", "consumequeue"}:
        return DirKind.ROCKETMQ, None
    return DirKind.FOREIGN, None


def _lost_identity(root: Path) -> str:
    """The advice for a store of ours without its store.json."""
    sizes = {path.stat().st_size for path in (root / "commitlog").iterdir() if path.is_file()}
    size = str(max(sizes)) if sizes else "the length of the files in commitlog/"
    return (
        "This is a store of ours, it has kvcq/ or meta/: bring the file back from a copy of the "
        f'directory, or write it anew: {{"product": "{_PRODUCT}", "format_version": '
        f'{FORMAT_VERSION}, "created_ms": 1, "segment_bytes": {size}}}'
    )


class StoreDir:
    """A store directory, and its lock while it is open.

    Thread: opened and closed by one; any thread may read paths. Failure: a process that dies loses
    the lock and leaves `abort`.
    """

    def __init__(self, root: Path) -> None:
        """Only sets the paths. `open` takes the lock."""
        # Constant after construction.
        self.root = root
        self.commitlog = root / "commitlog"
        self.kvcq = root / "kvcq"
        self.meta = root / "meta"
        self.consumequeue = root / "consumequeue"
        self.index = root / "index"
        self.checkpoint = root / "checkpoint"
        self.previous_checkpoint = root / "checkpoint.previous"
        self.abort = root / "abort"
        self.migration = root / MIGRATION_FILE
        self.notes = Notes(root / "notes")
        self._lock_key: tuple[int, int] | None = None
        self._lock_descriptor: int | None = None
        self._root_key: tuple[int, int] | None = None  # set with the lock

    @classmethod
    def open(cls, root: Path, segment_bytes: int, clock: Clock, *, adopt: bool = False) -> StoreDir:
        """Open and lock the store in `root`; create it if there is none. `root` need not exist.

        With `adopt` a RocketMQ store becomes ours: it gets a store.json, and nothing else changes.
        Raises StoreLockedError if another process has it open, StoreFormatError if it is not ours,
        newer, damaged, or has segments of another size. Nothing is written then. Durability:
        store.json is durable on return.
        """
        # Looked at twice: before the lock, so that no lock file is left in a foreign directory;
        # under it, because only then does it stand still.
        _check(root, segment_bytes, adopt=adopt)
        make_directory(root)
        directory = cls(root)
        directory._take_lock()
        try:
            if _check(root, segment_bytes, adopt=adopt) is None:
                if not adopt:
                    # First: a crash before it is whole must not look like a store that lost files.
                    directory.mark_open()
                identity = StoreIdentity(FORMAT_VERSION, clock.now_ms(), segment_bytes)
                _write_identity(root / _IDENTITY, identity)
        except BaseException:
            directory.close()
            raise
        return directory

    @property
    def format_version(self) -> int:
        """The format version in store.json."""
        return _read_identity(self.root / _IDENTITY).format_version

    @property
    def base_offset(self) -> int:
        """The base offset in store.json."""
        return _read_identity(self.root / _IDENTITY).base_offset

    def begin_state(self, base_offset: int) -> None:
        """Upgrade the store to this format, with records of the state from `base_offset` on,
        durably. Repeatable."""
        identity = _read_identity(self.root / _IDENTITY)
        begun = replace(identity, format_version=FORMAT_VERSION, base_offset=base_offset)
        if begun != identity:
            _write_identity(self.root / _IDENTITY, begun)

    @property
    def was_closed_cleanly(self) -> bool:
        """Whether the last process closed it cleanly. Must be called before `mark_open`."""
        return not self.abort.exists()

    def mark_open(self) -> None:
        """Write the pid to `abort`, durably, so that the next open notices a crash from here on."""
        write_file(self.abort, str(os.getpid()).encode())

    def mark_clean(self) -> None:
        """Mark that everything is flushed and dispatched, for the next open. Repeatable.

        Removes the copy that an upgrade kept, since the new format works.
        """
        self.abort.unlink(missing_ok=True)
        fsync_directory(self.root)
        for path in (self.meta, *self.root.glob(f"{self.meta.name}.{OLD_FORMAT}-*")):
            shutil.rmtree(path, ignore_errors=True)

    def missing_path(self) -> Path | None:
        """A path that was removed or replaced while the directory is open; None if none was.

        Writes to a removed file do not fail, but are lost.
        """
        if _file_key(self.root) != self._root_key:
            return self.root
        descriptor = self._lock_descriptor
        if descriptor is not None and os.fstat(descriptor).st_nlink == 0:
            return self.root / _LOCK
        current = self.kvcq / "CURRENT"
        return None if current.exists() else current

    def close(self) -> None:
        """Release the lock. Repeatable. The lock file stays, since removing it would race with
        other processes."""
        with _held_guard:
            if self._lock_descriptor is not None:
                os.close(self._lock_descriptor)
                self._lock_descriptor = None
            if self._lock_key is not None:
                _held.discard(self._lock_key)
                self._lock_key = None

    def in_use(self) -> bool:
        """Whether any process, including this one, has the store open. Changes nothing."""
        path = self.root / _LOCK
        with _held_guard:
            if _file_key(path) in _held:
                return True
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
            try:
                return _ask_for_lock(descriptor)[0] != fcntl.F_UNLCK
            finally:
                os.close(descriptor)

    def _take_lock(self) -> None:
        """Take the lock that RocketMQ also takes, byte 0 of `lock`, so that brokers are kept out as
        well."""
        path = self.root / _LOCK
        with _held_guard:
            key = _file_key(path)
            if key in _held:
                raise StoreLockedError(self.root, f"open in this process already, {os.getpid()}")
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            except OSError as error:
                holder = _holder(descriptor)
                os.close(descriptor)
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    raise
                raise StoreLockedError(self.root, f"in use by process {holder}") from error
            self._lock_descriptor = descriptor
            self._root_key = _file_key(self.root)
            self._lock_key = _file_key(path)
            assert self._lock_key is not None
            _held.add(self._lock_key)


def _file_key(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _holder(descriptor: int) -> str:
    """Pid of the process that holds the lock; it may have exited by now."""
    kind, pid = _ask_for_lock(descriptor)
    # On a network file system the holder may be on another machine: its pid is then not above 0.
    return str(pid) if kind != fcntl.F_UNLCK and pid > 0 else "unknown"


def _ask_for_lock(descriptor: int) -> tuple[int, int]:
    """The conflicting lock, if any, and the pid of its holder."""
    question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, question))
    return kind, pid


def _check(root: Path, segment_bytes: int, *, adopt: bool) -> StoreIdentity | None:
    """The store's identity; None if it has to be created. Raises StoreFormatError."""
    kind, identity = inspect(root)
    if kind is DirKind.ROCKETMQ and not adopt:
        raise StoreFormatError(
            root,
            "a store of RocketMQ: `kvcq migrate plan` shows what taking it over would do",
        )
    if kind is DirKind.FOREIGN:
        raise StoreFormatError(
            root,
            f"not a store: it has no {_IDENTITY} but other files; give an empty or a new directory",
        )
    if identity is not None and identity.segment_bytes != segment_bytes:
        raise StoreFormatError(
            root,
            f"created with segments of {identity.segment_bytes} bytes, but opened with "
            f"{segment_bytes}: leave the setting out, or give "
            f"--set store.segment_bytes={identity.segment_bytes}",
        )
    return identity


def _write_identity(path: Path, identity: StoreIdentity) -> None:
    document: dict[str, object] = {"product": _PRODUCT, **asdict(identity)}
    document[_CRC] = _crc_of(document)
    write_file(path, json.dumps(document, indent=2).encode() + b"\n")


def _crc_of(document: dict[str, object]) -> int:
    """CRC-32 of all other fields, by name and without white space, so that the file's layout does
    not matter."""
    fields = {name: value for name, value in document.items() if name != _CRC}
    return zlib.crc32(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode())


def _check_crc(path: Path, document: dict[str, object]) -> None:
    """Raise StoreFormatError if the checksum is wrong or missing."""
    if _CRC in document:
        sound = document[_CRC] == _crc_of(document)
    else:
        # Written before there was one: such a file has these fields and no others. A field more
        # may be the checksum with a flipped bit in its name.
        sound = document.keys() == {"product", "format_version", "created_ms", "segment_bytes"}
    if not sound:
        raise StoreFormatError(
            path,
            "damaged, its checksum does not match: restore it from a copy of the directory; if it "
            f"was changed by hand, set segment_bytes to the length of the files in commitlog/ and "
            f'take the line "{_CRC}" out',
        )


def _read_identity(path: Path) -> StoreIdentity:
    try:
        document = json.loads(path.read_bytes())
    except ValueError as error:
        raise StoreFormatError(
            path, f"damaged, not JSON ({error}): restore it from a copy of the directory"
        ) from None
    if not isinstance(document, dict) or document.get("product") != _PRODUCT:
        raise StoreFormatError(path, f"not of a {_PRODUCT} store: give another directory")
    # The version comes first: a newer one may have changed everything else.
    version = _number(path, document, "format_version")
    if version > FORMAT_VERSION:
        raise StoreFormatError(
            path,
            f"format {version}, this program knows up to {FORMAT_VERSION}: use a newer program",
        )
    base_offset = document.get("base_offset", 0)
    identity = StoreIdentity(
        version,
        _number(path, document, "created_ms"),
        _number(path, document, "segment_bytes"),
        base_offset if base_offset == 0 else _number(path, document, "base_offset"),
    )
    _check_crc(path, document)
    return identity


def _number(path: Path, document: dict[str, object], name: str) -> int:
    value = document.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise StoreFormatError(
            path, f"damaged, {name} is {value!r}: restore it from a copy of the directory"
        )
    return value
