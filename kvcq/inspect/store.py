"""Looks a stopped store over: log, metadata, and every side, against each other. Changes no byte.

What a crash leaves and the next opening sets right is information; everything else is a fault.
"""

from __future__ import annotations

import contextlib
from contextlib import ExitStack
from typing import TYPE_CHECKING

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.rocks import DERIVED, RocksEngine, metadata_profile
from kvcq.errors import KvcqError
from kvcq.inspect.database import DatabaseSide
from kvcq.inspect.findings import Checked, CheckResult, Findings, Kind
from kvcq.inspect.log import LOG, LogCheck
from kvcq.inspect.rows import ROCKSDB
from kvcq.inspect.side import OpenedStore
from kvcq.metadata_store import MetadataStore
from store.base import SystemClock, no_progress
from store.derive import EndsReserve, noted_log_start
from store.errors import StoreFormatError
from store.format import Noted, read_noted
from store.log import SegmentSet, read_falls
from store.store_dir import DirKind, StoreDir, inspect
from store.topics import Admission, LiveTopics, dead_light_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from kvcq.inspect.side import Side, Take
    from store.base import Progress
    from store.consume_queue import DispatchRequest
    from store.log import Falls
    from store.metadata import DeleteMark
    from store.store_dir import StoreIdentity

    #: The sides that a store has; what they open is closed with the stack.
    FindSides = Callable[[OpenedStore, ExitStack], list[Side]]

_PAGE = 1000


def database_alone(opened: OpenedStore, stack: ExitStack) -> list[Side]:
    """The sides of a store without a migration."""
    side = open_database(opened, stack)
    return [] if side is None else [side]


def look_over(
    root: Path, progress: Progress = no_progress, find_sides: FindSides = database_alone
) -> CheckResult:
    """What is to be said about the store in `root`, and how much of it was looked at.

    Of each kind a hundred findings are listed, the rest is counted. `progress` is told what is
    looked at, and how much of it, 0 to 1. Time: one pass over the log and each side; where they
    differ, one more over each, and a look into the log for each row in question. Memory: bounded.
    Raises StoreFormatError when `root` is no store of ours, StoreLockedError while it is open.
    """
    findings = Findings()
    checked = Checked()
    with ExitStack() as stack:
        identity = _identity(root, findings)
        if identity is not None:
            directory = StoreDir(root)
            if (root / "lock").exists():  # it would be made otherwise
                directory = StoreDir.open(root, identity.segment_bytes, SystemClock())
                stack.callback(directory.close)
            checked = _check(directory, identity, findings, progress, find_sides, stack)
    return CheckResult(findings.result(), checked)


def open_database(
    opened: OpenedStore, stack: ExitStack, *, may_lag: bool = False
) -> DatabaseSide | None:
    """The database, read-only, as a side; None when it is not there or cannot be read.

    `may_lag`: see DatabaseSide.
    """
    path = opened.directory.kvcq
    add = opened.findings.add
    if not path.exists():
        add(
            Kind.NO_DATABASE,
            "kvcq",
            "a database",
            "none: opening makes it from the log",
            side=ROCKSDB,
            note="There are no queues (kvcq/ is missing); the next start makes them from the log.",
        )
        return None
    expected = "a database that can be opened"
    try:
        engine = RocksEngine.open_read_only(path, DERIVED)
        stack.callback(_close_quietly, engine)
        expected = "rows that can be read"
        applied = KvConsumeQueueStore(engine).applied_deletions
        pending = tell_pending(opened, applied, "kvcq", ROCKSDB)
        return DatabaseSide(engine, opened, pending, may_lag=may_lag)
    except KvcqError as error:
        add(Kind.DATABASE, "kvcq", expected, error, side=ROCKSDB)
        return None


def tell_pending(opened: OpenedStore, applied: int, place: str, side: str) -> frozenset[str]:
    """Topics of which the next opening removes rows from a side that knows deletions so far."""
    pending = frozenset(mark.topic for mark in opened.marks if mark.sequence > applied)
    for topic in sorted(pending):
        opened.findings.add(
            Kind.PENDING_DELETION,
            place,
            "no row of it",
            "rows: opening removes them",
            side=side,
            topic=topic,
            note=f"The deletion of {topic} is not finished; the next start finishes it.",
        )
    return pending


def read_topics(metadata: MetadataStore) -> None:
    """Raises what a damaged row raises."""
    after: str | None = None
    while page := metadata.list_topics("", after, _PAGE):
        after = page[-1].name


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
    read = _metadata(directory, findings, stack)
    if read is not None:
        metadata, marks = read
        falls = read_falls(metadata, 0)
        reserve = EndsReserve(directory.ends, identity.segment_bytes)
        _look_at_start(segments, noted_log_start(metadata, reserve), findings)
        admission = Admission(LiveTopics(metadata), dead_light_of(marks))
        sides = find_sides(
            OpenedStore(directory, segments, admission, marks, was_closed, findings, progress),
            stack,
        )
    log = LogCheck(
        segments,
        durable_end,
        findings,
        lambda share: progress("records of the log", share),
        _to_all(side.take for side in sides),
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


def _to_all(takes: Iterable[Take]) -> Take:
    every = tuple(takes)
    if len(every) == 1:
        return every[0]

    def take(requests: Sequence[DispatchRequest]) -> None:
        for each in every:
            each(requests)

    return take


def _noted(directory: StoreDir, findings: Findings, *, was_closed: bool) -> Noted:
    noted = read_noted(directory.checkpoint, directory.previous_checkpoint)
    for fault in noted.faults:
        findings.add(
            Kind.CHECKPOINT_FILE, fault.path.name, "a whole checkpoint", f"it {fault.reason}"
        )
    # An open store has one before its first record. A new one was never opened.
    is_missing = noted.checkpoint is None and not noted.faults
    if is_missing and was_closed and directory.meta.exists():
        findings.add(
            Kind.CHECKPOINT_FILE, "checkpoint", "a checkpoint: the store was closed", "none"
        )
    return noted


def _look_at_start(segments: SegmentSet, noted: int | None, findings: Findings) -> None:
    """The log begins where segments were removed up to, or before."""
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
        # Otherwise it was being made when its process ended: the next start makes the rest.
        return None
    try:
        return SegmentSet.load(directory.commitlog, identity.segment_bytes, read_only=True)
    except StoreFormatError as error:
        place = f"commitlog/{error.path.name}"
        findings.add(Kind.SEGMENTS, place, "a run of segments", error.reason, side=LOG)
        return None


def _metadata(
    directory: StoreDir, findings: Findings, stack: ExitStack
) -> tuple[MetadataStore, tuple[DeleteMark, ...]] | None:
    """Read-only, and its marks of deletion; None when it cannot be read."""
    try:
        metadata = MetadataStore(RocksEngine.open_read_only(directory.meta, metadata_profile()))
        stack.callback(metadata.close)
        marks = tuple(metadata.delete_marks())
        read_topics(metadata)
    except (KvcqError, ValueError) as error:
        findings.add(Kind.METADATA, "meta", "topics and groups that can be read", error)
        return None
    return metadata, marks


def _close_quietly(engine: RocksEngine) -> None:
    with contextlib.suppress(KvcqError):
        engine.close()
