"""Verifies backups: reads every file in their place, and compares it with the manifests."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NamedTuple

from kvcq.backup.manifest import MARKER, created_of_marker, manifest_name
from kvcq.backup.reading import backup_ids, kept_files, read_backup
from kvcq.engine.rocks import crc32c
from kvcq.errors import BackupDamagedError, BackupRefusedError, BackupTargetError
from store.base import no_progress

if TYPE_CHECKING:
    from kvcq.backup.manifest import Backup, BackupFile
    from kvcq.backup.places import Place
    from store.base import Progress


class Broken(NamedTuple):
    """A file that is not what it should be."""

    name: str  # in the place
    reason: str
    backups: tuple[str, ...]  # ids of the backups that need it


class Verified(NamedTuple):
    """How much was verified, and what is wrong with it."""

    backups: int
    files: int
    size: int  # bytes
    broken: tuple[Broken, ...]
    unused: int  # files that no backup needs, left by a backup that did not finish


def verify(
    place: Place,
    backup_id: str | None = None,
    progress: Progress = no_progress,
) -> Verified:
    """Read and compare every byte of one backup, or of all if `backup_id` is None. Writes nothing.

    Raises BackupRefusedError if there is no such backup, BackupTargetError if the place cannot be
    read.
    """
    ids = backup_ids(place)
    if backup_id is not None and backup_id not in ids:
        raise BackupRefusedError(f"{place.url} has no backup {backup_id!r}")
    wanted = ids if backup_id is None else [backup_id]
    if not wanted:
        raise BackupRefusedError(f"{place.url} has no complete backup")
    backups: list[Backup] = []
    broken: list[Broken] = []
    for each in wanted:
        try:
            backups.append(read_backup(place, each))
        except BackupDamagedError as error:
            broken.append(Broken(manifest_name(each), str(error), (each,)))
    if reason := _fault_of_marker(place, backups):
        broken.append(Broken(MARKER, reason, tuple(ids)))
    needed: dict[str, list[str]] = {}
    files: dict[str, BackupFile] = {}
    for backup in backups:
        for file in backup.files:
            needed.setdefault(file.name, []).append(backup.backup_id)
            files[file.name] = file
    total = sum(file.size for file in files.values())
    sizes = kept_files(place)
    done = 0
    for name, file in files.items():
        reason = check_file(place, file, sizes.get(name))
        if reason:
            broken.append(Broken(name, reason, tuple(needed[name])))
        done += file.size
        progress("files", done / max(1, total))
    unused = 0 if backup_id is not None or len(backups) < len(wanted) else len(sizes.keys() - files)
    return Verified(len(backups), len(files), total, tuple(broken), unused)


def _fault_of_marker(place: Place, backups: list[Backup]) -> str:
    """What is wrong with the marker file, which names the store of these backups; empty if
    nothing is."""
    try:
        owner = created_of_marker(b"".join(place.read(MARKER)))
    except BackupDamagedError as error:
        return str(error)
    others = [one.backup_id for one in backups if one.store_created_ms != owner]
    return f"names another store than the manifest of {others[0]}" if others else ""


def check_file(place: Place, file: BackupFile, size: int | None) -> str:
    """What is wrong with the file; empty if nothing is. `size`: as listed; None: it is missing."""
    if size is None:
        return "is missing"
    if size != file.size:
        return f"has {size} bytes, not {file.size}"
    crc = found = 0
    try:
        for piece in place.read(file.name):
            crc = crc32c(piece, crc)
            found += len(piece)
    except BackupDamagedError as error:
        return str(error)
    except BackupTargetError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno == errno.EIO:  # affects only this file
            return f"cannot be read: {cause.strerror}"
        raise
    if found != file.size:
        return f"has {found} bytes, not {file.size}"
    return "" if crc == file.crc else "is damaged: its CRC-32C does not fit"
