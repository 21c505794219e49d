"""Copies the files of one backup to their place, and writes the manifest last.

It only knows files, not their store, so another process can run it.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kvcq.backup.directory import pieces_of
from kvcq.backup.manifest import (
    FILES,
    MARKER,
    Backup,
    BackupFile,
    created_of_marker,
    manifest_name,
    pack_manifest,
    pack_marker,
)
from kvcq.backup.places import open_place
from kvcq.backup.reading import backup_ids, kept_files, newest_backup, read_backup
from kvcq.engine.rocks import crc32c
from kvcq.errors import BackupDamagedError, BackupError, BackupRefusedError, BackupTargetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kvcq.backup.places import Place

    #: Called with the place of the file that is being copied, and the bytes of all that are done.
    Report = Callable[[str, int], None]


logger = logging.getLogger(__name__)


class Source(NamedTuple):
    """A file to copy. Bytes behind `size` are ignored; bytes before it never change."""

    place: str
    path: str
    size: int
    may_link: bool  # nothing is ever appended to it


@dataclass(frozen=True)
class CopyPlan:
    """Which files to copy, and where."""

    url: str
    backup: Backup  # without its files
    sources: tuple[Source, ...]
    rate: int  # bytes a second; 0: as fast as can be
    link: bool  # hard links where possible, instead of copies

    @property
    def size(self) -> int:
        return sum(source.size for source in self.sources)


class Taken(NamedTuple):
    """A finished backup."""

    backup: Backup
    new_files: int
    new_bytes: int  # bytes that were copied; the rest was there


class Pace:
    """Limits a copy to a number of bytes a second."""

    def __init__(
        self,
        rate: int,
        now_s: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """`rate`: bytes a second; 0 for no limit."""
        self._rate = rate
        self._now_s = now_s
        self._wait = wait
        self._due_s = now_s()

    def pass_on(self, size: int) -> None:
        """Wait until `size` more bytes may be copied. A pause earns no credit."""
        if not self._rate:
            return
        now_s = self._now_s()
        self._due_s = max(self._due_s, now_s) + size / self._rate
        if self._due_s > now_s:
            self._wait(self._due_s - now_s)


def check_owner(place: Place, created_ms: int, segment_bytes: int) -> None:
    """Check that the place keeps backups of this store, or claim an empty place for it.

    If the marker is missing or damaged, the manifests decide whose backups they are, and it is
    written again. Raises BackupRefusedError if the place belongs to another store,
    BackupDamagedError if no file there shows whose it is.
    """
    try:
        owners = {created_of_marker(b"".join(place.read(MARKER)))}
    except BackupDamagedError as error:
        ids = backup_ids(place)
        owners = set(_owners(place, ids)) if ids else {created_ms}
        if not owners:
            raise
        if ids:
            logger.warning("%s: %s; it is written again", place.url, error)
        if owners == {created_ms}:
            place.put_bytes(MARKER, pack_marker(created_ms, segment_bytes))
    if owners != {created_ms}:
        raise BackupRefusedError(
            f"{place.url} has the backups of another store. Choose another place"
        )


def _owners(place: Place, ids: Iterable[str]) -> Iterator[int]:
    """Creation times of the stores of these backups, as far as their manifests can be read."""
    for backup_id in ids:
        with suppress(BackupDamagedError):
            yield read_backup(place, backup_id).store_created_ms


def copy_files(plan: CopyPlan, report: Report) -> Taken:
    """Copy all files to the place, then write the manifest.

    Reuses files of an earlier attempt. If `report` raises, the backup stops; a later one continues.
    Raises BackupTargetError; BackupError if a file of the store has changed. Durability: every
    file, and then the manifest, survive a power loss.
    """
    place = open_place(plan.url)
    copy = _Copy(place, plan, report)
    files = tuple(copy.file(source) for source in plan.sources)
    # The target's own listing: if a file was removed meanwhile, or is too short, the backup is
    # incomplete.
    there = kept_files(place)
    for file in files:
        if there.get(file.name) != file.size:
            raise BackupTargetError(f"{plan.url}: {file.name} is not there as it was put")
    backup = replace(plan.backup, files=files)
    place.put_bytes(manifest_name(backup.backup_id), pack_manifest(backup))
    return Taken(backup, copy.new_files, copy.new_bytes)


class _Copy:
    def __init__(self, place: Place, plan: CopyPlan, report: Report) -> None:
        self._place = place
        self._plan = plan
        self._report = report
        self._pace = Pace(plan.rate)
        self._there = kept_files(place)
        try:
            before = newest_backup(place)
        except BackupDamagedError:
            before = None  # all is read again, and nothing else is lost
        self._known = {} if before is None else {file.place: file for file in before.files}
        self._done = 0
        self.new_files = 0
        self.new_bytes = 0

    def file(self, source: Source) -> BackupFile:
        """Copy it unless the place has it already."""
        path = Path(source.path)
        try:
            found = path.stat()
            identity = found.st_ino, found.st_mtime_ns
            known = self._known.get(source.place)
            if (
                known is not None
                and (known.size, known.source) == (source.size, identity)
                and self._there.get(known.name) == known.size
            ):
                self._tell(source, source.size)
                return known
            return self._put(source, path, identity)
        except (FileNotFoundError, IsADirectoryError) as error:
            raise BackupError(f"{source.path} is gone: {error.strerror}") from error

    def _put(self, source: Source, path: Path, identity: tuple[int, int]) -> BackupFile:
        stem = f"{FILES}{source.place}"
        may_be_there = any(name.startswith(f"{stem}.{source.size}.") for name in self._there)
        may_link = self._plan.link and source.may_link
        file: BackupFile | None = None
        if self._place.names_first or may_be_there or may_link:
            with path.open("rb") as opened:
                crc = 0
                for piece in pieces_of(opened.fileno(), source.size):
                    self._pace.pass_on(len(piece))
                    crc = crc32c(piece, crc)
                    self._tell(source, 0)
            file = BackupFile(source.place, source.size, crc, identity)
            if self._there.get(file.name) == file.size:
                self._tell(source, source.size)
                return file
            self.new_files += 1
            if may_link and self._place.link(file.name, path):
                self._tell(source, source.size)
                return file
        else:
            self.new_files += 1
        crc = 0

        def tell(piece: bytes) -> None:
            nonlocal crc
            self._pace.pass_on(len(piece))
            if file is None:
                crc = crc32c(piece, crc)
            self.new_bytes += len(piece)
            self._tell(source, len(piece))

        def done() -> BackupFile:
            return file or BackupFile(source.place, source.size, crc, identity)

        self._place.put(stem, path, source.size, tell, lambda: done().name)
        return done()

    def _tell(self, source: Source, size: int) -> None:
        self._done += size
        self._report(source.place, self._done)
