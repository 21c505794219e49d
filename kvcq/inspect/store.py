"""Checks a stopped store: log, state, and every side, against each other. Changes nothing.

What a crash leaves and the next opening repairs is information; everything else is a fault.
"""

from __future__ import annotations

import contextlib
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from kvcq.engine.rocks import DERIVED, RocksEngine
from kvcq.errors import EngineUnavailableError, KvcqError
from kvcq.inspect.database import DatabaseSide
from kvcq.inspect.findings import Checked, CheckResult, Findings, Kind, Remedy
from kvcq.inspect.log import LOG, LogCheck
from kvcq.inspect.rows import ROCKSDB
from kvcq.inspect.side import OpenedStore
from kvcq.inspect.state import StateSide, endings_in
from kvcq.snapshots import has_usable_snapshot
from kvcq.state_store import KvStateStore
from store.base import SystemClock, no_progress
from store.errors import StoreFormatError
from store.format import Noted, read_noted
from store.light_queue import is_light
from store.log import Fall, SegmentSet, read_falls, read_log_start
from store.notes import USERS_NOTE
from store.state import CorruptRowError, Tables
from store.store_dir import FORMAT_VERSION, DirKind, StoreDir, inspect
from store.topics import Admission, LiveTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kvcq.inspect.side import Side, Take
    from store.base import Progress
    from store.consume_queue import DispatchRequest
    from store.log import Falls
    from store.store_dir import StoreIdentity

    #: Finds the sides of a store; the stack closes what they open.
    FindSides = Callable[[OpenedStore, RocksEngine | None, ExitStack], list[Side]]


#: Above every physical offset.
_ANYWHERE = 1 << 62


def database_alone(
    opened: OpenedStore, engine: RocksEngine | None, _stack: ExitStack
) -> list[Side]:
    """The sides of a store without a migration."""
    side = None if engine is None else open_database(opened, engine)
    return [] if side is None else [side]


def inspect_store(
    root: Path, progress: Progress = no_progress, find_sides: FindSides = database_alone
) -> CheckResult:
    """Check the store in `root`. Returns the findings, and how much was checked.

    A hundred findings of each kind are listed, the rest is counted. `progress` is called with the
    current step and the fraction done, 0 to 1. Time: one pass over the log and each side; where
    they differ, one more over each, and a lookup in the log for each row in question. Memory:
    bounded. Raises StoreFormatError if `root` is not a store of ours, StoreLockedError while it is
    open, EngineUnavailableError if its database cannot be opened for another reason than damage.
    """
    findings = Findings()
    checked = Checked()
    with ExitStack() as stack:
        identity = _identity(root, findings)
        if identity is not None:
            directory = StoreDir(root)
            if (root / "lock").exists():  # otherwise locking would create the file
                directory = StoreDir.open(root, identity.segment_bytes, SystemClock())
                stack.callback(directory.close)
            checked = _check(directory, identity, findings, progress, find_sides, stack)
    return CheckResult(findings.result(), checked)


def open_database(
    opened: OpenedStore, engine: RocksEngine, *, may_lag: bool = False
) -> DatabaseSide | None:
    """The database's queues as a side; None if they cannot be read.

    `may_lag`: see DatabaseSide.
    """
    try:
        return DatabaseSide(engine, opened, may_lag=may_lag)
    except KvcqError as error:
        opened.findings.add(Kind.DATABASE, "kvcq", "rows that can be read", error, side=ROCKSDB)
        return None


def _open_engine(
    directory: StoreDir, segments: SegmentSet, findings: Findings, stack: ExitStack
) -> RocksEngine | None:
    """The database, read-only; None if it is missing or cannot be read."""
    found: KvcqError | str = "none"
    if directory.kvcq.exists():
        try:
            engine = RocksEngine.open_read_only(directory.kvcq, DERIVED)
        except EngineUnavailableError:
            raise  # nothing says that it is damaged
        except KvcqError as error:
            found = error
        else:
            stack.callback(_close_quietly, engine)
            return engine
    start = max(segments.first_offset, directory.base_offset)
    if start > 0 and not has_usable_snapshot(directory.root, segments):
        findings.add(
            Kind.LOST_STATE,
            "kvcq",
            "a database, or a snapshot in snapshots/",
            f"{found}; no snapshot can be used, and the log begins at {segments.first_offset}",
            side=ROCKSDB,
        )
    elif found == "none":
        findings.add(
            Kind.NO_DATABASE,
            "kvcq",
            "a database",
            "none: opening makes it from snapshots and the log",
            side=ROCKSDB,
            note="There is no database (kvcq/ is missing); the next start rebuilds it from "
            "snapshots and the log.",
        )
    else:
        findings.add(
            Kind.DATABASE,
            "kvcq",
            "a database that can be opened",
            found,
            side=ROCKSDB,
            remedy=Remedy.NEXT_START,
        )
    return None


def _identity(root: Path, findings: Findings) -> StoreIdentity | None:
    try:
        kind, identity = inspect(root)
    except StoreFormatError as error:
        findings.add(Kind.IDENTITY, error.path.name, "a store.json that can be read", error.reason)
        return None
    if kind is not DirKind.OURS:
        raise StoreFormatError(root, "is not a store of ours")
    return identity


def _check(
    directory: StoreDir,
    identity: StoreIdentity,
    findings: Findings,
    progress: Progress,
    find_sides: FindSides,
    stack: ExitStack,
) -> Checked:
    was_closed = directory.was_closed_cleanly
    noted = _noted(directory, findings, was_closed=was_closed)
    durable_end = 0 if noted.checkpoint is None else noted.checkpoint.flushed_offset
    may_be_torn = noted.is_newest and not was_closed
    segments = _segments(directory, identity, findings)
    if segments is None:
        return Checked()
    stack.callback(segments.close)
    sides: list[Side] = []
    falls: Falls = ()
    if identity.format_version < FORMAT_VERSION:
        findings.add(
            Kind.OLD_FORMAT,
            "store.json",
            f"format {FORMAT_VERSION}",
            f"format {identity.format_version}: topics and queues were not looked at",
            note=f"The store has format {identity.format_version}; the next start upgrades it. "
            "Check it again after that.",
        )
    else:
        _look_at_notes(directory, findings)
        _look_at_start(segments, read_log_start(directory.notes), findings)
        falls = _falls(directory)
        sides = _sides(directory, segments, findings, progress, find_sides, stack)

    def take_all(requests: Sequence[DispatchRequest]) -> None:
        for side in sides:
            side.take(requests)

    log = LogCheck(
        segments,
        durable_end,
        findings,
        lambda share: progress("records of the log", share),
        take_all,
        was_closed=was_closed,
        may_be_torn=may_be_torn,
        falls=falls,
    )
    log.run()

    def walk_again(take: Take) -> None:
        LogCheck(
            segments,
            durable_end,
            Findings(),
            lambda share: progress("records to look at again", share),
            take,
            may_be_torn=may_be_torn,
        ).run()

    for side in sides:
        side.compare(log, walk_again)
    log.tell_damage(lambda number: bool(sides) and all(side.is_left_out(number) for side in sides))
    return Checked(
        log.record_count,
        sum(side.counts[0] for side in sides),
        sum(side.counts[1] for side in sides),
        log.end_offset - log.start_offset,
    )


def _sides(
    directory: StoreDir,
    segments: SegmentSet,
    findings: Findings,
    progress: Progress,
    find_sides: FindSides,
    stack: ExitStack,
) -> list[Side]:
    """The state, and all sides with queues."""
    was_closed = directory.was_closed_cleanly
    engine = _open_engine(directory, segments, findings, stack)
    if engine is None:
        return []
    try:
        state = KvStateStore(engine)
        tables = Tables(state)
        endings = endings_in(engine, segments, directory.base_offset)
        dead = tables.dead_below() | endings
        dead_light = {name: at for name, at in dead.items() if is_light(name)}
        admission = Admission(_Starts(LiveTopics(tables)), dead_light)
        opened = OpenedStore(
            directory, segments, admission, endings, was_closed, findings, progress
        )
        its_state = StateSide(engine, opened, stack)
    except (KvcqError, CorruptRowError, ValueError) as error:
        findings.add(Kind.DATABASE, "kvcq", "rows of state that can be read", error, side=ROCKSDB)
        return []
    return [its_state, *find_sides(opened, engine, stack)]


class _Starts(NamedTuple):
    """Where topics begin. One with an impossible row, which the side of the state reports, counts
    from the log's start on."""

    topics: LiveTopics

    def get(self, name: str, /) -> int | None:
        try:
            return self.topics.get(name)
        except CorruptRowError:
            return 0


def _noted(directory: StoreDir, findings: Findings, *, was_closed: bool) -> Noted:
    noted = read_noted(directory.checkpoint, directory.previous_checkpoint)
    for fault in noted.faults:
        findings.add(
            Kind.CHECKPOINT_FILE, fault.path.name, "a whole checkpoint", f"it {fault.reason}"
        )
    # An open store has one before its first record. A new one was never opened.
    is_missing = noted.checkpoint is None and not noted.faults
    if is_missing and was_closed and directory.kvcq.exists():
        findings.add(
            Kind.CHECKPOINT_FILE, "checkpoint", "a checkpoint: the store was closed", "none"
        )
    return noted


def _look_at_notes(directory: StoreDir, findings: Findings) -> None:
    for name in directory.notes.names():
        try:
            directory.notes.get(name)
        except StoreFormatError:
            # Users are nowhere else.
            remedy = Remedy.RESTORE if name == USERS_NOTE else None
            findings.add(
                Kind.NOTE, f"notes/{name}", "a note as it was written", "another", remedy=remedy
            )


def _falls(directory: StoreDir) -> Falls:
    try:
        return read_falls(directory.notes, 0)
    except StoreFormatError:
        return (Fall(_ANYWHERE, 0, 0),)  # any fall may have been noted


def _look_at_start(segments: SegmentSet, noted: int | None, findings: Findings) -> None:
    """Check that the log begins at or before the end of the removed segments."""
    if noted is not None and noted < segments.first_offset:
        findings.add(
            Kind.SEGMENTS,
            "commitlog",
            f"a log that begins at {noted}: nothing above was removed by this program",
            f"{segments.first_offset}, segments are missing: their messages count as expired",
            side=LOG,
            physical_offset=noted,
        )


def _segments(
    directory: StoreDir, identity: StoreIdentity, findings: Findings
) -> SegmentSet | None:
    if not directory.commitlog.exists():
        was_made = directory.was_closed_cleanly or directory.checkpoint.exists()
        if was_made or any(directory.kvcq.glob("*.sst")):
            findings.add(Kind.SEGMENTS, "commitlog", "a directory of segments", "nothing", side=LOG)
        # Otherwise the store was being created when its process ended, and the next start completes
        # it.
        return None
    try:
        return SegmentSet.load(directory.commitlog, identity.segment_bytes, read_only=True)
    except StoreFormatError as error:
        place = f"commitlog/{error.path.name}"
        findings.add(Kind.SEGMENTS, place, "a run of segments", error.reason, side=LOG)
        return None


def _close_quietly(engine: RocksEngine) -> None:
    with contextlib.suppress(KvcqError):
        engine.close()
