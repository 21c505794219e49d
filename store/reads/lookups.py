"""Lookups of single messages by key or by physical offset, and whether readers of the queue see
them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from store.consume_queue import KeyHit
from store.errors import (
    CorruptHitError,
    CorruptRecordError,
    DamagedQueueError,
    InvalidArgumentError,
    MessageNotFoundError,
    UnknownTopicError,
)
from store.format import ITEM_END, dispatch_request, unpack_record
from store.message import KeyQueryPage
from store.metadata import KEEP_ALL

if TYPE_CHECKING:
    from store.consume_queue import ConsumeQueueStore
    from store.derive import Superseded
    from store.log import CommitLog
    from store.reads.reader import Reader
    from store.topics import Topics

_CURSOR = struct.Struct(">qq")
_I64_MAX = (1 << 63) - 1


class Hidden(NamedTuple):
    """Why a message that is in the log is no longer visible."""

    reason: str
    is_superseded: bool  # by a later message of its key; otherwise the topic no longer keeps it


class Lookups:
    """Lookups in one store. Thread: any. Locks: those of the reader."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueStore,
        topics: Topics,
        superseded: Superseded,
        reader: Reader,
    ) -> None:
        self._log = log
        self._queues = queues
        self._topics = topics
        self._superseded = superseded
        self._reader = reader

    def query(
        self,
        topic: str,
        key: str,
        begin_ms: int,
        end_ms: int,
        limit: int,
        cursor: bytes | None,
        max_bytes: int,
    ) -> KeyQueryPage:
        """Messages with the key, oldest first. See MessageStore.query.

        An unreadable record ends the page before it; if it is the first of a page, its error is
        raised.
        """
        if not key:
            raise InvalidArgumentError("key", "is empty")
        if ITEM_END in key:
            raise InvalidArgumentError("key", "has a control separator in it")
        if limit < 1:
            raise InvalidArgumentError("limit", f"{limit} is below 1")
        if begin_ms < 0 or end_ms < 0:
            raise InvalidArgumentError("begin_ms" if begin_ms < 0 else "end_ms", "is below 0")
        keeps_all = self._topics.get(topic).retention == KEEP_ALL
        begins: dict[int, int] | None = None if keeps_all else {}
        after: KeyHit | None = None
        if cursor:
            if len(cursor) != _CURSOR.size:
                raise InvalidArgumentError("cursor", "was not made by this service")
            after = KeyHit(*_CURSOR.unpack(cursor))
            if after.store_time_ms < 0 or not 0 <= after.physical_offset < _I64_MAX:
                raise InvalidArgumentError("cursor", "was not made by this service")
        records: list[bytes] = []
        room = max_bytes
        while True:
            hits = self._queues.query_key(
                topic, key, begin_ms, end_ms or _I64_MAX, after, limit + 1
            )
            for hit in hits:
                record = None
                is_full = len(records) == limit
                if not is_full:
                    try:
                        record = self._record_of(topic, key, hit, begins)
                    except CorruptRecordError as error:
                        if not records:
                            raise CorruptHitError(
                                topic, key, error.physical_offset, error.reason, _CURSOR.pack(*hit)
                            ) from error
                        is_full = True
                if is_full or (record and records and len(record) > room):
                    assert after is not None
                    return KeyQueryPage(records, _CURSOR.pack(*after), complete=False)
                if record is not None:
                    records.append(record)
                    room -= len(record)
                after = hit
            if len(hits) <= limit:
                return KeyQueryPage(records, None, complete=True)

    def _record_of(
        self, topic: str, key: str, hit: KeyHit, begins: dict[int, int] | None
    ) -> bytes | None:
        """The record of an index row; None if it has expired, or belongs to an earlier topic.

        `begins`: known starts of the topic's queues; None if it keeps everything.
        """
        start = self._log.start_offset
        is_live = self._topics.admission.is_live
        if hit.physical_offset < start or not is_live(topic, hit.physical_offset):
            return None
        try:
            record = self._log.read_at(hit.physical_offset)
        except MessageNotFoundError:
            if hit.physical_offset < self._log.start_offset:
                return None
            raise CorruptRecordError(
                hit.physical_offset, "the key index refers to a place without a record"
            ) from None
        message = unpack_record(record, verify=False)
        if message.topic != topic or (
            key not in message.keys and key != message.properties.get("UNIQ_KEY")
        ):
            raise CorruptRecordError(
                hit.physical_offset, "the key index refers to a message without the key"
            )
        if not dispatch_request(record, 0).in_queue:
            return record  # it has no queue offset that could be hidden
        if begins is not None:
            queue_id = message.queue_id
            if queue_id not in begins:
                begins[queue_id] = self._reader.bounds(topic, queue_id).min_offset
            if message.queue_offset < begins[queue_id]:
                return None
        hidden = self._superseded.get(topic, message.queue_id)
        if hidden is not None and hidden.has(message.queue_offset, hit.physical_offset):
            return None
        return record

    def is_kept(self, record: bytes, begins: dict[tuple[str, int], int]) -> bool:
        """Whether the record is at or above the start of its queue. Records of deleted topics and
        of no queue are kept as long as the log. `begins`: known starts of queues.

        Raises DamagedQueueError.
        """
        message = unpack_record(record, verify=False)
        topic, queue = message.topic, (message.topic, message.queue_id)
        if not self._topics.admission.is_live(topic, message.physical_offset):
            return True
        if not dispatch_request(record, 0).in_queue:
            return True
        try:
            if self._topics.get(topic).retention == KEEP_ALL:
                return True
            if queue not in begins:
                begins[queue] = self._reader.bounds(*queue).min_offset
        except UnknownTopicError:  # deleted just now
            return True
        return message.queue_offset >= begins[queue]

    def find(self, physical_offset: int) -> tuple[bytes, Hidden | None]:
        """The record at the offset, and why readers of its topic do not see it, if they do not.
        Raises MessageNotFoundError if no record begins there.

        A body may contain bytes that look like a record; the unit of the queue proves where one
        begins.
        """
        if physical_offset >= self._queues.dispatched_offset:
            # Appended perhaps, but not visible: in SYNC mode it may not be durable yet.
            raise MessageNotFoundError(str(physical_offset), "nothing is visible there")
        record = self._log.read_at(physical_offset)
        message = unpack_record(record, verify=False)
        topic, queue_id = message.topic, message.queue_id
        if not self._topics.admission.is_live(topic, physical_offset):
            raise MessageNotFoundError(str(physical_offset), f"its topic {topic!r} was deleted")
        queue_offset = message.queue_offset
        unit = self._reader.first_unit(topic, queue_id, queue_offset)
        if unit is not None and unit[0] == physical_offset:
            if self._topics.get(topic).retention != KEEP_ALL:
                low = self._reader.bounds(topic, queue_id).min_offset
                if queue_offset < low:
                    reason = f"its topic {topic!r} keeps no message below offset {low}"
                    return record, Hidden(reason, is_superseded=False)
            hidden = self._superseded.get(topic, queue_id)
            if hidden is not None and hidden.has(queue_offset, physical_offset):
                return record, Hidden("a later message has its key", is_superseded=True)
            return record, None
        if unit is None:
            low, high = self._reader.bounds(topic, queue_id)
            if low <= queue_offset < high:
                raise DamagedQueueError(topic, queue_id, queue_offset, "its unit is missing")
        raise MessageNotFoundError(str(physical_offset), "no record begins there")
