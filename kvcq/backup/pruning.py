"""Removes old backups, and the files that no remaining backup needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvcq.backup.manifest import FILES, is_file, manifest_name
from kvcq.backup.reading import backup_ids, kept_files, read_backup
from kvcq.errors import BackupRefusedError
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from kvcq.backup.places import Place


class Pruned(NamedTuple):
    """The backups and files that were removed."""

    backup_ids: tuple[str, ...]
    files: int
    size: int  # bytes of them


def prune(place: Place, keep: int, *, only_tell: bool = False) -> Pruned:
    """Remove all but the newest `keep` backups. With `only_tell`, report and remove nothing.

    No backup may run to this place meanwhile, because no manifest names its files yet. Such a
    backup loses files, notices that and fails, unless it finishes while they are being removed.
    Repeatable: manifests are removed first, the oldest first, so a crash leaves complete backups,
    and files that the next call removes.

    Raises InvalidArgumentError, BackupTargetError. Raises BackupDamagedError, before anything is
    removed, if a manifest to be kept cannot be read, because the files it needs are unknown.
    Raises BackupRefusedError if a backup finished meanwhile; the error says whether it lost files.
    """
    if keep < 1:
        raise InvalidArgumentError("keep", f"{keep} is below 1")
    ids = backup_ids(place)
    gone, kept = ids[:-keep], ids[-keep:]
    needed = {file.name for each in kept for file in read_backup(place, each).files}
    unneeded = {
        name: size for name, size in kept_files(place).items() if kept and name not in needed
    }
    if not only_tell:
        for each in gone:
            place.remove(manifest_name(each))
        _check_late(place, kept)
        for name in sorted(unneeded):
            place.remove(name)
        if kept:
            for name in filter(is_file, place.unfinished(FILES)):
                place.remove(name)
        _check_late(place, kept)
    return Pruned(tuple(gone), len(unneeded), sum(unneeded.values()))


def _check_late(place: Place, known: list[str]) -> None:
    """Raises BackupRefusedError if there are backups other than `known`."""
    for backup_id in backup_ids(place):
        if backup_id in known:
            continue
        sizes = kept_files(place)
        if all(sizes.get(one.name) == one.size for one in read_backup(place, backup_id).files):
            raise BackupRefusedError(
                f"{place.url}: backup {backup_id} was taken meanwhile. It is complete; prune again"
            )
        raise BackupRefusedError(
            f"{place.url}: backup {backup_id} was taken while files were being removed, and has "
            "lost some of them. Take another backup, and never run a backup and a prune together"
        )
