"""Reads the records of a broker's system topics: for a plan in one walk over the log (`Watched`),
for a takeover from the queues of the open store (`OpenLog`)."""

from __future__ import annotations

import logging
from array import array
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from migration.waiting.names import (
    ENDED_TOPIC,
    HALF_TOPIC,
    REVIVE_TOPICS,
)
from store.errors import (
    CorruptHitError,
    CorruptRecordError,
    DamagedQueueError,
    OffsetOutOfRangeError,
    UnknownQueueError,
    UnknownTopicError,
)
from store.format import SCHEDULE_TOPIC, unpack_record
from store.state import TIMER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from migration.waiting.timer_files import TimerFiles
    from store.consume_queue import DispatchRequest
    from store.message import StoredMessage
    from store.message_store import MessageStore

logger = logging.getLogger(__name__)

QueueKey = tuple[str, int]

_PAGE = 256
_PAGE_BYTES = 4 << 20


class BrokerLog(Protocol):
    """A broker's records. Thread: one at a time."""

    def topics(self, prefix: str) -> list[str]:
        """Existing topics with that prefix."""
        ...

    def ids(self, topic: str) -> list[int]:
        """Ids of the topic's queues, ascending."""
        ...

    def read(self, topic: str, queue_id: int, first: int) -> Iterator[StoredMessage]:
        """Yield the queue's messages from offset `first` on, ascending. Skips unreadable ones."""
        ...

    def is_later(self, topic: str, key: str, physical_offset: int) -> bool:
        """Whether the topic has a message with that key after that position in the log."""
        ...


class Watched:
    """Collects, in one walk over the whole log, the offsets of messages that may still wait, and
    the places where their keys occur later in other topics.

    Memory: 16 bytes and an entry for the key of each message of these topics that the broker does
    not count as done.
    """

    def __init__(
        self,
        record_at: Callable[[int], bytes | None],
        first: Mapping[QueueKey, int],
        timers: TimerFiles | None,
    ) -> None:
        """`first`: the broker's position in its queues; 0 for other queues."""
        # Constant after construction.
        self._record_at = record_at
        self._first = first
        self._timers = timers
        self._places: dict[QueueKey, array[int]] = {}
        self._keys: set[str] = set()
        self._later: dict[tuple[str, str], int] = {}
        self._is_watched: dict[str, bool] = {}
        #: For each queue of the revive log, offsets of the newest records that the broker has
        #: finished.
        self._over: dict[QueueKey, deque[int]] = {}

    def take(self, requests: Sequence[DispatchRequest]) -> None:
        """Take the next records of the log."""
        known, awaited = self._is_watched, self._keys
        for request in requests:
            topic = request[0]
            is_watched = known.get(topic)
            if is_watched is None:
                is_watched = known[topic] = _is_watched(topic)
            keys = request[7]
            if is_watched:
                self._take(request)
            elif awaited and keys and keys[0] in awaited:
                self._later[topic, keys[0]] = request[3]

    def _take(self, request: DispatchRequest) -> None:
        topic, queue_id, offset, physical_offset = request[:4]
        if offset < self._first.get((topic, queue_id), 0) or not request.in_queue:
            if topic.startswith(REVIVE_TOPICS):
                over = self._over.setdefault((topic, queue_id), deque(maxlen=_PAGE))
                over.append(physical_offset)
            return
        timers = self._timers if topic == TIMER_TOPIC else None
        # A recall is in the wheel as long as the message that it recalls.
        if timers is not None and not timers.may_wait(offset, physical_offset):
            return
        places = self._places.setdefault((topic, queue_id), array("q"))
        if offset == 0 and places:  # the queue was created again
            del places[:]
        places.extend((offset, physical_offset))
        if request.keys and topic in (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC):
            self._keys.add(request.keys[0])

    def over(self) -> Iterator[StoredMessage]:
        """The newest records of the revive log that the broker has finished."""
        for places in self._over.values():
            for physical_offset in places:
                record = self._record_at(physical_offset)
                if record is not None:
                    yield unpack_record(record, verify=False)

    def topics(self, prefix: str) -> list[str]:
        return sorted({topic for topic, _ in self._places if topic.startswith(prefix)})

    def ids(self, topic: str) -> list[int]:
        return sorted(queue_id for name, queue_id in self._places if name == topic)

    def read(self, topic: str, queue_id: int, first: int) -> Iterator[StoredMessage]:
        places = self._places.get((topic, queue_id), array("q"))
        for at in range(0, len(places), 2):
            if places[at] < first:
                continue
            record = self._record_at(places[at + 1])
            if record is not None:
                yield unpack_record(record, verify=False)

    def is_later(self, topic: str, key: str, physical_offset: int) -> bool:
        return self._later.get((topic, key), -1) > physical_offset


def _is_watched(topic: str) -> bool:
    return topic in (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, ENDED_TOPIC) or topic.startswith(
        REVIVE_TOPICS
    )


class OpenLog:
    """Reads an open store. The broker wrote its log up to `end`."""

    def __init__(self, store: MessageStore, end: int) -> None:
        """`end`: physical offset."""
        # Constant after construction.
        self._store = store
        self._end = end

    def topics(self, prefix: str) -> list[str]:
        return [each.name for each in self._store.tables.every_topic(prefix)]

    def ids(self, topic: str) -> list[int]:
        found = self._store.tables.topic(topic)
        return [] if found is None else list(range(found.queue_count))

    def read(self, topic: str, queue_id: int, first: int) -> Iterator[StoredMessage]:
        at = first
        while True:
            try:
                pulled = self._store.pull(
                    *(topic, queue_id, at), max_messages=_PAGE, max_bytes=_PAGE_BYTES
                )
            except (UnknownTopicError, UnknownQueueError):
                return
            except OffsetOutOfRangeError as error:
                if at >= error.min_offset:
                    return
                at = error.min_offset
                continue
            except (CorruptRecordError, DamagedQueueError) as error:
                following = getattr(error, "next_offset", None)
                at = at + 1 if following is None else max(following, at + 1)
                logger.error("messages of %s below %d are not taken over: %s", topic, at, error)
                continue
            for record in pulled.records:
                was = unpack_record(record, verify=False)
                if was.physical_offset >= self._end:
                    return
                yield was
            if pulled.next_offset <= at:
                return
            at = pulled.next_offset

    def is_later(self, topic: str, key: str, physical_offset: int) -> bool:
        cursor: bytes | None = None
        with suppress(UnknownTopicError):
            while True:
                try:
                    page = self._store.query(topic, key, cursor=cursor)
                except CorruptHitError as error:
                    cursor = error.next_cursor
                    continue
                for record in page.records:
                    was = unpack_record(record, verify=False)
                    if physical_offset < was.physical_offset < self._end:
                        return True
                if page.complete or page.cursor is None:
                    return False
                cursor = page.cursor
        return False
