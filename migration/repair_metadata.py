"""Make the topic table again from the log, when `meta/` is lost or damaged.

What the log cannot tell stays lost: committed offsets, groups, and which topics had been deleted;
those come back with their messages. So this is a command of its own, never done by itself.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kvcq.errors import EngineFailedError, EngineUnavailableError
from kvcq.metadata_store import MetadataStore
from kvcq.options import metadata_profile
from kvcq.rocks import RocksEngine
from migration.repair_queues import move_aside
from store.clock import SystemClock
from store.errors import StoreFormatError
from store.log_scan import Damage, scan_requests
from store.metadata import TopicConfig
from store.segment_set import SegmentSet
from store.store_dir import DirKind, StoreDir, inspect
from store.time_fall import TimeFallFinder, write_time_fall

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store.clock import Clock

logger = logging.getLogger(__name__)


def repair_metadata(
    root: Path,
    progress: Callable[[str, float], None] | None = None,
    clock: Clock | None = None,
) -> list[TopicConfig]:
    """Topics found in the log are in a new `meta/`; a damaged one is kept under another name.

    A topic gets as many queues as its highest queue id says. Raises StoreFormatError when the
    directory is no store of ours or its `meta/` can be opened, StoreLockedError.
    Durability: the new table is durable on return; a crash before leaves no table, so that the
    repair can be run again.
    """
    clock = clock or SystemClock()
    kind, identity = inspect(root)
    if kind is not DirKind.OURS or identity is None:
        raise StoreFormatError(root, "is not a store of ours: there is nothing to repair")
    directory = StoreDir.open(root, identity.segment_bytes, clock)
    try:
        if directory.meta.exists():
            _move_damaged(directory.meta)
        times = TimeFallFinder()
        found = _topics_in_log(directory.commitlog, identity.segment_bytes, clock, progress, times)
        new = root / "meta.new"
        store = MetadataStore(RocksEngine.open(new, metadata_profile()))
        try:
            store.put_topics(found)
            write_time_fall(store, times.found)
        finally:
            store.close()
        new.rename(directory.meta)
        return found
    finally:
        directory.close()


def _move_damaged(meta: Path) -> None:
    try:
        RocksEngine.open(meta, metadata_profile()).close()
    except EngineUnavailableError:
        raise  # committed offsets are in it, and may be sound
    except EngineFailedError:
        move_aside(meta, "damaged")
    else:
        raise StoreFormatError(meta, "opens without an error: it is not replaced")


def _topics_in_log(
    commitlog: Path,
    segment_bytes: int,
    clock: Clock,
    progress: Callable[[str, float], None] | None,
    times: TimeFallFinder,
) -> list[TopicConfig]:
    segments = SegmentSet.load(commitlog, segment_bytes, read_only=True)
    try:
        counts: dict[str, int] = {}
        start = segments.first_offset
        span = max(1, segments.end_offset - start)
        for run in scan_requests(segments, start, _tell):
            times.look(run.requests)
            for request in run.requests:
                if request.in_queue:
                    counts[request.topic] = max(counts.get(request.topic, 1), request.queue_id + 1)
            if progress is not None:
                progress("reading the log", (run.next_offset - start) / span)
    finally:
        segments.close()
    now_ms = clock.now_ms()
    return [TopicConfig(name, count, now_ms, 0) for name, count in sorted(counts.items())]


def _tell(damage: Damage) -> None:
    logger.error(
        "damaged record at physical offset %d (%s), not counted; the log goes on at %d",
        damage.physical_offset,
        damage.reason,
        damage.goes_on_at,
    )
