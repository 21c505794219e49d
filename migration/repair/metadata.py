"""Make the topic table again from log and bounds, when `meta/` is lost or damaged.

The bounds in `kvcq/` tell topics whose messages have left the log, and which ones of the log had
been deleted; without them those come back with their messages. What neither can tell stays lost:
committed offsets, groups, topics that never had a message. So this is a command of its own, never
done by itself.
"""

from __future__ import annotations

import logging
import shutil
from contextlib import closing
from typing import TYPE_CHECKING

from kvcq.engine.rocks import RocksEngine, metadata_profile
from kvcq.errors import EngineFailedError, EngineUnavailableError, KvcqError
from kvcq.inspect import read_topics
from kvcq.metadata_store import MetadataStore
from migration.repair.known_topics import known_topics
from store.base import SystemClock, fsync_directory, move_aside, no_progress
from store.errors import StoreFormatError
from store.format import FastParser
from store.log import Damage, FallFinder, Run, SegmentSet, walk, write_falls
from store.metadata import TopicConfig
from store.store_dir import DirKind, StoreDir, inspect

if TYPE_CHECKING:
    from pathlib import Path

    from store.base import Clock, Progress

logger = logging.getLogger(__name__)


def repair_metadata(
    root: Path,
    progress: Progress = no_progress,
    clock: Clock | None = None,
) -> list[TopicConfig] | None:
    """Topics of the log and of `kvcq/` are in a new `meta/`; an old one is kept beside it.

    None when `meta/` is sound: nothing was changed. A topic gets as many queues as its highest
    queue id says. Raises StoreFormatError when the directory is no store of ours or its `meta/`
    opens and has rows that cannot be read, StoreLockedError.
    Durability: the new table is durable on return; a crash before leaves no table, so that the
    repair can be run again.
    """
    clock = clock or SystemClock()
    kind, identity = inspect(root)
    if kind is not DirKind.OURS or identity is None:
        raise StoreFormatError(root, "is not a store of ours: there is nothing to repair")
    directory = StoreDir.open(root, identity.segment_bytes, clock)
    try:
        if directory.meta.is_dir() and any(directory.meta.iterdir()) and _is_sound(directory.meta):
            return None
        times = FallFinder()
        found = _topics(directory, identity.segment_bytes, clock, progress, times)
        new = root / "meta.new"
        shutil.rmtree(new, ignore_errors=True)  # of a repair that was cut short
        with closing(MetadataStore(RocksEngine.open(new, metadata_profile()))) as store:
            store.put_topics(found)
            write_falls(store, times.found)
        new.rename(directory.meta)
        fsync_directory(root)
        return found
    finally:
        directory.close()


def _is_sound(meta: Path) -> bool:
    """False: it cannot be opened, and has another name now."""
    try:
        engine = RocksEngine.open(meta, metadata_profile())
    except EngineUnavailableError:
        raise  # committed offsets are in it, and may be sound
    except EngineFailedError:
        move_aside(meta, "damaged")
        return False
    store = MetadataStore(engine)
    try:
        store.delete_marks()
        read_topics(store)
    except (KvcqError, ValueError) as error:
        reason = f"opens, but has a row that cannot be read ({error})"
        raise StoreFormatError(
            meta, f"{reason}. It is not replaced: committed offsets are nowhere else"
        ) from error
    finally:
        store.close()
    return True


def _topics(
    directory: StoreDir,
    segment_bytes: int,
    clock: Clock,
    progress: Progress,
    times: FallFinder,
) -> list[TopicConfig]:
    known = known_topics(directory)
    with closing(SegmentSet.load(directory.commitlog, segment_bytes, read_only=True)) as segments:
        start = segments.first_offset
        span = max(1, segments.end_offset - start)
        counts = {} if known is None else dict(known.queue_counts)
        live_from = {} if known is None else dict(known.live_from)
        for step in walk(segments, start, parser=FastParser()):
            if isinstance(step, Damage):
                _report(step)
            requests = step.requests if isinstance(step, Run) else []
            times.look(requests)
            for request in requests:
                name, place = request.topic, request.physical_offset
                if not request.in_queue:
                    continue
                if known is not None and place < known.dispatched_offset:
                    # Records of a topic that was deleted, or of an earlier one of the name.
                    if place < known.live_from.get(name, known.dispatched_offset):
                        continue
                elif known is not None:
                    live_from.setdefault(name, place)
                counts[name] = max(counts.get(name, 1), request.queue_id + 1)
            progress("reading the log", (step.next_offset - start) / span)
    now_ms = clock.now_ms()
    return [
        TopicConfig(name, count, now_ms, live_from.get(name, 0))
        for name, count in sorted(counts.items())
    ]


def _report(damage: Damage) -> None:
    logger.error(
        "damaged record at physical offset %d (%s), not counted; the log goes on at %d",
        damage.physical_offset,
        damage.reason,
        damage.next_offset,
    )
