"""Attributes of a broker's topics and groups, which say what messages a topic takes and from which
lite topics a group receives.

| of     | attribute             | value                                                       |
|--------|-----------------------|-------------------------------------------------------------|
| topics | message.type          | NORMAL, FIFO, DELAY, TRANSACTION, LITE, PRIORITY            |
|        | lite.topic.expiration | minutes after which an idle lite topic is deleted; -1 never |
| groups | lite.bind.topic       | the parent of the lite topics that the group receives from  |
|        | lite.sub.model        | Shared, Exclusive                                           |
|        | lite.sub.client.quota | most lite topics of a client; -1: no limit                  |
|        | lite.sub.wildcard     | any value: its clients share all lite topics of the parent  |

Source: RocketMQ 5.5, TopicAttributes, SubscriptionGroupAttributes, LiteMetadataUtil.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from store.groups import MOST_LITE_QUOTA
from store.lite import LEAST_EXPIRY_MS, MOST_EXPIRY_MS
from store.metadata import LiteGroup, MessageType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store.metadata import TopicConfig

_TYPE = "message.type"
_EXPIRY = "lite.topic.expiration"
_PARENT = "lite.bind.topic"
_MODEL = "lite.sub.model"
_QUOTA = "lite.sub.client.quota"
_WILDCARD = "lite.sub.wildcard"
_EXCLUSIVE = "Exclusive"
_MINUTE_MS = 60_000
#: Attributes of groups that `group_attributes` decides.
GROUP_ATTRIBUTES = frozenset((_PARENT, _MODEL, _QUOTA, _WILDCARD))


def topic_attributes(topic: TopicConfig, lite_expiry_ms: int | None) -> dict[str, str]:
    """The attributes of a topic for a broker; none for a topic of all types."""
    message_type = topic.message_type
    if lite_expiry_ms is not None and message_type is MessageType.ANY:
        message_type = MessageType.LITE
    if message_type is MessageType.ANY:
        return {}
    told = {_TYPE: message_type.name}
    if message_type is MessageType.LITE:
        told[_EXPIRY] = str(-(-lite_expiry_ms // _MINUTE_MS) if lite_expiry_ms else -1)
    return told


def group_attributes(lite: LiteGroup) -> dict[str, str]:
    """The attributes of a group of lite topics for a broker."""
    told = {_PARENT: lite.parent, _QUOTA: str(lite.client_quota)}
    if lite.is_exclusive:
        told[_MODEL] = _EXCLUSIVE
    if lite.is_wildcard:
        told[_WILDCARD] = "true"
    return told


def lite_expiry_of(row: Mapping[str, Any]) -> int | None:
    """How long a lite topic of this topic may be idle, ms, 0 for ever; None if it has no lite
    topics."""
    told = row.get("attributes") or {}
    if told.get(_TYPE) != MessageType.LITE.name:
        return None
    minutes = _number(told, _EXPIRY)
    if minutes is None or minutes < 1:
        return 0
    return min(max(minutes * _MINUTE_MS, LEAST_EXPIRY_MS), MOST_EXPIRY_MS)


def lite_group_of(row: Mapping[str, Any]) -> LiteGroup | None:
    """From which lite topics the group receives; None if from none."""
    told = row.get("attributes") or {}
    parent = told.get(_PARENT)
    if not parent:
        return None
    quota = _number(told, _QUOTA)
    if quota is None:
        quota = LiteGroup(parent).client_quota
    is_wildcard = _WILDCARD in told
    return LiteGroup(
        parent,
        min(quota, MOST_LITE_QUOTA) if quota > 0 else MOST_LITE_QUOTA,
        is_exclusive=not is_wildcard and told.get(_MODEL) == _EXCLUSIVE,
        is_wildcard=is_wildcard,
    )


def _number(told: Mapping[str, Any], name: str) -> int | None:
    """None if it is missing or no number."""
    try:
        return int(told.get(name, ""))
    except (TypeError, ValueError):
        return None
