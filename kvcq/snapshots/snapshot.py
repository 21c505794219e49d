"""One snapshot: the state that the log adds up to at a point, in a directory of its own.

    <root>/snapshots/<point, 20 digits>/
      mark          which log it is of, see Mark; written before the directory has its name
      copy/         the database at that point: table files are hard links
      state.sst     rows of state, in a file of its own
      ends.sst      where each queue ends, likewise
      sealed        which files there are, with checksums; written last

The copy makes a replay short. The sealed files share nothing with the database: damage that both
have in common is what they are for. Units and keys are in the log.
"""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

from kvcq.engine.rocks import crc32c
from store.base import fsync_directory, make_directory, raising_disk_full
from store.errors import StoreFormatError
from store.notes import Notes

if TYPE_CHECKING:
    from pathlib import Path

    from store.log import SegmentSet

logger = logging.getLogger(__name__)

DIRECTORY = "snapshots"
COPY = "copy"
STATE_FILE = "state.sst"
ENDS_FILE = "ends.sst"
_MARK = "mark"
_SEALED = "sealed"
#: All of a sealed snapshot but its copy. The seal last.
SEALED_FILES = (STATE_FILE, ENDS_FILE, _MARK, _SEALED)
_UNFINISHED = ".tmp"
_FORM = 1
#: Bytes of the log below the point that are compared.
_TAIL_BYTES = 4096


@dataclass(frozen=True)
class Mark:
    """Identifies the log of a snapshot. An offset is not enough: after a power loss the log may
    grow past it again, with other records."""

    point: int  # physical offset, a record's end
    tail_bytes: int  # of the log, before the point
    tail_crc: int  # CRC-32C of them
    taken_ms: int = 0  # ms since 1970
    form: int = _FORM

    @classmethod
    def of(cls, segments: SegmentSet, point: int, now_ms: int) -> Mark:
        """The mark of the log up to `point`."""
        tail = _tail(segments, point, _TAIL_BYTES)
        return cls(point, len(tail), crc32c(tail), now_ms)

    def fits(self, segments: SegmentSet) -> bool:
        """Whether the log has these bytes there."""
        if not segments.first_offset <= self.point <= segments.end_offset:
            return False
        tail = _tail(segments, self.point, self.tail_bytes)
        if len(tail) < self.tail_bytes:  # dropped, and nothing else goes without a flush
            return self.point == segments.first_offset
        return crc32c(tail) == self.tail_crc


def _tail(segments: SegmentSet, point: int, most: int) -> bytes:
    """Up to `most` bytes of the log before `point`, within one segment."""
    segment = segments.find(point - 1)
    if segment is None:
        return b""
    at = point - segment.start_offset
    first = max(0, at - most)
    return segment.pread(first, at - first)


class SealedFile(NamedTuple):
    """A file of sorted rows."""

    rows: int
    size: int  # bytes
    crc: int  # CRC-32C of the whole file


class Snapshot:
    """A snapshot in its directory, complete except perhaps for its seal."""

    def __init__(self, path: Path, mark: Mark) -> None:
        self.path = path
        self.mark = mark
        self._notes = Notes(path)
        # Its sealed files; they are written once.
        self._sealed: dict[str, SealedFile] | None = None

    @classmethod
    def write(cls, directory: Path, mark: Mark, copy: Path) -> Snapshot:
        """Turn the database `copy`, which is moved, into a snapshot in `directory`.

        Durable on return; a crash before that leaves a directory that does not count as a snapshot.
        Raises OSError, DiskFullError.
        """
        path = directory / f"{mark.point:020}"
        unfinished = path.with_name(path.name + _UNFINISHED)
        shutil.rmtree(unfinished, ignore_errors=True)
        document = json.dumps(asdict(mark)).encode()
        with raising_disk_full(unfinished, len(document)):
            make_directory(unfinished)
            copy.rename(unfinished / COPY)
            Notes(unfinished).put(_MARK, document)
        if path.exists():  # left by one that could not be read
            shutil.rmtree(path)
        unfinished.rename(path)
        fsync_directory(directory)
        return cls(path, mark)

    @classmethod
    def read(cls, path: Path) -> Snapshot:
        """Raises StoreFormatError if it is not a snapshot, or is damaged."""
        data = Notes(path).get(_MARK)
        if data is None:
            raise StoreFormatError(path, "is not a snapshot: it has no mark")
        try:
            document = json.loads(data)
            if document["form"] != _FORM:
                raise StoreFormatError(path, "has an unknown form: a newer version wrote it")
            return cls(path, Mark(**document))
        except (ValueError, TypeError, KeyError) as error:
            raise StoreFormatError(path / _MARK, f"damaged: {error}") from error

    @property
    def point(self) -> int:
        return self.mark.point

    @property
    def copy(self) -> Path:
        return self.path / COPY

    @property
    def is_sealed(self) -> bool:
        """Whether it has a readable seal."""
        try:
            return self._sealed is not None or self._notes.get(_SEALED) is not None
        except StoreFormatError as error:
            logger.error("a snapshot is sealed anew: %s", error)
            return False

    @property
    def was_sealed(self) -> bool:
        """Whether it has a seal, readable or not."""
        return (self.path / _SEALED).exists()

    @property
    def sealed_bytes(self) -> int:
        """Size of its sealed files; 0 before it is sealed."""
        return sum(file.size for file in self.sealed_files().values()) if self.is_sealed else 0

    def sealed_files(self) -> dict[str, SealedFile]:
        """The sealed files by name. Raises StoreFormatError if the snapshot is not sealed, or the
        seal is damaged."""
        if self._sealed is None:
            data = self._notes.get(_SEALED)
            if data is None:
                raise StoreFormatError(self.path, "is not sealed")
            self._sealed = {name: SealedFile(*file) for name, file in json.loads(data).items()}
        return self._sealed

    def seal(self, files: dict[str, int]) -> None:
        """Seal these complete files, given by name with their numbers of rows. Durable on
        return. Raises OSError, DiskFullError."""
        sealed = {
            name: SealedFile(rows, (self.path / name).stat().st_size, _crc_of(self.path / name))
            for name, rows in files.items()
        }
        document = json.dumps(sealed).encode()
        with raising_disk_full(self.path, len(document)):
            self._notes.put(_SEALED, document)

    def verified_files(self) -> dict[str, Path]:
        """The sealed files, read and verified completely. Raises StoreFormatError."""
        found = {}
        for name, file in self.sealed_files().items():
            path = self.path / name
            if not path.exists() or path.stat().st_size != file.size or _crc_of(path) != file.crc:
                raise StoreFormatError(path, "is not the file that was sealed")
            found[name] = path
        return found

    def remove_copy(self) -> None:
        """Keep only the sealed files. Repeatable."""
        _remove(self.copy)

    def remove(self) -> None:
        """Remove it. Repeatable. What a crash leaves of it does not count as a snapshot."""
        _remove(self.path)


def _remove(directory: Path) -> None:
    """Renames it first, so that an incomplete one never has the name."""
    gone = directory.with_name(directory.name + _UNFINISHED)
    shutil.rmtree(gone, ignore_errors=True)
    if directory.exists():
        directory.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def _crc_of(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            crc = crc32c(piece, crc)
    return crc


def snapshots_in(directory: Path, *, read_only: bool = False) -> list[Snapshot]:
    """The readable snapshots, by point. Incomplete ones left by a crash are removed, and unreadable
    ones logged, unless `read_only`."""
    found = []
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        if path.name.endswith(_UNFINISHED):
            if not read_only:
                shutil.rmtree(path, ignore_errors=True)
            continue
        try:
            found.append(Snapshot.read(path))
        except StoreFormatError as error:
            if not read_only:
                logger.error("a snapshot is not used, remove it: %s", error)
    return found
