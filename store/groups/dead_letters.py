"""The content of dead letters.

A message that has used up its group's deliveries moves to the topic `%DLQ%` plus the group's name,
as in RocketMQ. The record that ends the delivery and the dead letter's record are one append, so
the log has both or neither. The same holds when a dead letter is redriven or moved.
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

#: Properties of a dead letter that name the original message. The first two are RocketMQ's.
ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
ORIGIN_QUEUE = "DLQ_ORIGIN_QUEUE"
ORIGIN_OFFSET = "DLQ_ORIGIN_OFFSET"
#: Properties of a moved dead letter: its first offset, and the time it became one, ms since 1970.
LETTER_OFFSET = "DLQ_LETTER_OFFSET"
LETTER_TIME = "DLQ_LETTER_TIME"
_LETTER_PROPERTIES = frozenset(
    (ORIGIN_TOPIC, ORIGIN_MESSAGE_ID, ORIGIN_QUEUE, ORIGIN_OFFSET, LETTER_OFFSET, LETTER_TIME)
)
#: The topic of messages redriven to a light queue. A message in a light queue also needs a topic,
#: and must not appear in its original topic a second time.
CARRIER = "%REDRIVEN%"
_UNIQ_KEY = "UNIQ_KEY"
_MOST_BODY_BYTES = (1 << 31) - 1


class DeadLetter(NamedTuple):
    """A message that used up the deliveries that its group allows."""

    offset: int  # identifies it in its group; unchanged when it is moved
    place: int  # current queue offset, in queue 0 of the dead-letter topic
    topic: str  # topic or light queue of the original message; "": unknown
    queue_id: int  # of the original message
    queue_offset: int  # of the original message; -1: unknown
    message_id: str  # of the original message; "": unknown
    deliveries: int
    time_ms: int  # when it became a dead letter, ms since 1970
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
        # Brokers use this name for messages that a consumer sent back.
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
    """The original message, addressed to its original topic or light queue. `queue_count`: current
    number of queues there. Raises InvalidArgumentError if the message cannot be put."""
    was = unpack_record(letter.record, verify=False)
    message = again(was, letter.topic, _LETTER_PROPERTIES, {})._replace(reconsume_times=0)
    if is_light(letter.topic):
        message = message._replace(topic=CARRIER, light_queues=(letter.topic,))
    else:
        check_may_write(letter.topic)
        message = message._replace(queue_id=letter.queue_id % queue_count)
    prepare_all([message], _MOST_BODY_BYTES, MAX_LIGHT_QUEUES)
    return message
