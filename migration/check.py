"""Look a stopped store over: log, database and metadata, against each other. Changes no byte.

What a crash leaves and the next opening sets right is information; everything else is a fault.
"""

from __future__ import annotations

import contextlib
from contextlib import ExitStack
from typing import TYPE_CHECKING

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.errors import KvcqError
from kvcq.metadata_store import MetadataStore
from kvcq.options import DERIVED, metadata_profile
from kvcq.rocks import RocksEngine
from migration.check_findings import Finding, Findings, Kind
from migration.check_log import LogWalk
from migration.check_rows import RowCheck
from store.checkpoint import Checkpoint, read_checkpoint
from store.clock import SystemClock
from store.config import StoreConfig
from store.errors import StoreFormatError
from store.segment_set import SegmentSet
from store.store_dir import DirKind, StoreDir, inspect
from store.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store.store_dir import StoreIdentity

_PAGE = 1000

__all__ = ["Finding", "Kind", "check_store"]


def check_store(root: Path, progress: Callable[[str, float], None] | None = None) -> list[Finding]:
    """What is to be said about the store in `root`, in the order it was found; [] is a clean store.

    Of each kind a hundred findings are listed, the rest is counted. `progress` is told what is
    looked at, and how much of it, 0 to 1. Time: one pass over log and database, and one look into
    the log for each row. Memory: bounded.
    Raises StoreFormatError when `root` is no store of ours, StoreLockedError while it is open.
    """
    findings = Findings()
    with ExitStack() as stack:
        identity = _identity(root, findings)
        if identity is None:
            return findings.result()
        directory = StoreDir(root)
        if (root / "lock").exists():  # it would be made otherwise
            directory = StoreDir.open(root, identity.segment_bytes, SystemClock())
            stack.callback(directory.close)
        _check(directory, identity, findings, progress or _silent, stack)
    return findings.result()


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
) -> None:
    was_closed = directory.was_closed_cleanly
    checkpoint = _checkpoint(directory, findings)
    segments = _segments(directory, identity, findings)
    if segments is None:
        return
    stack.callback(segments.close)
    log = LogWalk(
        segments,
        checkpoint.flushed_offset,
        findings,
        lambda share: progress("records of the log", share),
    )
    log.run()
    topics_and_engine = _derived(directory, identity, findings, stack)
    if topics_and_engine is None:
        return
    topics, engine, pending = topics_and_engine
    try:
        check = RowCheck(engine, segments, log, topics, pending, findings, progress)
        check.run(was_closed=was_closed)
    except KvcqError as error:
        findings.add(Kind.DATABASE, "kvcq", "rows that can be read", error)


def _checkpoint(directory: StoreDir, findings: Findings) -> Checkpoint:
    try:
        return read_checkpoint(directory.checkpoint) or Checkpoint()
    except StoreFormatError as error:
        findings.add(Kind.CHECKPOINT_FILE, "checkpoint", "a whole checkpoint", error.reason)
        return Checkpoint()


def _segments(
    directory: StoreDir, identity: StoreIdentity, findings: Findings
) -> SegmentSet | None:
    if not directory.commitlog.exists():
        findings.add(Kind.SEGMENTS, "commitlog", "a directory of segments", "nothing")
        return None
    try:
        return SegmentSet.load(directory.commitlog, identity.segment_bytes, read_only=True)
    except StoreFormatError as error:
        place = f"commitlog/{error.path.name}"
        findings.add(Kind.SEGMENTS, place, "a run of segments", error.reason)
        return None


def _derived(
    directory: StoreDir, identity: StoreIdentity, findings: Findings, stack: ExitStack
) -> tuple[Topics, RocksEngine, frozenset[str]] | None:
    """Database and metadata, read-only, and the topics whose deletion is to be finished."""
    try:
        metadata = MetadataStore(RocksEngine.open_read_only(directory.meta, metadata_profile()))
        stack.callback(metadata.close)
        marks = metadata.delete_marks()
        _read_topics(metadata)
    except (KvcqError, ValueError) as error:
        findings.add(Kind.METADATA, "meta", "topics and groups that can be read", error)
        return None
    if not directory.kvcq.exists():
        findings.add(Kind.NO_DATABASE, "kvcq", "a database", "none: opening makes it from the log")
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
    except KvcqError as error:
        findings.add(Kind.DATABASE, "kvcq", "rows that can be read", error)
        return None
    config = StoreConfig(root=directory.root, segment_bytes=identity.segment_bytes)
    pending = frozenset(mark.topic for mark in marks if mark.sequence > applied)
    for topic in sorted(pending):
        findings.add(
            Kind.PENDING_DELETION, "kvcq", "no row of it", "rows: opening removes them", topic=topic
        )
    return Topics(config, metadata, queues, SystemClock()), engine, pending


def _read_topics(metadata: MetadataStore) -> None:
    """Raises what a damaged row raises."""
    after: str | None = None
    while page := metadata.list_topics("", after, _PAGE):
        after = page[-1].name


def _close_quietly(engine: RocksEngine) -> None:
    with contextlib.suppress(KvcqError):
        engine.close()
