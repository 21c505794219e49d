"""Rebuilds topics and groups from the log, when the database and all snapshots are lost.

Records that name a topic create it. State records have groups, offsets and deletions. Everything
that has left the log is lost: topics without messages in the log, offsets committed before its
first record, and the ends of those queues. So an operator must request this.
"""

from __future__ import annotations

import logging
import shutil
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from kvcq.engine import KvBatch, pages
from kvcq.engine.rocks import DERIVED, RocksEngine
from kvcq.errors import EngineFailedError, EngineUnavailableError
from kvcq.inspect import read_entries
from kvcq.snapshots import has_usable_snapshot
from kvcq.state_store import KvStateStore
from kvcq.tables import STATE
from store.base import SystemClock, fsync_directory, move_aside, no_progress
from store.errors import CorruptRecordError, StoreFormatError
from store.format import FastParser, is_system_topic
from store.light_queue import is_light
from store.log import Damage, Run, SegmentSet, walk
from store.metadata import TopicConfig
from store.state import (
    STATE_TOPIC,
    Changes,
    CorruptStateError,
    Tables,
    apply_entry_of_rest,
    pack_topic,
    topic_key,
)
from store.store_dir import FORMAT_VERSION, StoreDir, inspect

if TYPE_CHECKING:
    from pathlib import Path

    from store.base import Clock, Progress

logger = logging.getLogger(__name__)


class RepairedState(NamedTuple):
    """The result of `repair_state`."""

    topics: int
    groups: int
    log_start: int  # physical offset; earlier changes of the state are lost


def repair_state(root: Path, progress: Progress = no_progress) -> RepairedState | None:
    """Replace `kvcq/` by a database with only the state from the log; an old one is kept beside it.

    Returns None, and changes nothing, if there is a database whose state can be read, or a usable
    snapshot: the next start uses these. Raises StoreFormatError if the directory is not a kvcq
    store, or has an older format, StoreLockedError, EngineUnavailableError. Durable on return.
    After a crash before that there is no database, and the repair can be repeated.
    """
    clock = SystemClock()
    _, identity = inspect(root)
    if identity is None or identity.format_version < FORMAT_VERSION:
        raise StoreFormatError(root, f"is not a store of format {FORMAT_VERSION}")
    with closing(StoreDir.open(root, identity.segment_bytes, clock)) as directory:
        with closing(SegmentSet.load(directory.commitlog, identity.segment_bytes)) as segments:
            if _is_known(directory, segments, identity.base_offset):
                return None
            new = root / "kvcq.new"
            shutil.rmtree(new, ignore_errors=True)
            with closing(RocksEngine.open(new, DERIVED)) as engine:
                made = _make_state(engine, segments, identity.base_offset, progress, clock)
        if directory.kvcq.exists():
            move_aside(directory.kvcq, "damaged")
        new.rename(directory.kvcq)
        fsync_directory(root)
        return made


def _make_state(
    engine: RocksEngine, segments: SegmentSet, base: int, progress: Progress, clock: Clock
) -> RepairedState:
    state = KvStateStore(engine, flushes=lambda: True)
    _replay(segments, base, state, engine, progress, clock.now_ms())
    tables = Tables(state)
    made = RepairedState(
        sum(not is_system_topic(each.name) for each in tables.every_topic()),
        len(tables.list_groups(None, 1 << 30)),
        segments.first_offset,
    )
    state.flush()
    return made


def _is_known(directory: StoreDir, segments: SegmentSet, base_offset: int) -> bool:
    if has_usable_snapshot(directory.root, segments):
        return True
    if not directory.kvcq.exists():
        return False
    try:
        with closing(RocksEngine.open_read_only(directory.kvcq, DERIVED)) as engine:
            for _ in pages(engine, STATE):
                pass  # only to check that all rows can be read
            # A start uses neither a state from before the log's start nor one from behind its end.
            start = max(segments.first_offset, base_offset)
            return start <= KvStateStore(engine).point <= segments.end_offset
    except EngineUnavailableError:
        raise  # this error does not prove that it is damaged
    except EngineFailedError as error:
        logger.warning("%s cannot be read: %s", directory.kvcq, error)
        return False


def _replay(
    segments: SegmentSet,
    base_offset: int,
    state: KvStateStore,
    engine: RocksEngine,
    progress: Progress,
    now_ms: int,
) -> None:
    tables = Tables(state)
    ended: set[str] = set()
    start, span = segments.first_offset, max(1, segments.end_offset - segments.first_offset)
    end = start
    for step in walk(segments, start, parser=FastParser()):
        end = step.next_offset
        if isinstance(step, Damage):
            _report(step)
        for request in step.requests if isinstance(step, Run) else ():
            name, at = request.topic, request.physical_offset
            if name == STATE_TOPIC and at < base_offset:
                continue
            if name == STATE_TOPIC:
                ended.update(_apply(segments, state, at, request.record_size))
            elif request.in_queue and not is_light(name):
                # Created before the log's first record, like its queues.
                created_offset = at if name in ended else 0
                _make(tables, engine, name, request.queue_id, created_offset, now_ms)
        progress("reading the log", (end - start) / span)
    state.advance(end)


def _apply(segments: SegmentSet, state: KvStateStore, at: int, size: int) -> list[str]:
    """Apply the record to the state. Returns the names that it deletes."""
    try:
        entries = read_entries(segments, at, size)
    except (CorruptRecordError, CorruptStateError) as error:
        logger.error("a record of state is left out: %s", error)
        return []
    changes = Changes(state)
    for entry in entries:
        if not apply_entry_of_rest(entry, at, changes):
            logger.warning("left out, what it changes is from before the log's start: %s", entry)
    state.apply(changes, at + size)
    return changes.ended


def _make(
    tables: Tables, engine: RocksEngine, name: str, queue_id: int, created_offset: int, now_ms: int
) -> None:
    """Create the topic that a record names, with at least that queue."""
    found = tables.topic(name)
    if found is None:
        found = TopicConfig(name, queue_id + 1, now_ms, created_offset)
    elif found.queue_count > queue_id:
        return
    made = found._replace(queue_count=max(found.queue_count, queue_id + 1))
    engine.write(KvBatch(puts={STATE: [(topic_key(name), pack_topic(made))]}))


def _report(damage: Damage) -> None:
    logger.error(
        "damaged record at physical offset %d (%s), not counted; the log continues at %d",
        damage.physical_offset,
        damage.reason,
        damage.next_offset,
    )
