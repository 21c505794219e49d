"""Restores a backup to a new store directory, whole or cut at a point in time.

The result is what a crash would have left: segments up to the cut, the mark of a store that was not
closed, and a database that is not ahead of them. A cut log has no database: the next opening builds
it from the newest snapshot before the cut, and from the log. Everything is written beside the
directory, under `<name>.restoring`, which is renamed once it is complete and durable.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from kvcq.backup.log_cut import LogEnd, find_end
from kvcq.backup.manifest import QUEUES, SEGMENTS, Backup, BackupFile
from kvcq.engine.rocks import crc32c
from kvcq.errors import BackupDamagedError, BackupError, BackupRefusedError
from kvcq.snapshots import DIRECTORY, snapshots_in
from store.base import (
    DIRECTORY_MODE,
    fsync_directory,
    make_directory,
    no_progress,
    open_new,
    raising_disk_full,
)
from store.errors import InvalidArgumentError, StoreFormatError
from store.format import (
    MIN_RECORD_BYTES,
    Checkpoint,
    Found,
    check_record,
    place_of,
    store_time_of,
    unpack_record,
    write_checkpoint,
)
from store.log import SegmentSet, free_bytes, read_falls, read_kept_again, write_kept_again
from store.state import STATE_TOPIC
from store.store_dir import FORMAT_VERSION, StoreDir, inspect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kvcq.backup.places import Place
    from store.base import Progress

_SUFFIX = ".restoring"
#: Disk space that must be free besides the restored files, since opening writes to the databases.
_SPARE_BYTES = 64 << 20


class Cut(NamedTuple):
    """Where the log should end; without limits, at the end of the backup."""

    until_ms: int | None = None  # messages stored later are left out
    until_offset: int | None = None  # records that end after this physical offset are left out


class Restored(NamedTuple):
    """A store that was restored."""

    root: Path
    backup: Backup
    end_offset: int  # physical: of its log
    last_time_ms: int  # store time of its last record; 0 without one
    size: int  # bytes read from the backup
    #: From this physical offset on, a cut has all delayed messages, open transactions and dead
    #: letters; before it some may be missing. None: all are there.
    held_from: int | None


def restore(
    place: Place,
    backup: Backup,
    root: Path,
    cut: Cut = Cut(),  # noqa: B008 - an immutable value
    *,
    segments_only: bool = False,
    progress: Progress = no_progress,
) -> Restored:
    """Restore `backup` to `root`, durably. `root` must be absent or empty.

    `segments_only`: without `kvcq/`, which the first opening, or the Spark job, rebuilds from
    snapshots and log. Raises InvalidArgumentError for a cut outside the backup, before the end of
    its first message, or before its first snapshot if the log, or the records of its state, do not
    begin at 0; BackupRefusedError if `root` is not empty or another restore writes there;
    BackupDamagedError if a file does not match; BackupTargetError, DiskFullError. On an error
    `root` is unchanged; the next restore removes files under `<root>.restoring`.
    """
    root = root.absolute()
    _check_cut(place, backup, cut)
    _check_free(root)
    files, cut_from = _wanted(place, backup, cut, segments_only=segments_only)
    new = root.with_name(root.name + _SUFFIX)
    make_directory(root.parent)
    with _claimed(new):
        try:
            _check_space(root.parent, files, backup.segment_bytes)
        except BackupRefusedError:
            new.rmdir()
            raise
        end, held_from = _restore_to(new, place, backup, files, cut, cut_from, progress)
        _check_free(root)
        new.rename(root)  # an empty directory may be in the way
        fsync_directory(root.parent)
    progress("the end of the log", 1.0)
    size = sum(file.size for file in files)
    return Restored(root, backup, end.end_offset, end.last_time_ms, size, held_from)


def _restore_to(
    new: Path,
    place: Place,
    backup: Backup,
    files: list[BackupFile],
    cut: Cut,
    cut_from: int,
    progress: Progress,
) -> tuple[LogEnd, int | None]:
    """Write the store to the empty directory, durably. Returns the log's end, and `held_from`."""
    directory = StoreDir(new)
    directory.commitlog.mkdir(DIRECTORY_MODE)
    _fetch(place, files, new, backup.segment_bytes, progress)
    progress("the end of the log", 0.0)
    end = _cut_log(directory, backup, cut, cut_from)
    held_from: int | None = None
    if end.end_offset < backup.end_offset:
        _check_state(directory, backup, end.end_offset)
        shutil.rmtree(directory.kvcq, ignore_errors=True)
        held_from = _held_from(directory, end.end_offset)
    write_checkpoint(
        directory.checkpoint,
        Checkpoint(
            log_time_ms=end.last_time_ms,
            queue_time_ms=end.last_time_ms,  # ignored if the queues are rebuilt
            flushed_offset=end.end_offset,
        ),
    )
    directory.mark_open()  # as after a crash
    for path in (new, *(each for each in new.rglob("*") if each.is_dir())):
        fsync_directory(path)
    return end, held_from


def _held_from(directory: StoreDir, end: int) -> int | None:
    """See Restored. What the log kept by appending it again behind the cut was, at the cut, in
    segments that are gone."""
    kept_again = read_kept_again(directory.notes)
    if kept_again <= end:
        return None
    write_kept_again(directory.notes, end)
    return kept_again


@contextmanager
def _claimed(new: Path) -> Iterator[None]:
    """Create an empty directory that only this restore uses. Raises BackupRefusedError."""
    new.mkdir(DIRECTORY_MODE, exist_ok=True)
    descriptor = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = new.exists() and os.path.samestat(new.stat(), os.fstat(descriptor))
        except BlockingIOError:
            is_ours = False
        if not is_ours:  # the other one may have ended just now, and given it its name
            raise BackupRefusedError(f"another restore is writing to {new}. Wait until it ends")
        for path in new.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        yield
    finally:
        os.close(descriptor)


def _check_cut(place: Place, backup: Backup, cut: Cut) -> None:
    """Check before anything is written. A cut that would leave no message is rejected as a
    mistake."""
    at = cut.until_offset
    if at is not None and not backup.start_offset <= at <= backup.end_offset:
        raise InvalidArgumentError(
            "until_offset",
            f"{at} is outside the log of backup {backup.backup_id}, {backup.start_offset} to "
            f"{backup.end_offset}",
        )
    if cut.until_ms is not None and cut.until_ms >= backup.taken_ms:
        raise InvalidArgumentError(
            "until_ms",
            f"{cut.until_ms} ms is after backup {backup.backup_id} was taken. Restore all of it, "
            "or name an earlier time",
        )
    if cut == Cut() or (first := _first_batch(place, backup.segments[0])) is None:
        return
    if at is not None and at < first.end_offset:
        raise InvalidArgumentError(
            "until_offset",
            f"{at} would leave no message: the first message of backup {backup.backup_id} ends at "
            f"{first.end_offset}. Name that offset, or a higher one",
        )
    if cut.until_ms is not None and cut.until_ms < first.last_time_ms:
        raise InvalidArgumentError(
            "until_ms",
            f"{_shown(cut.until_ms)} would leave no message: the first message of backup "
            f"{backup.backup_id} was stored {_shown(first.last_time_ms)}. Name that time, or a "
            "later one",
        )


def _shown(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _first_batch(place: Place, segment: BackupFile) -> LogEnd | None:
    """The end of the segment's first batch, or of its first message if that was put alone; None if
    it begins with neither."""
    for found, is_whole in _first_records(place, segment):
        if is_whole:
            return found
    return None


def _check_free(root: Path) -> None:
    # The directory beside it is on another disk, and cannot be renamed to it.
    if os.path.ismount(root):
        raise BackupRefusedError(f"{root} is a mount point: restore to a directory below it")
    if root.is_symlink():  # a directory cannot be renamed to it
        raise BackupRefusedError(
            f"{root} is a symbolic link: restore to the directory that it points to"
        )
    if not root.exists():
        return
    if not root.is_dir() or any(root.iterdir()):
        raise BackupRefusedError(
            f"{root} already exists and is not empty. Restore to another directory, or remove it"
        )


def _check_space(parent: Path, files: list[BackupFile], segment_bytes: int) -> None:
    """Check before anything is written, since a full disk may affect other programs too."""
    needed = _SPARE_BYTES + sum(
        segment_bytes if file.place.startswith(SEGMENTS) else file.size for file in files
    )
    free = free_bytes(parent)
    if free < needed:
        raise BackupRefusedError(
            f"{parent} has {free:,} bytes free; the store needs {needed:,}. Restore to another disk"
        )


def _wanted(
    place: Place, backup: Backup, cut: Cut, *, segments_only: bool
) -> tuple[list[BackupFile], int]:
    """The files to restore, without segments that begin after the cut, but at least one; and the
    physical offset of a segment that the cut is not before."""
    segments = backup.segments
    limit = len(segments)
    if cut.until_offset is not None:
        limit = max(1, -(-(cut.until_offset - backup.start_offset) // backup.segment_bytes))
    last = limit - 1
    if cut.until_ms is not None:
        # A segment whose first record is damaged counts as old as those before it.
        while last:
            begins_ms = _begins_ms(place, segments[last])
            if begins_ms is not None:
                if begins_ms <= cut.until_ms:
                    break
                limit = last
            last -= 1
    gone = {file.place for file in segments[limit:]}
    files = [
        file
        for file in backup.files
        if file.place not in gone and not (segments_only and file.place.startswith(QUEUES))
    ]
    return files, backup.start_offset + last * backup.segment_bytes


def _begins_ms(place: Place, segment: BackupFile) -> int | None:
    """Store time of its first record; None if it begins with none."""
    first = next(_first_records(place, segment), None)
    return None if first is None else first[0].last_time_ms


def _first_records(place: Place, segment: BackupFile) -> Iterator[tuple[LogEnd, bool]]:
    """Yield the log's end after each of its first messages, and whether a batch ends there."""
    start = int(segment.place.removeprefix(SEGMENTS))
    data, at = b"", 0
    for piece in place.read(segment.name):
        start += at
        data, at = data[at:] + piece, 0  # without what was read: that may be most of a segment
        while len(data) - at >= _length(data, at):
            checked = check_record(memoryview(data), at, len(data), start + at)
            if checked.found is not Found.RECORD:
                return
            size = checked.size
            if unpack_record(data[at : at + size], verify=False).topic != STATE_TOPIC:
                of_batch = place_of(data, at)
                end = LogEnd(start + at + size, store_time_of(data, at))
                yield end, of_batch is None or of_batch.is_last
            at += size


def _length(data: bytes, at: int) -> int:
    return max(MIN_RECORD_BYTES, int.from_bytes(data[at : at + 4], "big", signed=True))


def _fetch(
    place: Place, files: list[BackupFile], root: Path, segment_bytes: int, progress: Progress
) -> None:
    """Copy the files to `root`, durably, and verify their checksums."""
    total = max(1, sum(file.size for file in files))
    done = 0
    for file in files:
        path = root / file.place
        path.parent.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        crc = size = 0
        length = segment_bytes if file.place.startswith(SEGMENTS) else file.size
        with (
            raising_disk_full(path, length),
            open(path, "wb", buffering=0, opener=open_new) as target,
        ):
            if length:
                os.posix_fallocate(target.fileno(), 0, length)
            for piece in place.read(file.name):
                crc = crc32c(piece, crc)
                size += len(piece)
                if size > file.size:
                    break
                left = memoryview(piece)
                while left:
                    left = left[target.write(left) :]
                done += len(piece)
                progress("files", min(1.0, done / total))
            if (size, crc) != (file.size, file.crc):
                raise BackupDamagedError(
                    f"{file.name} in {place.url} is damaged: {size} bytes with CRC-32C {crc:08x}"
                )
            os.fsync(target.fileno())


def _cut_log(directory: StoreDir, backup: Backup, cut: Cut, cut_from: int) -> LogEnd:
    """Cut the log durably where it is to end, not before `cut_from`. Raises BackupError if the
    directory is not a store."""
    try:
        _, identity = inspect(directory.root)
        if identity is None:
            raise BackupError(f"backup {backup.backup_id} does not contain a kvcq store")
        segments = SegmentSet.load(directory.commitlog, identity.segment_bytes)
    except StoreFormatError as error:
        raise BackupError(f"the store in backup {backup.backup_id} is invalid: {error}") from error
    with closing(segments):
        size = backup.segment_bytes
        limit = segments.first_offset + len(segments) * size
        end = min(limit, backup.end_offset)
        # From the segment before that: a batch may begin there.
        start = max(segments.first_offset, cut_from - size)
        until_ms = cut.until_ms
        if until_ms is not None and _may_fall_to(until_ms, directory):
            start = segments.first_offset  # the first message that is later may be anywhere
        found = find_end(segments, start, end, until_ms=until_ms, until_offset=cut.until_offset)
        segments.truncate(found.end_offset)
        return found


def _may_fall_to(until_ms: int, directory: StoreDir) -> bool:
    """Whether store times may fall from above that time."""
    try:
        return any(fall.before_ms > until_ms for fall in read_falls(directory.notes, 0))
    except StoreFormatError:
        return True  # the next opening looks for them in the log


def _check_state(directory: StoreDir, backup: Backup, end: int) -> None:
    """Check that the state at the log's new end can be rebuilt. Raises InvalidArgumentError."""
    is_old = directory.format_version < FORMAT_VERSION  # topics and groups of then are in meta/
    if max(backup.start_offset, directory.base_offset) == 0 or is_old:
        return
    points = [each.point for each in snapshots_in(directory.root / DIRECTORY)]
    if not any(point <= end for point in points):
        lowest = f"its oldest snapshot is of {min(points)}" if points else "it has no snapshot"
        raise InvalidArgumentError(
            "until_offset",
            f"backup {backup.backup_id} cannot restore topics and groups as of offset {end}: "
            f"{lowest}",
        )
