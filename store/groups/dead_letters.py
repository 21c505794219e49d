"""Dead letters: a message that has used up its group's deliveries moves to a topic of its own,
`%DLQ%` and the group's name, as in RocketMQ.

The record that ends its delivery and the dead letter's record are one append: the log has both or
neither. The same holds when a dead letter is redriven, and when it is moved to be kept. This module
defines how dead letters look as messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from store.format import (
    MAX_LIGHT_QUEUES,
    check_may_write,
    message_id,
    pack_host,
    prepare_all,
    unpack_record,
)
from store.held import acceptable, again, number_of
from store.light_queue import is_light
from store.state import DEAD_LETTERS

if TYPE_CHECKING:
    from store.log import StoreTimes
    from store.message import Message
    from store.state import Lease

#: Where it came from, by the names that RocketMQ gives.
ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
#: And by ours: what the names above leave out.
ORIGIN_QUEUE = "DLQ_ORIGIN_QUEUE"
ORIGIN_OFFSET = "DLQ_ORIGIN_OFFSET"
#: Of a dead letter that was moved: where it was first, and since when it is one, ms.
LETTER_OFFSET = "DLQ_LETTER_OFFSET"
LETTER_TIME = "DLQ_LETTER_TIME"
_LETTER_PROPERTIES = frozenset(
    (ORIGIN_TOPIC, ORIGIN_MESSAGE_ID, ORIGIN_QUEUE, ORIGIN_OFFSET, LETTER_OFFSET, LETTER_TIME)
)
#: A message stands in light queues beside a queue of a topic. What goes to a light queue again goes
#: to no topic again: it stands in one that nobody else reads.
CARRIER = "%REDRIVEN%"
_UNIQ_KEY = "UNIQ_KEY"
_MOST_BODY_BYTES = (1 << 31) - 1


class DeadLetter(NamedTuple):
    """A message that used up the deliveries that its group allows."""

    offset: int  # its name in its group; it keeps it when it is moved
    place: int  # queue offset at which it is now, in queue 0 of its topic
    topic: str  # or light queue it came from; "": that is not known
    queue_id: int  # there
    queue_offset: int  # there; -1: not known
    message_id: str  # of the message it was; "": not known
    deliveries: int
    time_ms: int  # since when it is one, ms since 1970
    record: bytes  # whole, as in the log


def topic_of(group: str) -> str:
    return DEAD_LETTERS + group


def letter_of(place: int, record: bytes, times: StoreTimes) -> DeadLetter:
    """Decode a record of a dead-letter topic. Records of other programs have fewer fields."""
    was = unpack_record(record, verify=False)
    properties = was.properties
    stored_ms = times.of(was.physical_offset, was.store_time_ms)
    return DeadLetter(
        number_of(properties, LETTER_OFFSET, place),
        place,
        # Brokers name it so where a consumer sent the message back.
        properties.get(ORIGIN_TOPIC) or properties.get("RETRY_TOPIC", ""),
        number_of(properties, ORIGIN_QUEUE, 0),
        number_of(properties, ORIGIN_OFFSET, -1),
        properties.get(ORIGIN_MESSAGE_ID) or properties.get("ORIGIN_MESSAGE_ID", ""),
        was.reconsume_times,
        min(number_of(properties, LETTER_TIME, stored_ms), stored_ms),
        record,
    )


def dead_letter(
    group: str, record: bytes, topic: str, queue_id: int, offset: int, lease: Lease
) -> Message:
    """The dead letter for a message. It has the body, tag, keys and properties of the original."""
    was = unpack_record(record, verify=False)
    origin = {
        ORIGIN_TOPIC: topic,
        ORIGIN_MESSAGE_ID: was.properties.get(_UNIQ_KEY)
        or message_id(pack_host(was.store_host), was.physical_offset),
        ORIGIN_QUEUE: str(queue_id),
        ORIGIN_OFFSET: str(offset),
    }
    message = again(was, topic_of(group), _LETTER_PROPERTIES, origin)._replace(
        reconsume_times=lease.deliveries
    )
    return acceptable(message, origin)


def moved(group: str, letter: DeadLetter) -> Message:
    """A copy of the dead letter, to be appended at a new place."""
    was = unpack_record(letter.record, verify=False)
    named = {LETTER_OFFSET: str(letter.offset), LETTER_TIME: str(letter.time_ms)}
    of_letters = {
        name: value for name, value in was.properties.items() if name in _LETTER_PROPERTIES
    } | named
    message = again(was, topic_of(group), _LETTER_PROPERTIES, of_letters)
    return acceptable(message, of_letters)


def redriven(letter: DeadLetter, queue_count: int) -> Message:
    """The original message, addressed to where it came from. `queue_count`: queues of that topic
    now. Raises InvalidArgumentError if it cannot be put."""
    was = unpack_record(letter.record, verify=False)
    message = again(was, letter.topic, _LETTER_PROPERTIES, {})._replace(reconsume_times=0)
    if is_light(letter.topic):
        message = message._replace(topic=CARRIER, light_queues=(letter.topic,))
    else:
        check_may_write(letter.topic)
        message = message._replace(queue_id=letter.queue_id % queue_count)
    prepare_all([message], _MOST_BODY_BYTES, MAX_LIGHT_QUEUES)
    return message
