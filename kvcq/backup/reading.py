"""Which backups a place keeps, and which of them is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq.backup.manifest import FILES, MANIFESTS, is_file, is_id, manifest_name, unpack_manifest
from kvcq.errors import BackupDamagedError, BackupRefusedError

if TYPE_CHECKING:
    from kvcq.backup.manifest import Backup
    from kvcq.backup.places import Place


def backup_ids(place: Place) -> list[str]:
    """Ids of all manifests in the place, oldest first."""
    names = (name.removeprefix(MANIFESTS) for name in place.sizes(MANIFESTS))
    ids = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return sorted(filter(is_id, ids))


def kept_files(place: Place) -> dict[str, int]:
    """All files of backups in the place, needed or not: names and bytes."""
    return {name: size for name, size in place.sizes(FILES).items() if is_file(name)}


def read_backup(place: Place, backup_id: str) -> Backup:
    """Raises BackupDamagedError, BackupTargetError, BackupRefusedError."""
    name = manifest_name(backup_id)
    return unpack_manifest(name, b"".join(place.read(name)))


def list_backups(place: Place) -> list[Backup]:
    """Oldest first. One whose manifest is damaged raises BackupDamagedError."""
    return [read_backup(place, each) for each in backup_ids(place)]


def newest_backup(place: Place) -> Backup | None:
    """The newest backup; None if there is none."""
    ids = backup_ids(place)
    return read_backup(place, ids[-1]) if ids else None


def choose_by_id(place: Place, backup_id: str | None) -> Backup:
    """The backup with that id, or the newest. Raises BackupRefusedError if there is none."""
    ids = backup_ids(place)
    if not ids:
        raise BackupRefusedError(f"{place.url} has no complete backup")
    if backup_id is not None and backup_id not in ids:
        raise BackupRefusedError(
            f"{place.url} has no backup {backup_id!r}; the newest is {ids[-1]}"
        )
    return read_backup(place, backup_id or ids[-1])


def choose_backup(
    place: Place, *, until_ms: int | None = None, until_offset: int | None = None
) -> Backup:
    """The oldest backup whose log reaches that point; the newest without a limit.

    The oldest, because topics and committed offsets are those of the time of the backup. Raises
    BackupRefusedError if none reaches that far, or all begin after it.
    """
    if until_ms is None and until_offset is None:
        return choose_by_id(place, None)
    found = []
    for backup_id in backup_ids(place):
        try:
            found.append(read_backup(place, backup_id))
        except BackupDamagedError:
            continue  # another one may do; `verify` reports this one
    if not found:
        raise BackupRefusedError(f"{place.url} has no complete backup")
    for backup in found:
        if (until_ms is None or backup.taken_ms > until_ms) and (
            until_offset is None or backup.end_offset >= until_offset
        ):
            return backup
    newest = found[-1]
    raise BackupRefusedError(
        f"no backup in {place.url} reaches that far. The newest, {newest.backup_id}, ends at "
        f"physical offset {newest.end_offset}. Restore all of it, or name an earlier point"
    )
