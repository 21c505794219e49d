"""Finds numbered batches in the log again: their producer, first number, and what became of them.

The key index points to the first record of a batch in each segment (batch_mark.py). The other
records follow it, each with its place in the batch (batch_place.py). Neither belongs to a topic, so
both exist as long as the record does, whatever is deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from store.errors import CorruptRecordError, MessageNotFoundError
from store.format import (
    BatchMark,
    BatchPlace,
    Found,
    check_record,
    dispatch_request,
    key_of,
    mark_of,
    place_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.consume_queue import ConsumeQueueStore, DispatchRequest, KeyHit
    from store.log import CommitLog
    from store.topics import Topics

T = TypeVar("T")

_PAGE = 256
_FOREVER_MS = (1 << 63) - 1
_ABOVE_ALL = (1 << 63) - 1  # sequences
_ALONE = BatchPlace(0, 0, is_last=True)


class FoundBatch(NamedTuple):
    """A batch in the log, or its last part."""

    mark: BatchMark
    messages: list[DispatchRequest | None]  # in order; None: its record has left the log
    standing: int  # number of messages that are still in a queue
    end_offset: int  # physical, of its last record
    store_time_ms: int

    @property
    def is_deleted(self) -> bool:
        """Whether all of it is in the log but in no queue, because its topics were deleted."""
        return not self.standing and None not in self.messages


class NumberedBatches:
    """Finds numbered batches in the log. Thread: any. Its methods read the disk. They only find
    records that are dispatched: call `MessageStore.wait_visible` first."""

    def __init__(self, log: CommitLog, queues: ConsumeQueueStore, topics: Topics) -> None:
        self._log = log
        self._queues = queues
        self._topics = topics

    def next_sequence(self, producer_id: str) -> int | None:
        """The lowest number that the producer has not used yet, according to the log.

        0 if the log has nothing of the producer; None if the queues do not support it. Raises
        CorruptRecordError.
        """
        key = key_of(producer_id, _ABOVE_ALL)
        while rows := self._queues.marks_below(key, _PAGE):
            for key, offset in rows:
                found = self._marked(offset, key)
                if found is not None:
                    return found[0].next_sequence
        return None if rows is None else 0

    def find(self, producer_id: str, sequence: int) -> FoundBatch | None:
        """The batch that begins with that number; the latest one, if it was stored again.

        None if the log has no record of it. Raises CorruptRecordError.
        """
        return self._again_if_dropped(lambda: self._find(key_of(producer_id, sequence)))

    def records(
        self, producer_id: str, sequence: int, is_kept: Callable[[bytes], bool]
    ) -> list[bytes | None] | None:
        """Records of the batch, in order; None in place of one that left the log, or is not kept.

        None if the log has no record of it. Raises CorruptRecordError, and what `is_kept` raises.
        """

        def read() -> list[bytes | None] | None:
            found = self._find(key_of(producer_id, sequence))
            if found is None:
                return None
            records = [
                one if one is None else self._log.read(one.physical_offset, one.record_size)
                for one in found.messages
            ]
            return [one if one is not None and is_kept(one) else None for one in records]

        return self._again_if_dropped(read)

    def _again_if_dropped(self, read: Callable[[], T]) -> T:
        """Run `read`, again if a segment was dropped meanwhile."""
        while True:
            start = self._log.start_offset
            try:
                return read()
            except MessageNotFoundError:
                if self._log.start_offset == start:
                    raise

    def _find(self, key: str) -> FoundBatch | None:
        for offset in reversed(self._offsets(key)):
            found = self._marked(offset, key)
            if found is not None:
                mark, record = found
                return self._walk(mark, offset - (place_of(record, 0) or _ALONE).distance)
        return None

    def _offsets(self, key: str) -> list[int]:
        offsets: list[int] = []
        after: KeyHit | None = None
        while hits := self._queues.query_key("", key, 0, _FOREVER_MS, after, _PAGE):
            offsets += [hit.physical_offset for hit in hits]
            after = hits[-1]
        return offsets

    def _marked(self, offset: int, key: str) -> tuple[BatchMark, bytes] | None:
        """Mark and record at the offset; None if it has expired, or the mark was copied from
        elsewhere."""
        try:
            record = self._log.read_at(offset)
        except MessageNotFoundError:
            if offset < self._log.start_offset:
                return None
            raise CorruptRecordError(
                offset, "the key index refers to a place without a record"
            ) from None
        mark = mark_of(record)
        return None if mark is None or mark.key != key else (mark, record)

    def _walk(self, mark: BatchMark, begin: int) -> FoundBatch:
        log = self._log
        messages: list[DispatchRequest | None] = [None] * mark.message_count
        standing = 0
        at = max(begin, log.start_offset)
        while True:
            try:
                record = log.read_at(at)
            except MessageNotFoundError:
                with log.view(at, log.appended_offset) as view:
                    if not view:
                        raise
                    checked = check_record(view, 0, len(view), at)
                if checked.found is not Found.BLANK:
                    raise CorruptRecordError(at, checked.reason) from None
                at = log.segment_end(at)
                continue
            place = place_of(record, 0) or _ALONE
            if at - place.distance != begin or place.ordinal >= mark.message_count:
                raise CorruptRecordError(at, f"no record of the batch that begins at {begin}")
            request = dispatch_request(record, 0)
            messages[place.ordinal] = request
            standing += self._stands(request)
            at += request.record_size
            if place.is_last:
                return FoundBatch(mark, messages, standing, at, request.store_time_ms)

    def _stands(self, request: DispatchRequest) -> bool:
        """Whether a queue still has the message."""
        topic, at = request.topic, request.physical_offset
        if not request.in_queue or self._topics.admission.is_live(topic, at):
            return request.in_queue
        # A light queue that was deleted has lost its units.
        return any(
            unit.physical_offset == at
            for name, offset in request.light_queues
            for _, unit in self._queues.read_units(name, 0, offset, 1)
        )
