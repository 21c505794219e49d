"""Positions of a shared group in queues: its start, its current position, and resets."""

from __future__ import annotations

import enum
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from store.consume_queue import Boundary
from store.errors import OffsetOutOfRangeError, UnknownQueueError, UnknownTopicError
from store.groups.turn import Place, begin_of
from store.light_queue import is_light
from store.reads import first_where
from store.state import FRESH, NOBODY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store.consume_queue import ConsumeQueueStore
    from store.groups.turn import Begin
    from store.reads import ReadPath
    from store.state import Tables, Window


class Edge(enum.Enum):
    """Either end of a queue."""

    EARLIEST = "earliest"  # its oldest message
    LATEST = "latest"  # behind its newest message


class AtTime(NamedTuple):
    """The first message stored at that time or later."""

    time_ms: int  # ms since 1970


class AtOffset(NamedTuple):
    """The message at that queue offset, which must be within min and max of the queue."""

    offset: int


Where = Edge | AtTime | AtOffset


class SharedQueue(NamedTuple):
    """The position of a shared group in a queue of a topic that it has received from."""

    topic: str  # or light queue
    queue_id: int
    next_offset: int  # the first message that was neither delivered nor scanned in order
    max_offset: int  # end of the queue, exclusive
    done_below: int  # all messages below are done
    in_flight: int  # messages that receivers have now
    waiting_again: int  # messages that wait for redelivery, or behind others in order
    oldest_time_ms: int | None  # store time of the oldest message that is not done, ms since 1970


class ResetDone(NamedTuple):
    """The result of a reset."""

    queues: list[SharedQueue]  # after the reset
    ended_in_flight: int  # messages whose handles became invalid


def offset_of(reads: ReadPath, topic: str, queue_id: int, where: Where) -> int:
    """Resolve `where` to a queue offset. Raises OffsetOutOfRangeError, and what
    MessageStore.search_time raises."""
    match where:
        case AtTime(time_ms):
            return reads.search_time(topic, queue_id, time_ms, Boundary.LOWER)
        case AtOffset(offset):
            ((low, high),) = reads.bounds([(topic, queue_id)])
            if not low <= offset <= high:
                raise OffsetOutOfRangeError(topic, queue_id, offset, low, high)
            return offset
        case Edge.EARLIEST | Edge.LATEST:
            ((low, high),) = reads.bounds([(topic, queue_id)])
            return low if where is Edge.EARLIEST else high


def latest_start(
    queues: ConsumeQueueStore, topic: str, queue_id: int, place: Place, begin: Begin
) -> int:
    """The queue offset at which a from-latest group starts in a queue without a window: behind the
    record of its first receive from the topic, or 0 if the topic is younger than the group."""
    made_at, begun_at = begin
    assert begun_at is not None, "it has begun"
    low, high = queues.bounds(topic, queue_id, 0)
    if is_light(topic):
        first = queues.read_units(topic, queue_id, 0, 1) if low == 0 else []
        is_younger = bool(first) and first[0][1].physical_offset > made_at
    else:
        is_younger = place.begins > made_at
    if is_younger:
        return 0
    if begun_at == 0:
        return high
    return first_where(
        queues, topic, queue_id, low, high, lambda unit: unit.physical_offset > begun_at
    )[0]


def list_queues(
    tables: Tables,
    queues: ConsumeQueueStore,
    group: str,
    after: tuple[str, int] | None,
    limit: int,
) -> Iterator[tuple[str, int, Window]]:
    """Windows of the shared group on the queues of the topics that it has received from, above
    `after`, in the order of their rows. For a queue without a window: where the group would
    begin."""
    rows = tables.list_windows(group, after, limit)
    topic, following = ("", 0) if after is None else (after[0], after[1] + 1)
    for row in rows:
        if row[0] != topic:
            yield from _fresh(tables, queues, group, topic, following)
            topic, following = row[0], 0
        yield from _fresh(tables, queues, group, topic, following, row[1])
        yield row
        following = row[1] + 1
    if len(rows) < limit:
        yield from _fresh(tables, queues, group, topic, following)


def _fresh(
    tables: Tables,
    queues: ConsumeQueueStore,
    group: str,
    topic: str,
    first: int,
    end: int | None = None,
) -> Iterator[tuple[str, int, Window]]:
    """Like `list_queues`, for queues first <= id < end, which have no row; `end` None: to the
    topic's last queue."""
    if first == end or not topic or is_light(topic) or not tables.reads(group, topic):
        return
    config, settings = tables.topic(topic), tables.shared_group(group)
    if config is None or settings is None:
        return  # deleted meanwhile
    begin = begin_of(tables, group, topic) if settings.from_latest else None
    if begin is not None and begin.begun_at is None:
        return
    place = Place(config.created_offset, config.queue_count)
    for queue_id in range(first, config.queue_count if end is None else end):
        start = 0 if begin is None else latest_start(queues, topic, queue_id, place, begin)
        yield topic, queue_id, FRESH.passed(start)


def described(
    reads: ReadPath,
    queues: ConsumeQueueStore,
    windows: Sequence[tuple[str, int, Window]],
    now_ms: int,
) -> list[SharedQueue]:
    """Describe the queues of these windows, except those whose topic was deleted meanwhile.

    Raises DamagedQueueError.
    """
    # Read after the windows, so that no group is ahead of its queue.
    ends = queues.next_offsets([(topic, queue_id) for topic, queue_id, _ in windows])
    found = []
    for (topic, queue_id, window), end in zip(windows, ends, strict=True):
        held = sum(
            lease.message_count
            for lease in window.leases
            if lease.nonce != NOBODY and not lease.is_over(now_ms)
        )
        with suppress(UnknownTopicError, UnknownQueueError):
            ((low, _),) = reads.bounds([(topic, queue_id)])
            oldest = max(low, window.done_below)
            found.append(
                SharedQueue(
                    topic,
                    queue_id,
                    max(low, window.next_offset),
                    max(end, window.next_offset),
                    oldest,
                    held,
                    window.undone - held,
                    reads.backlog_since_ms(topic, queue_id, oldest),
                )
            )
    return found
