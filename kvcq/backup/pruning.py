"""Removes backups that are not wanted any more, and the files that only they needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvcq.backup.manifest import FILES, is_file, manifest_name
from kvcq.backup.reading import backup_ids, kept_files, read_backup
from kvcq.errors import BackupRefusedError
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from kvcq.backup.places import Place


class Pruned(NamedTuple):
    """What is gone."""

    backup_ids: tuple[str, ...]
    files: int
    size: int  # bytes of them


def prune(place: Place, keep: int, *, only_tell: bool = False) -> Pruned:
    """The newest `keep` backups are left, and the files that they need. `only_tell`: nothing goes.

    No backup may be taken there meanwhile: its files are needed by no manifest yet. One that is
    loses files, notices, and fails, unless it ended while they were being removed. Repeatable:
    manifests go first, oldest first, so that a crash leaves whole backups, and files that the next
    call removes.
    Raises InvalidArgumentError, BackupTargetError; BackupDamagedError when a manifest that is to
    stay cannot be read: what it needs is not known. Nothing is removed then. BackupRefusedError
    when a backup ended meanwhile, which says whether it has lost files.
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
    """Raises BackupRefusedError when there are other backups than these."""
    for backup_id in backup_ids(place):
        if backup_id in known:
            continue
        there = kept_files(place)
        if all(there.get(one.name) == one.size for one in read_backup(place, backup_id).files):
            raise BackupRefusedError(f"{place.url}: {backup_id} was taken meanwhile: prune again")
        raise BackupRefusedError(
            f"{place.url}: {backup_id} was taken while files were removed, and has lost some: take "
            "another one, and let no backup run beside a prune"
        )
