"""What is not derived from the log, in its own small database with the write-ahead log on.

One family; the first byte of a key says the table:

| key                                       | value                                         |
|-------------------------------------------|-----------------------------------------------|
| `t` topic                                 | u8 1, i32 queues, i64 created, i64 log offset |
| `t` topic                                 | u8 2, the same, i64 ms, bytes, count, u8 0/1  |
| `d` i64 sequence                          | i64 below offset, topic                       |
| `x` topic                                 | i64 below offset, the highest of its marks    |
| `g` group                                 | empty                                         |
| `o` i16, group, i16, topic, i32 queue id  | i64 next offset to read                       |
| `q` i16, topic, group                     | empty: the group has offsets on the topic     |
| `s` name                                  | a small named value                           |
| `u` i16, topic, i32 queue id              | i64 queue offset, i64 physical offset         |
| `k` i16, topic, i32 queue id              | i64 log offset, limit, first, end, bytes      |
| `l` i16, topic, i32 queue id              | i64 log offset, i64 count                     |
| `h` i16, topic, i32 queue id, i64 number  | a bit for each of 8192 queue offsets          |

A topic that keeps less than the log has a row of form 2. `created` is ms since 1970; the log offset
is the log's end at that time; an i16 before a name is its length in bytes. `u` says where queues
ended whose last message left the log, `k` what was counted of queues whose topics keep so many
bytes, `l` and `h` what is hidden since a later message has the same key.

Numbers big-endian, text UTF-8. Every call is one batch, durable on return; for last units, and
topics that are put without sync, `sync` makes it so.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING

from kvcq.engine import KvBatch, pages
from kvcq.errors import CorruptValueError
from kvcq.tables import remove_range
from store.base import Lock
from store.consume_queue import LastUnit
from store.metadata import KEEP_ALL, DeleteMark, KeptQueue, LatestHead, Retention, TopicConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kvcq.engine import KvEngine, Pair

META = "default"

_TOPIC = struct.Struct(">Biqq")
_TOPIC_FORM = 1
_LIMITS = struct.Struct(">qqq?")
_LIMITED_FORM = 2
_KEPT = struct.Struct(">qqqqq")
_I64 = struct.Struct(">q")
_PLACE = struct.Struct(">qq")
_I32 = struct.Struct(">i")
_I16 = struct.Struct(">h")
_END = b"\xff"  # above every UTF-8 text
_SCAN_ROWS = 1000
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
#: A named value: marks up to that number, i64, are found by their names.
_NAMED = b"smarks_named"


def _sized(text: str) -> bytes:
    data = text.encode()
    return _I16.pack(len(data)) + data


def _topic_key(name: str) -> bytes:
    return b"t" + name.encode()  # as _topic_keys


def _topic_keys(names: Sequence[str]) -> list[bytes]:
    return [b"t" + name.encode() for name in names]


def _offset_key(group: str, topic: str, queue_id: int) -> bytes:
    return b"o" + _sized(group) + _sized(topic) + _I32.pack(queue_id)


def _mark_key(sequence: int) -> bytes:
    return b"d" + _I64.pack(sequence)


def _mark_rows(mark: DeleteMark) -> tuple[Pair, Pair]:
    below, name = _I64.pack(mark.below_offset), mark.topic.encode()
    return (_mark_key(mark.sequence), below + name), (b"x" + name, below)


def _mark(key: bytes, value: bytes) -> DeleteMark:
    return DeleteMark(value[8:].decode(), _I64.unpack_from(value)[0], _I64.unpack(key[1:])[0])


def _pack_topic(topic: TopicConfig) -> bytes:
    _, queue_count, created_ms, created_offset, retention = topic
    if retention == KEEP_ALL:
        return _TOPIC.pack(_TOPIC_FORM, queue_count, created_ms, created_offset)
    row = _TOPIC.pack(_LIMITED_FORM, queue_count, created_ms, created_offset)
    return row + _LIMITS.pack(*retention)


def _unpack_topic(name: str, value: bytes) -> TopicConfig:
    fields = _topic_fields(value)
    if fields is None:
        raise CorruptValueError(f"topic {name!r} has a row of form {value[:1].hex()}")
    return TopicConfig(name, *fields)


@lru_cache(maxsize=64)
def _topic_fields(value: bytes) -> tuple[int, int, int, Retention] | None:
    """All but the name; None when it has no form that there is. Topics that were made together
    have the same."""
    form, size = value[:1], len(value)
    retention = KEEP_ALL
    if form == b"\x02" and size == _TOPIC.size + _LIMITS.size:
        retention = Retention(*_LIMITS.unpack_from(value, _TOPIC.size))
    elif form != b"\x01" or size != _TOPIC.size:
        return None
    _, queue_count, created_ms, created_offset = _TOPIC.unpack_from(value)
    return queue_count, created_ms, created_offset, retention


class MetadataStore:
    """Metadata over a KvEngine. Thread: any. Durable on return, unless a call says `sync=False`."""

    def __init__(self, engine: KvEngine) -> None:
        self._engine = engine
        # Serialises read-then-write steps on groups, and writes that those must not miss.
        self._changing = Lock()
        self._syncing = Lock()
        # A flag that writers set and `sync` takes back; a stale True costs one sync.
        self._unsynced = False

    # --- topics ----------------------------------------------------------------------------

    def topics(self, names: Sequence[str]) -> list[TopicConfig | None]:
        rows = self._engine.multi_get(META, _topic_keys(names))
        if not any(rows):  # as of a batch of new topics
            return [None] * len(rows)
        return [
            None if row is None else _unpack_topic(name, row)
            for name, row in zip(names, rows, strict=True)
        ]

    def put_topics(self, topics: Iterable[TopicConfig], *, sync: bool = True) -> None:
        self._put_topics(
            [(_topic_key(topic.name), _pack_topic(topic)) for topic in topics], sync=sync
        )

    def put_topics_like(self, names: Sequence[str], config: TopicConfig) -> None:
        packed = _pack_topic(config)
        self._put_topics([(key, packed) for key in _topic_keys(names)], sync=False)

    def _put_topics(self, rows: list[Pair], *, sync: bool) -> None:
        if rows:
            try:
                self._engine.write(KvBatch(puts={META: rows}, sync=sync))
            finally:  # also when an interrupt comes right behind the write
                if not sync:
                    self._unsynced = True

    def sync(self) -> None:
        # One at a time: who finds the flag taken back must not return before the flush has ended.
        with self._syncing:
            if self._unsynced:
                # Before the flush: what is written meanwhile counts for the next one.
                self._unsynced = False
                try:
                    self._engine.flush()
                except BaseException:
                    self._unsynced = True
                    raise

    def list_topics(self, prefix: str, after: str | None, limit: int) -> list[TopicConfig]:
        start = _topic_key(prefix)
        end = start + _END
        if after is not None:
            start = max(start, _topic_key(after) + b"\x00")
        rows = self._engine.scan(META, start, end, limit=limit)
        return [_unpack_topic(key[1:].decode(), value) for key, value in rows]

    def delete_topics(self, marks: Sequence[DeleteMark]) -> None:
        batch = KvBatch()
        with self._changing:
            for mark in marks:
                self._remove_topic(batch, mark.topic)
            batch.puts[META] = [row for mark in marks for row in _mark_rows(mark)]
            batch.put(META, _NAMED, _I64.pack(max(mark.sequence for mark in marks)))
            self._engine.write(batch)
            self._engine.flush_deletions()

    def _remove_topic(self, batch: KvBatch, name: str) -> None:
        sized = _sized(name)
        batch.deletes.append((META, _topic_key(name)))
        start = b"q" + sized
        for key, _ in self._engine.scan(META, start, start + _END):
            offsets = b"o" + _sized(key[len(start) :].decode()) + sized
            remove_range(self._engine, batch, META, offsets, offsets + _END * 5)
        for table in (b"q", b"u", b"k"):
            remove_range(self._engine, batch, META, table + sized, table + sized + _END)
        self._remove_hidden(batch, name)

    def put_marks(self, marks: Iterable[DeleteMark]) -> None:
        marks = list(marks)
        assert all(mark.sequence <= 0 for mark in marks)
        for first in range(0, len(marks), _SCAN_ROWS):
            some = marks[first : first + _SCAN_ROWS]
            rows = [row for mark in some for row in _mark_rows(mark)]
            self._engine.write(KvBatch(puts={META: rows}))

    def delete_marks(self) -> list[DeleteMark]:
        return self.marks_above(_LOWEST, None)

    def marks_above(self, sequence: int, limit: int | None) -> list[DeleteMark]:
        # Keys of numbers below 0 sort behind the others.
        marks: list[DeleteMark] = []
        for first, end in ((_LOWEST, -1), (0, _HIGHEST)):
            first = max(first, sequence + 1)
            left = None if limit is None else limit - len(marks)
            if first <= end and left != 0:
                stop = _mark_key(end) + b"\0"
                rows = self._engine.scan(META, _mark_key(first), stop, limit=left)
                marks += [_mark(*row) for row in rows]
        return marks

    def last_mark(self) -> int:
        rows = self._engine.scan(
            META, _mark_key(0), _mark_key(_HIGHEST) + b"\0", limit=1, reverse=True
        )
        return _mark(*rows[0]).sequence if rows else 0

    def dead_below(self, names: Sequence[str]) -> list[int]:
        rows = self._engine.multi_get(META, [b"x" + name.encode() for name in names])
        return [0 if row is None else _I64.unpack(row)[0] for row in rows]

    def name_marks(self) -> None:
        named = self._engine.get(META, _NAMED)
        last = self.last_mark()
        done = _LOWEST if named is None else _I64.unpack(named)[0]
        while page := self.marks_above(done, _SCAN_ROWS):
            done = page[-1].sequence
            rows = [row for mark in page for row in _mark_rows(mark)]
            self._engine.write(KvBatch(puts={META: rows}, sync=False))
        if named is None or done > _I64.unpack(named)[0]:
            self._engine.write(KvBatch(puts={META: [(_NAMED, _I64.pack(last))]}))

    def drop_marks(self, marks: Sequence[DeleteMark]) -> None:
        if not marks:
            return
        with self._changing:  # a name may be deleted again meanwhile
            belows = self.dead_below([mark.topic for mark in marks])
            deletes = [(META, _mark_key(mark.sequence)) for mark in marks]
            deletes += [
                (META, b"x" + mark.topic.encode())
                for mark, below in zip(marks, belows, strict=True)
                if below <= mark.below_offset
            ]
            self._engine.write(KvBatch(deletes=deletes))

    # --- groups ----------------------------------------------------------------------------

    def commit_offsets(self, group: str, offsets: Iterable[tuple[str, int, int]]) -> None:
        rows: dict[bytes, bytes] = {}
        for topic, queue_id, offset in offsets:
            rows[_offset_key(group, topic, queue_id)] = _I64.pack(offset)
            rows[b"q" + _sized(topic) + group.encode()] = b""
        if not rows:
            return
        rows[b"g" + group.encode()] = b""
        with self._changing:
            self._engine.write(KvBatch(puts={META: list(rows.items())}))

    def committed_offsets(self, group: str, queues: Sequence[tuple[str, int]]) -> list[int | None]:
        rows = self._engine.multi_get(META, [_offset_key(group, *queue) for queue in queues])
        return [None if row is None else _I64.unpack(row)[0] for row in rows]

    def list_committed(
        self, group: str, after: tuple[str, int] | None, limit: int
    ) -> list[tuple[str, int, int]]:
        prefix = b"o" + _sized(group)
        start = prefix if after is None else _offset_key(group, *after) + b"\x00"
        found: list[tuple[str, int, int]] = []
        for key, value in self._engine.scan(META, start, prefix + _END * 2, limit=limit):
            topic = key[len(prefix) + 2 : -4].decode()
            found.append((topic, _I32.unpack(key[-4:])[0], _I64.unpack(value)[0]))
        return found

    def delete_group(self, group: str) -> None:
        with self._changing:
            prefix = b"o" + _sized(group)
            batch = KvBatch(deletes=[(META, b"g" + group.encode())])
            remove_range(self._engine, batch, META, prefix, prefix + _END * 2)
            after: tuple[str, int] | None = None
            topics: set[str] = set()
            while page := self.list_committed(group, after, _SCAN_ROWS):
                topics.update(topic for topic, _, _ in page)
                after = page[-1][:2]
            batch.deletes += [(META, b"q" + _sized(topic) + group.encode()) for topic in topics]
            self._engine.write(batch)
            self._engine.flush_deletions()

    def list_groups(self, after: str | None, limit: int) -> list[str]:
        start = b"g" if after is None else b"g" + after.encode() + b"\x00"
        return [key[1:].decode() for key, _ in self._engine.scan(META, start, b"h", limit=limit)]

    # --- ends of queues --------------------------------------------------------------------

    def put_last_units(self, units: Sequence[LastUnit]) -> None:
        rows = [
            (b"u" + _sized(topic) + _I32.pack(queue_id), _PLACE.pack(offset, physical_offset))
            for topic, queue_id, offset, physical_offset in units
        ]
        if not rows:
            return
        with self._changing:  # a deletion removes the rows that it has seen
            self._engine.write(KvBatch(puts={META: rows}, sync=False))
        self._unsynced = True

    def last_units(self) -> Iterator[list[LastUnit]]:
        for rows in pages(self._engine, META, b"u", b"v", rows=_SCAN_ROWS):
            yield [
                LastUnit(key[3:-4].decode(), _I32.unpack(key[-4:])[0], *_PLACE.unpack(value))
                for key, value in rows
            ]

    # --- what queues keep ------------------------------------------------------------------

    def put_kept(self, kept: Sequence[KeptQueue]) -> None:
        rows = [
            (b"k" + _sized(topic) + _I32.pack(queue_id), _KEPT.pack(*counted))
            for topic, queue_id, *counted in kept
        ]
        if rows:
            with self._changing:  # as put_last_units
                self._engine.write(KvBatch(puts={META: rows}, sync=False))
            self._unsynced = True

    def kept(self, topic: str, queue_id: int) -> KeptQueue | None:
        row = self._engine.get(META, b"k" + _sized(topic) + _I32.pack(queue_id))
        return None if row is None else KeptQueue(topic, queue_id, *_KEPT.unpack(row))

    def forget_kept(self) -> None:
        """What was counted of queues, for a log that was cut since: it is counted again."""
        with self._changing:
            batch = KvBatch()
            remove_range(self._engine, batch, META, b"k", b"l")
            self._engine.write(batch)

    # --- what is superseded ----------------------------------------------------------------

    def put_hidden(self, head: LatestHead, bits: Mapping[int, bytes]) -> None:
        queue = _sized(head.topic) + _I32.pack(head.queue_id)
        rows = [(b"h" + queue + _I64.pack(number), each) for number, each in bits.items()]
        rows.append((b"l" + queue, _PLACE.pack(head.looked_offset, head.hidden)))
        with self._changing:  # as put_last_units
            batch = KvBatch(puts={META: rows}, sync=False)
            remove_range(self._engine, batch, META, b"h" + queue, b"h" + queue + _END * 9)
            self._engine.write(batch)
        self._unsynced = True

    def hidden_bits(self, topic: str, queue_id: int, number: int) -> bytes | None:
        key = b"h" + _sized(topic) + _I32.pack(queue_id) + _I64.pack(number)
        return self._engine.get(META, key)

    def latest_heads(self) -> Iterator[LatestHead]:
        start = b"l"
        while rows := self._engine.scan(META, start, b"m", limit=_SCAN_ROWS):
            for key, value in rows:
                yield LatestHead(key[3:-4].decode(), *_I32.unpack(key[-4:]), *_PLACE.unpack(value))
            start = rows[-1][0] + b"\x00"

    def forget_hidden(self, topic: str) -> None:
        with self._changing:
            batch = KvBatch(sync=False)
            self._remove_hidden(batch, topic)
            self._engine.write(batch)
        self._unsynced = True

    def _remove_hidden(self, batch: KvBatch, topic: str) -> None:
        for table in (b"h", b"l"):
            start = table + _sized(topic)
            remove_range(self._engine, batch, META, start, start + _END)

    # --- small named values ----------------------------------------------------------------

    def get_state(self, name: str) -> bytes | None:
        return self._engine.get(META, b"s" + name.encode())

    def put_state(self, name: str, value: bytes) -> None:
        self._engine.write(KvBatch(puts={META: [(b"s" + name.encode(), value)]}))

    def statistics(self) -> dict[str, float]:
        return self._engine.statistics()

    def back_up(self) -> Path:
        """A copy of the database: see KvEngine."""
        return self._engine.back_up()

    def states(self, prefix: str) -> list[tuple[str, bytes]]:
        start = b"s" + prefix.encode()
        return [
            (key[1:].decode(), value) for key, value in self._engine.scan(META, start, start + _END)
        ]

    def drop_state(self, name: str) -> None:
        self._engine.write(KvBatch(deletes=[(META, b"s" + name.encode())]))

    def maintain(self) -> None:
        self._engine.settle()

    def close(self) -> None:
        self._engine.close()
