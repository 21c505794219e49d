"""Upgrades format 1 to 2: moves topics, groups and offsets from `meta/` into the one database.

Format 1 had a separate database, `meta/`. Its rows of topics, groups, offsets, hidden messages and
counts have the same keys and values as rows of state, and are copied. Other rows:

| key in `meta/`     | value                              | becomes                              |
|--------------------|------------------------------------|--------------------------------------|
| `d` i64 number     | i64 offset, name                   | `d` row: its records below are dead  |
| `u` i16, topic, i32| i64 queue offset, i64 offset       | the queue's bound, if it has none    |
| `s` name           | a small value                      | a note; users become one note        |

An interrupted upgrade starts over: `meta/` is only read, and moved aside once the store has format
2. An older version that ran in between dropped the new family, together with queues that it
rebuilds from the log.
"""

from __future__ import annotations

import json
import logging
import struct
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from kvcq.engine import LAST_KEY, KvBatch, pages
from kvcq.engine.rocks import RocksEngine, small_profile
from kvcq.errors import EngineFailedError, EngineUnavailableError
from kvcq.tables import BOUNDS, DELETIONS_KEY, STATE, pack_i64, unpack_i64
from store.base import move_aside
from store.consume_queue import LastUnit
from store.errors import DiskFullError, StoreFormatError
from store.format import FastParser, read_checkpoint
from store.light_queue import is_light
from store.log import Run, free_bytes, walk
from store.metadata import TopicConfig
from store.notes import USERS_NOTE
from store.state import (
    Tables,
    dead_key,
    offset_key,
    pack_offset,
    pack_topic,
    topic_key,
    unpack_topic,
)
from store.store_dir import OLD_FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcq.engine import KvEngine, Pair
    from kvcq.snapshots import Snapshots
    from store.consume_queue import ConsumeQueueStore
    from store.log import SegmentSet
    from store.store_dir import StoreDir

logger = logging.getLogger(__name__)

_META = "default"
#: Above every physical offset.
LAST_OFFSET = (1 << 63) - 1
_AS_THEY_ARE = (b"g", b"h", b"k", b"l", b"o", b"q")
#: Before there was one note of all users, each user was a value.
_USER = "access.user."
_NOT_NEEDED = frozenset({"ends_kept"})
_PAGE = 1000
#: The content of `meta/` is written to the database, to a snapshot and to its sealed copy. Measured
#: for 300,000 topics: 3.1 times its size.
_DISK_TIMES = 4
#: Measured on two cores: 100,000 topics, 1.4 MB, in 1.0 to 1.7 s.
_BYTES_A_SECOND = 1 << 20
_LEAST_QUEUES = 8

_I64 = struct.Struct(">q")
_I32 = struct.Struct(">i")
_PLACE = struct.Struct(">qq")


class _Deletion(NamedTuple):
    name: str
    below: int  # physical: its records below are dead
    number: int


def take_over(
    directory: StoreDir, engine: KvEngine, queues: ConsumeQueueStore, segments: SegmentSet
) -> None:
    """Fill the state from `meta/`, at the log's end, and remove deleted names from the queues.

    The log must be recovered, and the queues must not be ahead of it. Raises StoreFormatError if
    `meta/` cannot be read, DiskFullError before anything is written, EngineUnavailableError.
    """
    _tell_and_check_space(directory)
    engine.write(KvBatch(delete_ranges=[(STATE, b"", LAST_KEY)]))
    if not _has_meta(directory):
        return
    with closing(_open_meta(directory)) as meta:
        deletions = list(_deletions(meta))
        _finish_deletions(engine, queues, deletions)
        for table in _AS_THEY_ARE:
            for rows in pages(meta, _META, table, bytes([table[0] + 1]), rows=_PAGE):
                engine.write(KvBatch(puts={STATE: rows}))
        _topics(meta, engine, segments.end_offset)
        _dead(engine, deletions, segments)
        if not directory.was_closed_cleanly:
            _lost_topics(directory, engine, segments, deletions)
        _ends(meta, queues, segments)
        _notes(meta, directory)
    engine.flush()


def _tell_and_check_space(directory: StoreDir) -> None:
    """Log how much space the upgrade needs, before it begins. Raises DiskFullError if there is
    less."""
    size = sum(each.stat().st_size for each in directory.meta.glob("*"))
    needed = _DISK_TIMES * size
    free = free_bytes(directory.root)
    logger.info(
        "%s is upgraded to format 2: about %d s, and %.1f MiB of disk; %.0f MiB are free",
        *(directory.root, 1 + size // _BYTES_A_SECOND, needed / (1 << 20), free / (1 << 20)),
    )
    if free < needed:
        raise DiskFullError(
            f"{directory.root} is of format 1, and its upgrade takes {needed} bytes of disk, of "
            f"which {free} are free. Nothing was changed: make room, or open it with version 0.1"
        )


def unapplied_deletions(directory: StoreDir, applied: int) -> list[str]:
    """Names whose deletions in `meta/` come after the first `applied` ones, in order. Raises
    StoreFormatError, EngineUnavailableError."""
    with closing(_open_meta(directory)) as meta:
        return [each.name for each in _deletions(meta) if each.number > applied]


def finish(directory: StoreDir, state: Tables, queues: ConsumeQueueStore, engine: KvEngine) -> None:
    """After the queues are dispatched to the log's end: lower committed offsets that are beyond the
    end of their queue.

    Older versions synced commits, but not messages in ASYNC mode, so a power loss could lose
    messages whose offsets stayed committed.
    """
    if not directory.was_closed_cleanly:
        for group in state.every_group():
            _cut_committed(group, state, queues, engine)
    engine.flush()


def raise_version(directory: StoreDir, snapshots: Snapshots, log_end: int) -> None:
    """Seal a snapshot, set the store's format to 2, and move `meta/` aside."""
    snapshots.take()
    directory.begin_state(log_end)
    if directory.meta.exists():
        aside = move_aside(directory.meta, OLD_FORMAT)
        logger.info("the store has format 2; %s is kept until the next clean stop", aside.name)


def _has_meta(directory: StoreDir) -> bool:
    """False for a store that was created and never opened. Raises StoreFormatError if it was
    lost."""
    if directory.meta.is_dir() and any(directory.meta.iterdir()):
        return True
    if directory.checkpoint.exists() or any(directory.commitlog.glob("*")):
        raise StoreFormatError(
            directory.meta,
            "is missing: topics, groups and committed offsets of a store of format 1 are in it. "
            "Restore it from a copy of the directory",
        )
    return False


def _open_meta(directory: StoreDir) -> RocksEngine:
    try:
        return RocksEngine.open_read_only(directory.meta, small_profile())
    except EngineUnavailableError:
        raise
    except EngineFailedError as error:
        raise StoreFormatError(
            directory.meta,
            f"is not the database that was written last ({error}). Nothing was changed. Restore it "
            "from a copy of the directory",
        ) from error


def _deletions(meta: KvEngine) -> Iterator[_Deletion]:
    for key, value in meta.scan(_META, b"d", b"e"):
        yield _Deletion(value[8:].decode(), *_I64.unpack_from(value), *_I64.unpack(key[1:]))


def _finish_deletions(
    engine: KvEngine, queues: ConsumeQueueStore, deletions: list[_Deletion]
) -> None:
    """Finish deletions whose rows the queues still have."""
    row = engine.get(BOUNDS, DELETIONS_KEY)
    applied = 0 if row is None else unpack_i64(row)
    for deletion in sorted(deletions, key=lambda each: each.number):
        if deletion.number > applied:
            queues.delete_topic(deletion.name, LAST_OFFSET)
            applied = deletion.number
    # The number stays, so that another attempt does not delete the rows of a topic that was created
    # again.
    engine.write(KvBatch(puts={BOUNDS: [(DELETIONS_KEY, pack_i64(applied))]}))


def _topics(meta: KvEngine, engine: KvEngine, log_end: int) -> None:
    """Topics were synced, so after a power loss they may begin beyond the log's end."""
    for rows in pages(meta, _META, b"t", b"u", rows=_PAGE):
        taken: list[Pair] = []
        for key, value in rows:
            topic = unpack_topic(key[1:].decode(), value)
            created = min(topic.created_offset, log_end)
            taken.append((key, pack_topic(topic._replace(created_offset=created))))
        engine.write(KvBatch(puts={STATE: taken}))


def _dead(engine: KvEngine, deletions: list[_Deletion], segments: SegmentSet) -> None:
    below: dict[str, int] = {}
    for name, at, _ in deletions:
        at = min(at, segments.end_offset)
        if is_light(name) and at > segments.first_offset:
            below[name] = max(at, below.get(name, 0))
    rows = [(dead_key(name), pack_offset(at)) for name, at in below.items()]
    for first in range(0, len(rows), _PAGE):
        engine.write(KvBatch(puts={STATE: rows[first : first + _PAGE]}))


def _lost_topics(
    directory: StoreDir, engine: KvEngine, segments: SegmentSet, deletions: list[_Deletion]
) -> None:
    """Topics whose row was lost in a crash that left their first record: one above the checkpoint's
    flushed offset, without a row and without a later deletion."""
    checkpoint = read_checkpoint(directory.checkpoint)
    if checkpoint is None:
        return
    dead: dict[str, int] = {}
    for name, below, _ in deletions:
        dead[name] = max(below, dead.get(name, 0))
    found: dict[str, tuple[int, int]] = {}  # name -> its first record, and its highest queue id
    start = max(checkpoint.flushed_offset, segments.first_offset)
    for step in walk(segments, start, parser=FastParser()):
        for request in step.requests if isinstance(step, Run) else ():
            if request.physical_offset >= dead.get(request.topic, 0):
                first, highest = found.get(request.topic, (request.physical_offset, 0))
                found[request.topic] = first, max(highest, request.queue_id)
    names = list(found)
    for name, row in zip(
        names, engine.multi_get(STATE, [topic_key(n) for n in names]), strict=True
    ):
        if row is None:
            first, highest = found[name]
            topic = TopicConfig(name, max(_LEAST_QUEUES, highest + 1), 0, first)
            engine.write(KvBatch(puts={STATE: [(topic_key(name), pack_topic(topic))]}))
            logger.warning("topic %r is made again: its first message is at %d", name, first)


def _ends(meta: KvEngine, queues: ConsumeQueueStore, segments: SegmentSet) -> None:
    """The ends of queues whose last message left the log."""
    for rows in pages(meta, _META, b"u", b"v", rows=_PAGE):
        units = [
            LastUnit(key[3:-4].decode(), *_I32.unpack(key[-4:]), *_PLACE.unpack(value))
            for key, value in rows
        ]
        below = segments.first_offset
        queues.restore_last_units([unit for unit in units if unit.physical_offset < below])


def _notes(meta: KvEngine, directory: StoreDir) -> None:
    users: dict[str, str] = {}
    for key, value in meta.scan(_META, b"s", b"t"):
        name = key[1:].decode()
        if name.startswith(_USER):
            users[name.removeprefix(_USER)] = value.decode()
        elif name not in _NOT_NEEDED:
            directory.notes.put(name, value)
    if users:
        directory.notes.put(USERS_NOTE, json.dumps(users).encode())


def _cut_committed(group: str, state: Tables, queues: ConsumeQueueStore, engine: KvEngine) -> None:
    after: tuple[str, int] | None = None
    while rows := state.list_committed(group, after, _PAGE):
        after = rows[-1][:2]
        ends = queues.next_offsets([row[:2] for row in rows])
        beyond: list[Pair] = []
        for (topic, queue_id, offset), end in zip(rows, ends, strict=True):
            if offset > end:
                beyond.append((offset_key(group, topic, queue_id), pack_offset(end)))
                logger.warning(
                    "group %r was beyond the end of queue %d of %r: it continues at %d",
                    *(group, queue_id, topic, end),
                )
        if beyond:
            engine.write(KvBatch(puts={STATE: beyond}))
