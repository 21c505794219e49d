"""Dead letters: a message that was delivered as often as its group allows moves to a topic of its
own, %DLQ% and the group, as RocketMQ names it.

The record that ends its delivery and the one of the dead letter are one append: both are in the
log, or neither is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.errors import InvalidArgumentError
from store.format import (
    MAX_LIGHT_QUEUES,
    OWN_PROPERTIES,
    prepare_all,
    unpack_record,
)
from store.message import Message

if TYPE_CHECKING:
    from store.state import Lease

PREFIX = "%DLQ%"

#: Where it came from, by the names that RocketMQ gives.
ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
#: And by ours: what the names above leave out.
ORIGIN_QUEUE = "DLQ_ORIGIN_QUEUE"
ORIGIN_OFFSET = "DLQ_ORIGIN_OFFSET"
_UNIQ_KEY = "UNIQ_KEY"
#: Of sys_flag, compression and its type, and several tags: the body is as it was.
_KEPT_FLAGS = 0x0001 | 0x0002 | 0x0700
_MOST_BODY_BYTES = (1 << 31) - 1


def topic_of(group: str) -> str:
    return PREFIX + group


def dead_letter(
    group: str, record: bytes, topic: str, queue_id: int, offset: int, lease: Lease
) -> Message:
    """The message that tells of this one. Body, tag, keys and properties are its own."""
    was = unpack_record(record, verify=False)
    origin = {
        ORIGIN_TOPIC: topic,
        ORIGIN_MESSAGE_ID: was.properties.get(_UNIQ_KEY) or str(was.physical_offset),
        ORIGIN_QUEUE: str(queue_id),
        ORIGIN_OFFSET: str(offset),
    }
    kept = {
        name: value
        for name, value in was.properties.items()
        if name and value and name not in OWN_PROPERTIES
    }
    message = Message(
        topic_of(group),
        was.body,
        tag=was.tag,
        keys=was.keys,
        properties=kept | origin,
        flag=was.flag,
        sys_flag=was.sys_flag & _KEPT_FLAGS,
        born_time_ms=max(0, was.born_time_ms),
        born_host=was.born_host,
        reconsume_times=lease.deliveries,
    )
    try:
        prepare_all([message], _MOST_BODY_BYTES, MAX_LIGHT_QUEUES)
    except InvalidArgumentError:
        # Its properties leave no room, or another program wrote what we would not take.
        return message._replace(tag="", keys=(), properties=origin, flag=0, sys_flag=0)
    return message
