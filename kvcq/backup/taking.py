"""Takes a backup of an open store.

| step                                        | what holds then                                   |
|---------------------------------------------|---------------------------------------------------|
| the log is held                             | retention drops no segment of it                  |
| log flushed, database flushed               | all that was acknowledged before is in both       |
| a copy of `kvcq/` at one point              | the log up to there is the log of the backup      |
| a sealed snapshot of now                    | a restore to a point has one before it            |
| files copied, those of the log one by one   | the hold moves on behind them                     |
| the manifest                                | the backup is one                                 |
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kvcq.backup.copying import CopyPlan, Source, check_owner, copy_files
from kvcq.backup.manifest import QUEUES, SEGMENTS, Backup, id_of
from kvcq.backup.places import open_place
from kvcq.backup.reading import backup_ids
from kvcq.engine.rocks import DERIVED, RocksEngine
from kvcq.errors import BackupRefusedError
from kvcq.snapshots import DIRECTORY, SEALED_FILES, snapshots_in
from kvcq.state_store import KvStateStore
from store.base import SystemClock
from store.log import segment_name
from store.store_dir import StoreDir, inspect

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq.backup.copying import Report, Taken
    from kvcq.consume_queue_store import KvConsumeQueueStore
    from store.base import Clock
    from store.log import LogHold
    from store.message_store import MessageStore

    #: How files are copied: `copy_files`, or a process that does it.
    Copy = Callable[[CopyPlan, Report], Taken]

#: Files in a store beside its log and databases; each may be missing.
_LOOSE = ("store.json", "migration.json")
#: Files that only the database itself uses.
_NOT_COPIED = ("LOCK", "LOG")


def take_backup(
    store: MessageStore,
    queues: KvConsumeQueueStore,
    url: str,
    *,
    rate: int = 0,
    link: bool = False,
    report: Callable[[str, int, int], None] = lambda _step, _done, _total: None,
    copy: Copy = copy_files,
    clock: Clock | None = None,
) -> Taken:
    """Back up the open store to the place `url`, durably. The store stays in use.

    `queues` must have all queues of the store. `rate`: bytes read a second, 0 for no limit. `link`:
    files that never change become hard links if the place is on the same file system. They take no
    space, but damage to one affects both. `report` is called with a step, bytes done and bytes in
    all; if it raises, the backup stops. Raises BackupRefusedError if the place belongs to another
    store, BackupTargetError, and what flushing raises. The next backup reuses the files of one that
    failed.
    """
    root = store.config.root.absolute()
    _, identity = inspect(root)
    if identity is None:
        raise BackupRefusedError(f"{root} is not a store on disk")
    _check_outside_store(root, url)
    place = open_place(url, make=True)
    check_owner(place, identity.created_ms, identity.segment_bytes)
    report("a copy of the database", 0, 0)
    with ExitStack() as stack:
        hold = stack.enter_context(store.maintenance.hold_log())
        taken_ms = (clock or SystemClock()).now_ms()
        with store.maintenance.at_one_point():
            kvcq = _kept(stack, queues.back_up())
            loose = _loose(root, kvcq)
        store.snapshots.take()
        sealed = _sealed(root, kvcq)
        end = _end_of(kvcq)
        start = min(store.log.start_offset, end)
        sources = [
            *_segments(root, start, end, identity.segment_bytes),
            *_of_database(QUEUES, kvcq),
            *sealed,
            *loose,
        ]
        backup = Backup(
            id_of(taken_ms, max(backup_ids(place), default="")),
            taken_ms,
            identity.created_ms,
            identity.segment_bytes,
            start,
            end,
            (),
        )
        plan = CopyPlan(url, backup, tuple(sources), rate, link)
        return copy(plan, _Progress(report, plan, hold))


class _Progress:
    """Reports the progress of the copy, and releases the log behind it."""

    def __init__(
        self, report: Callable[[str, int, int], None], plan: CopyPlan, hold: LogHold
    ) -> None:
        self._report = report
        self._total = plan.size
        self._hold = hold
        self._segment = ""

    def __call__(self, place: str, done: int) -> None:
        if place != self._segment and place.startswith(SEGMENTS):
            self._segment = place
            self._hold.start = int(place.removeprefix(SEGMENTS))
        self._report(place, done, self._total)


def _check_outside_store(root: Path, url: str) -> None:
    """Reject a place of backups inside the store directory."""
    place = Path(url.removeprefix("file://")).expanduser().absolute().resolve()
    if "://" not in url.removeprefix("file://") and place.is_relative_to(root.resolve()):
        raise BackupRefusedError(f"{url} is inside the store. Name a place outside {root}")


def _kept(stack: ExitStack, path: Path) -> Path:
    """A path that is removed with the stack."""
    stack.callback(shutil.rmtree, path, ignore_errors=True)
    return path


def _sealed(root: Path, scratch: Path) -> list[Source]:
    """Sealed snapshots, linked into `scratch`, since the store may remove them before the copy
    ends."""
    sources = []
    for snapshot in snapshots_in(root / DIRECTORY):
        if not snapshot.is_sealed:
            continue
        for name in SEALED_FILES:
            link = scratch / f"LOG.{snapshot.path.name}.{name}"
            with suppress(FileNotFoundError):  # no rows, no file
                os.link(snapshot.path / name, link)
                place = f"{DIRECTORY}/{snapshot.path.name}/{name}"
                sources.append(Source(place, str(link), link.stat().st_size, may_link=True))
    return sources


def _loose(root: Path, scratch: Path) -> list[Source]:
    """Copies of small files, in `scratch`: a migration step may replace or remove one hours before
    the copy of the log ends."""
    sources = []
    notes = sorted(StoreDir(root).notes.directory.glob("*"))
    for name in (*_LOOSE, *(f"notes/{path.name}" for path in notes)):
        copy = scratch / f"LOG.{name.replace('/', '.')}"
        with suppress(FileNotFoundError):
            shutil.copyfile(root / name, copy)
            sources.append(Source(name, str(copy), copy.stat().st_size, may_link=False))
    return sources


def _end_of(kvcq: Path) -> int:
    """Physical offset up to which the copy has seen the log. The state may be one record ahead of
    the queues; a log that ended there could not be used."""
    with closing(RocksEngine.open_read_only(kvcq, DERIVED)) as engine:
        return KvStateStore(engine).point


def _segments(root: Path, start: int, end: int, segment_bytes: int) -> list[Source]:
    directory = StoreDir(root).commitlog
    return [
        Source(
            f"{SEGMENTS}{segment_name(at)}",
            str(directory / segment_name(at)),
            size := min(segment_bytes, end - at),
            may_link=size == segment_bytes,
        )
        for at in range(start, max(end, start + 1), segment_bytes)  # an empty log has one, too
    ]


def _of_database(place: str, path: Path) -> list[Source]:
    return [
        Source(
            f"{place}{file.name}",
            str(file),
            file.stat().st_size,
            may_link=file.suffix == ".sst",
        )
        for file in sorted(path.iterdir())
        if file.is_file() and not file.name.startswith(_NOT_COPIED)
    ]
