"""Redelivers messages that popping groups had not acknowledged.

A broker redelivers a copy in a retry topic of the group; here the original message is delivered
again. If it has left the log, the copy becomes a dead letter of the group.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from migration.broker_config import TAKEN_GROUP, GroupOffset
from migration.waiting import (
    RETRY_TOPICS,
    REVIVE_GROUP,
    REVIVE_TOPICS,
    done_below,
    find_in_flight,
    retry_topics_of,
)
from store.errors import CorruptHitError, UnknownTopicError
from store.format import UNIQ_KEY, is_system_group, unpack_record
from store.held import acceptable, again
from store.state import (
    DEAD_LETTERS,
    NOBODY,
    Committed,
    Held,
    Lease,
    Leased,
    runs_of,
)

if TYPE_CHECKING:
    from migration.waiting import OpenLog
    from store.message import Message, StoredMessage
    from store.message_store import MessageStore
    from store.state import Entry

logger = logging.getLogger(__name__)

#: Most messages in one append.
_TOGETHER = 256


class _Undone(NamedTuple):
    """A message to deliver to a group again."""

    topic: str
    queue_id: int
    offset: int
    deliveries: int  # number of earlier deliveries


def take_undone(store: MessageStore, log: OpenLog) -> int:
    """Schedule messages of shared groups that the broker has in flight, or in retry topics, for
    redelivery; returns how many. Repeatable: each is scheduled once.

    Raises what an append raises, and what reading queues raises.
    """
    tables = store.tables
    shared = {each for each in tables.every_group() if tables.shared_group(each) is not None}
    if not shared:
        return 0
    found, gone = _in_flight(store, log, shared)
    count = sum(_take(store, group, some, [], None) for group, some in found.items())
    for group, origin, copy in gone:
        count += _take_in_flight(store, group, origin, copy)
    # So that a broker that gets the store back does not deliver them again.
    ends = [
        (topic, queue_id, bounds.max_offset)
        for topic in log.topics(REVIVE_TOPICS)
        for queue_id in log.ids(topic)
        for bounds in store.bounds([(topic, queue_id)])
        if bounds.max_offset
    ]
    if ends:
        store.commit_offsets(REVIVE_GROUP, ends)
    names = set(log.topics(""))
    for group in sorted(shared):
        retried = retry_topics_of(group, names)
        if RETRY_TOPICS + group in names:
            retried.append((RETRY_TOPICS + group, ""))
        for retry_topic, topic in retried:
            for queue_id in log.ids(retry_topic):
                count += _take_retried(store, log, group, topic, retry_topic, queue_id)
    return count


def _in_flight(
    store: MessageStore, log: OpenLog, shared: set[str]
) -> tuple[dict[str, list[_Undone]], list[tuple[str, str, StoredMessage]]]:
    """Messages by group; and (group, topic, copy) of messages that left the log, ascending in each
    retry queue."""
    found = defaultdict[str, list[_Undone]](list)
    gone: list[tuple[str, str, StoredMessage]] = []
    marks = [
        GroupOffset(group, *row)
        for group in store.tables.every_group()
        if is_system_group(group)
        for row in store.tables.every_committed(group)
    ]
    for group, topic, queue_id, offset in find_in_flight(log, done_below(marks)):
        if group not in shared:
            logger.warning("group %s is not shared: its messages of %s are skipped", group, topic)
        elif topic.startswith(RETRY_TOPICS):
            was = next(log.read(topic, queue_id, offset), None)
            if was is not None and was.queue_offset == offset:
                origin = _origin_topic(group, topic) or was.properties.get("RETRY_TOPIC", "")
                original = _original(store, origin, was)
                if original is not None:
                    found[group].append(original)
                else:
                    gone.append((group, origin, was))
        else:
            found[group].append(_Undone(topic, queue_id, offset, 1))
    return found, gone


def _origin_topic(group: str, retry_topic: str) -> str:
    return retry_topic.removeprefix(RETRY_TOPICS + group)[1:]


def _take_in_flight(store: MessageStore, group: str, origin: str, copy: StoredMessage) -> int:
    """Take over a copy in flight. The revive group's offset in its retry queue records that it was
    taken over; a broker has none there."""
    queue = copy.topic, copy.queue_id
    (done,) = store.committed_offsets(REVIVE_GROUP, [queue])
    if done is not None and copy.queue_offset < done:
        return 0
    mark = Committed(REVIVE_GROUP, *queue, copy.queue_offset + 1)
    return _take(store, group, [], [_letter(group, origin, copy)], mark)


def _letter(group: str, origin: str, copy: StoredMessage) -> Message:
    more = {"DLQ_ORIGIN_TOPIC": origin} if origin else {}
    return acceptable(again(copy, DEAD_LETTERS + group, ("RETRY_TOPIC",), more), more)


def _take_retried(
    store: MessageStore, log: OpenLog, group: str, topic: str, retry_topic: str, queue_id: int
) -> int:
    mark = Committed(TAKEN_GROUP, retry_topic, queue_id, 0)
    (done,) = (
        store.committed_offsets(TAKEN_GROUP, [(retry_topic, queue_id)])
        if store.has_group(TAKEN_GROUP)
        else [0]
    )
    count = 0
    found: list[_Undone] = []
    letters: list[Message] = []
    for was in log.read(retry_topic, queue_id, done or 0):
        origin = topic or was.properties.get("RETRY_TOPIC", "")
        original = _original(store, origin, was)
        if original is None:
            letters.append(_letter(group, origin, was))
        else:
            found.append(original)
        mark = mark._replace(offset=was.queue_offset + 1)
        if len(found) + len(letters) >= _TOGETHER:
            count += _take(store, group, found, letters, mark)
            found, letters = [], []
    if found or letters:
        count += _take(store, group, found, letters, mark)
    return count


def _original(store: MessageStore, topic: str, was: StoredMessage) -> _Undone | None:
    """The original of this copy; None if it left the log."""
    key = was.properties.get(UNIQ_KEY, "")
    if not key or not topic:
        return None
    try:
        records = store.query(topic, key, limit=1).records
    except (UnknownTopicError, CorruptHitError):
        return None
    for record in records:
        original = unpack_record(record, verify=False)
        return _Undone(topic, original.queue_id, original.queue_offset, max(1, was.reconsume_times))
    return None


def _take(
    store: MessageStore,
    group: str,
    found: list[_Undone],
    letters: list[Message],
    mark: Committed | None,
) -> int:
    entries: list[Entry] = []
    by_queue = defaultdict[tuple[str, int], dict[int, list[int]]](lambda: defaultdict(list))
    for each in found:
        by_queue[each.topic, each.queue_id][each.deliveries].append(each.offset)
    count = 0
    settings = store.tables.shared_group(group)
    assert settings is not None, "it is shared"
    for (topic, queue_id), by_deliveries in by_queue.items():
        if store.tables.topic(topic) is None:
            continue
        (window,) = store.tables.windows(group, topic, [queue_id])
        if settings.in_order:
            # A group in order continues at the first of them.
            continue
        for deliveries, offsets in by_deliveries.items():
            # The group receives everything from its next offset on anyway.
            wanted = sorted({each for each in offsets if each < window.next_offset})
            count += len(wanted)
            for first, mask in runs_of(wanted):
                lease = Lease(first, mask, deliveries, NOBODY, 0, 0)
                entries.append(Leased(group, topic, queue_id, lease, Held.GIVEN_BACK))
    if entries or mark is not None:
        store.inherited.take_undone(entries, letters, mark)
    return count + len(letters)
