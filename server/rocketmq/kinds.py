"""The type of a message, and the types that a topic accepts.

As in RocketMQ's proxy, the type follows from a message's fields, not from the type that it claims:
a message with a time and a message group is a delayed message. A topic for any type does not
deliver by priority, and accepts lite topics only if it was created for them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from server.errors import ClientStatusError
from server.rocketmq.pb import values_pb2 as v2
from store.metadata import MessageType


class Kind(NamedTuple):
    """A type of message."""

    type: v2.MessageType
    field: Literal["", "delivery_timestamp", "message_group", "priority", "lite_topic"]


#: In order of precedence. A message that claims FIFO but has no group is a normal message.
KINDS = (
    Kind(v2.TRANSACTION, ""),
    Kind(v2.DELAY, "delivery_timestamp"),
    Kind(v2.FIFO, "message_group"),
    Kind(v2.PRIORITY, "priority"),
    Kind(v2.LITE, "lite_topic"),
)
_NORMAL = Kind(v2.NORMAL, "")
#: Types that a topic for any type accepts.
_ANY = [v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION]
#: Why such a topic rejects the other types.
_NOT_BY_ANY = {
    MessageType.PRIORITY: "only a topic of type priority delivers by priority; nothing was stored. "
    "Have this one changed: kvcq topic update TOPIC --type priority",
    MessageType.LITE: "the topic is not for lite topics; nothing was stored. To make it so: kvcq "
    "lite create TOPIC",
}
_TYPES = {kind.type: MessageType[v2.MessageType.Name(kind.type)] for kind in (_NORMAL, *KINDS)}


def accepted(topic_type: MessageType, *, takes_lite: bool) -> list[v2.MessageType]:
    """The types that a route lists for a topic; clients reject other types themselves.
    `takes_lite`: the topic was created for lite topics."""
    if topic_type == MessageType.ANY:
        return [*_ANY, v2.LITE] if takes_lite else _ANY
    return [each for each, of_topic in _TYPES.items() if of_topic == topic_type]


def kind_of(system: v2.SystemProperties) -> Kind:
    """The type of a message with these properties. Must be fast, since a request has a thousand
    messages."""
    has, given = system.HasField, system.message_type
    for kind in KINDS:
        kind_type, field = kind
        if (field and has(field)) or (kind_type == given and kind_type != v2.FIFO):
            return kind
    return _NORMAL


def check_kind(
    system: v2.SystemProperties, topic_type: MessageType, *, takes_lite: bool = False
) -> Kind:
    """The message's type. Raises ClientStatusError if a topic of `topic_type` rejects it."""
    kind = kind_of(system)
    its_type = _TYPES[kind.type]
    if kind.type != v2.LITE and system.HasField("lite_topic"):
        raise ClientStatusError(
            v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"a message of a lite topic is not of type {its_type.name}; nothing was stored",
        )
    if topic_type == MessageType.ANY and not (kind.type == v2.LITE and takes_lite):
        if why := _NOT_BY_ANY.get(its_type):
            raise ClientStatusError(v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, why)
        return kind
    if topic_type not in (MessageType.ANY, its_type):
        raise ClientStatusError(
            v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"the topic is for messages of type {topic_type.name}, and this one is of type "
            f"{its_type.name}; nothing was stored. Send it to another topic, or have this one "
            f"changed: kvcq topic update TOPIC --type {its_type.name.lower()}",
        )
    return kind
