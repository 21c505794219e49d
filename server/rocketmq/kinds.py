"""Kinds of messages: which one a message is of, and which a topic takes.

As RocketMQ's proxy does, a message is told by what it carries and not by the type that it claims:
one with a time and a message group is one for a time. A kind that is not served is refused: stored
as an ordinary message it would be delivered at once, or when it was to be taken back.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from server.errors import ClientStatusError
from server.rocketmq.pb import values_pb2 as v2
from store.metadata import MessageType


class Kind(NamedTuple):
    """One of the types of messages."""

    type: v2.MessageType
    name: str  # as its sender is told
    field: Literal["", "delivery_timestamp", "message_group", "priority", "lite_topic"]
    is_served: bool

    def fits(self, system: v2.SystemProperties) -> bool:
        if self.field and system.HasField(self.field):
            return True
        return self.type == system.message_type and self.type != v2.FIFO


#: The first that fits is a message's. One that says FIFO and has no group is an ordinary one.
KINDS = (
    Kind(v2.TRANSACTION, "a transaction", "", is_served=True),
    Kind(v2.DELAY, "delivery at a time", "delivery_timestamp", is_served=True),
    Kind(v2.FIFO, "a message group", "message_group", is_served=True),
    Kind(v2.PRIORITY, "a priority", "priority", is_served=True),
    Kind(v2.LITE, "a lite topic", "lite_topic", is_served=False),
)
_NORMAL = Kind(v2.NORMAL, "nothing of these", "", is_served=True)
#: What a topic takes that is for any type. Only one that is for priorities delivers by them.
_SERVED = sorted(
    kind.type for kind in (_NORMAL, *KINDS) if kind.is_served and kind.type != v2.PRIORITY
)
_TYPES = {kind.type: MessageType[v2.MessageType.Name(kind.type)] for kind in (_NORMAL, *KINDS)}


def accepted(topic_type: MessageType) -> list[v2.MessageType]:
    """What a route says that a topic takes: clients refuse the other types by themselves."""
    if topic_type == MessageType.ANY:
        return _SERVED
    return [each for each, of_topic in _TYPES.items() if of_topic == topic_type]


def kind_of(system: v2.SystemProperties) -> Kind:
    """Of a message with these properties."""
    return next((kind for kind in KINDS if kind.fits(system)), _NORMAL)


def check_kind(system: v2.SystemProperties, topic_type: MessageType) -> None:
    """Raises ClientStatusError when the message is not of a kind for a topic of that type."""
    kind = kind_of(system)
    its_type = _TYPES[kind.type]
    if topic_type == MessageType.ANY and its_type == MessageType.PRIORITY:
        raise ClientStatusError(
            v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            "only a topic of type priority delivers by priority; nothing was stored. Have this one "
            "changed: kvcq topic update TOPIC --type priority",
        )
    if topic_type not in (MessageType.ANY, its_type):
        raise ClientStatusError(
            v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"the topic is for messages of type {topic_type.name}, and this one is of type "
            f"{its_type.name}; nothing was stored. Send it to another topic, or have this one "
            f"changed: kvcq topic update TOPIC --type {its_type.name.lower()}",
        )
    if not kind.is_served:
        raise ClientStatusError(
            v2.UNSUPPORTED,
            f"this server does not take messages with {kind.name}; nothing was stored",
        )
