"""Look a stopped store over: log, database and metadata, against each other. Changes no byte.

What a crash leaves and the next opening sets right is information; everything else is a fault.
"""

from __future__ import annotations

import contextlib
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.rocks import DERIVED, RocksEngine, metadata_profile
from kvcq.errors import KvcqError
from kvcq.metadata_store import MetadataStore
from migration.check_expected import ExpectedRows
from migration.check_findings import Checked, CheckResult, Finding, Findings, Kind
from migration.check_log import LogCheck
from migration.check_lookup import Lookup
from migration.check_rows import RowCheck
from migration.state import STATE_FILE, Phase, Routes, read_state
from store.clock import SystemClock
from store.derive import EndsReserve, noted_log_start
from store.errors import StoreFormatError
from store.format import Checkpoint, read_checkpoint
from store.log import SegmentSet
from store.store_dir import DirKind, StoreDir, inspect
from store.topics import Admission, LiveTopics, dead_light_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from store.consume_queue import DispatchRequest
    from store.store_dir import StoreIdentity

_PAGE = 1000
#: RocksDB is not there, nor meant to be.
_ON_FILES = (Phase.ADOPTING, Phase.FILES)

__all__ = ["Finding", "Kind", "check_store", "examine_store"]


class _Derived(NamedTuple):
    """What is derived from the log, opened read-only."""

    metadata: MetadataStore
    admission: Admission
    engine: RocksEngine
    pending: frozenset[str]  # topics whose deletion is to be finished
    expected: ExpectedRows


def check_store(root: Path, progress: Callable[[str, float], None] | None = None) -> list[Finding]:
    """The findings of `examine_store`; [] is a clean store."""
    return examine_store(root, progress).findings


def examine_store(root: Path, progress: Callable[[str, float], None] | None = None) -> CheckResult:
    """What is to be said about the store in `root`, and how much of it was looked at.

    Of each kind a hundred findings are listed, the rest is counted. `progress` is told what is
    looked at, and how much of it, 0 to 1. Time: one pass over log and database; where they differ,
    one more over each, and a look into the log for each row in question. Memory: bounded.
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
            checked = _check(directory, identity, findings, progress or _silent, stack)
    return CheckResult(findings.result(), checked)


def _silent(_what: str, _share: float) -> None:
    """Nobody wants to know."""


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
    progress: Callable[[str, float], None],
    stack: ExitStack,
) -> Checked:
    was_closed = directory.was_closed_cleanly
    durable_end = _checkpoint(directory, findings, was_closed=was_closed).flushed_offset
    segments = _segments(directory, identity, findings)
    if segments is None:
        return Checked()
    stack.callback(segments.close)
    derived = _derived(directory, identity, findings, stack, _routes(directory, findings))
    if derived is not None:
        reserve = EndsReserve(directory.ends, identity.segment_bytes)
        _look_at_start(segments, noted_log_start(derived.metadata, reserve), findings)
    log = LogCheck(
        segments,
        durable_end,
        findings,
        lambda share: progress("records of the log", share),
        None if derived is None else derived.expected.take,
        was_closed=was_closed,
    )
    log.run()
    log_bytes = log.end_offset - log.start_offset
    if derived is None:
        log.tell_damage(None)
        return Checked(records=log.record_count, log_bytes=log_bytes)

    def walk_again(take: Callable[[Sequence[DispatchRequest]], None]) -> None:
        LogCheck(
            segments,
            durable_end,
            Findings(),
            lambda share: progress("records to look at again", share),
            take,
        ).run()

    lookup = Lookup(
        derived.engine, segments, log, derived.admission, derived.pending, findings, progress
    )
    rows = RowCheck(lookup, derived.expected, walk_again)
    try:
        rows.run(was_closed=was_closed)
        # Queue files may lead to it as well.
        in_files = (directory.root / "consumequeue").exists()
        log.tell_damage(None if in_files else lookup.is_left_out)
    except KvcqError as error:
        findings.add(Kind.DATABASE, "kvcq", "rows that can be read", error)
        log.tell_damage(None)
    return Checked(log.record_count, rows.unit_count, rows.index_count, log_bytes)


def _checkpoint(directory: StoreDir, findings: Findings, *, was_closed: bool) -> Checkpoint:
    try:
        found = read_checkpoint(directory.checkpoint)
        # An open store has one before its first record. A new one was never opened.
        if found is None and was_closed and directory.meta.exists():
            findings.add(
                Kind.CHECKPOINT_FILE, "checkpoint", "a checkpoint: the store was closed", "none"
            )
        return found or Checkpoint()
    except StoreFormatError as error:
        findings.add(Kind.CHECKPOINT_FILE, "checkpoint", "a whole checkpoint", error.reason)
        return Checkpoint()


def _look_at_start(segments: SegmentSet, noted: int | None, findings: Findings) -> None:
    """The log begins where segments were removed up to, or before."""
    if noted is not None and noted < segments.first_offset:
        findings.add(
            Kind.SEGMENTS,
            "commitlog",
            f"a log that begins at {noted}: nothing above was removed by this program",
            f"{segments.first_offset}, segments are missing: their messages count as expired",
            physical_offset=noted,
        )


def _segments(
    directory: StoreDir, identity: StoreIdentity, findings: Findings
) -> SegmentSet | None:
    if not directory.commitlog.exists():
        was_made = directory.was_closed_cleanly or directory.checkpoint.exists()
        if was_made or any(directory.kvcq.glob("*.sst")):
            findings.add(Kind.SEGMENTS, "commitlog", "a directory of segments", "nothing")
        # Otherwise it was being made when its process ended: the next start makes the rest.
        return None
    try:
        return SegmentSet.load(directory.commitlog, identity.segment_bytes, read_only=True)
    except StoreFormatError as error:
        place = f"commitlog/{error.path.name}"
        findings.add(Kind.SEGMENTS, place, "a run of segments", error.reason)
        return None


def _routes(directory: StoreDir, findings: Findings) -> Routes | None:
    """Of a migration; None without. Says that files are not looked at, where there are some."""
    try:
        state = read_state(directory.root)
    except StoreFormatError as error:
        findings.add(Kind.IDENTITY, STATE_FILE, "a state that can be read", error.reason)
        return None
    if state is None:
        return None
    routes = Routes(state.phase, state.routing)
    if not (directory.root / "consumequeue").exists():
        return routes
    alone = state.phase in _ON_FILES
    first = "kvcq migrate start, then " if alone else ""
    findings.add(
        Kind.FILES_UNREAD,
        "consumequeue",
        "files that agree with the log",
        "files that were not looked at",
        note=f"Queue files and index files (state {state.phase.value.upper()}) are not looked at "
        f"here; {first}kvcq migrate verify compares them with the log.",
    )
    return routes


def _derived(
    directory: StoreDir,
    identity: StoreIdentity,
    findings: Findings,
    stack: ExitStack,
    routes: Routes | None,
) -> _Derived | None:
    """Database and metadata, read-only; None when one of them is not there or cannot be read."""
    try:
        metadata = MetadataStore(RocksEngine.open_read_only(directory.meta, metadata_profile()))
        stack.callback(metadata.close)
        marks = metadata.delete_marks()
        read_topics(metadata)
    except (KvcqError, ValueError) as error:
        findings.add(Kind.METADATA, "meta", "topics and groups that can be read", error)
        return None
    if routes is not None and routes.phase in _ON_FILES and not directory.kvcq.exists():
        return None  # as it is meant to be
    if not directory.kvcq.exists():
        findings.add(
            Kind.NO_DATABASE,
            "kvcq",
            "a database",
            "none: opening makes it from the log",
            note="There are no queues (kvcq/ is missing); the next start makes them from the log.",
        )
        return None
    try:
        engine = RocksEngine.open_read_only(directory.kvcq, DERIVED)
    except KvcqError as error:
        findings.add(Kind.DATABASE, "kvcq", "a database that can be opened", error)
        return None
    stack.callback(_close_quietly, engine)
    try:
        queues = KvConsumeQueueStore(engine)
        applied = queues.applied_deletions
        pending = frozenset(mark.topic for mark in marks if mark.sequence > applied)
        admission = Admission(LiveTopics(metadata), dead_light_of(marks))
        expected = ExpectedRows(engine, admission, pending, routes)
    except KvcqError as error:
        findings.add(Kind.DATABASE, "kvcq", "rows that can be read", error)
        return None
    for topic in sorted(pending):
        findings.add(
            Kind.PENDING_DELETION,
            "kvcq",
            "no row of it",
            "rows: opening removes them",
            topic=topic,
            note=f"The deletion of {topic} is not finished; the next start finishes it.",
        )
    return _Derived(metadata, admission, engine, pending, expected)


def read_topics(metadata: MetadataStore) -> None:
    """Raises what a damaged row raises."""
    after: str | None = None
    while page := metadata.list_topics("", after, _PAGE):
        after = page[-1].name


def _close_quietly(engine: RocksEngine) -> None:
    with contextlib.suppress(KvcqError):
        engine.close()
