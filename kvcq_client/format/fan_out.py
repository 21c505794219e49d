"""Divides a message whose light queues do not fit into one record.

The properties of a record have at most 32,767 bytes. Each light queue takes its name and 12 bytes
of that (a comma and its offset); the message's own properties take the rest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcq_client.values import Message

#: Most light queues of one message, unless the server's `store.max_light_queues` is lower.
_MOST_NAMES = 4096
_PROPERTIES_BYTES = 32_767
_CRC_ITEM_BYTES = 20
#: The properties with names and offsets of light queues: their names and two separators each, less
#: the comma after the last name.
_LIGHT_BYTES = len("INNER_MULTI_DISPATCH") + len("INNER_MULTI_QUEUE_OFFSET") + 4 - 1
_A_NAME_BYTES = 12


def divided(message: Message) -> Iterator[Message]:
    """Yield copies of the message, each with as many light queues as fit; repeated names once."""
    names = dict.fromkeys(message.light_queues)
    room = _PROPERTIES_BYTES - _CRC_ITEM_BYTES - _LIGHT_BYTES - _own_bytes(message)
    some: list[str] = []
    left = room
    for name in names:
        size = len(name) + _A_NAME_BYTES
        if some and (size > left or len(some) == _MOST_NAMES):
            yield replace(message, light_queues=tuple(some))
            some, left = [], room
        some.append(name)
        left -= size
    yield replace(message, light_queues=tuple(some))


def _own_bytes(message: Message) -> int:
    """Upper bound on the bytes of tag, keys, ordering key and properties."""
    properties = {
        **(message.properties or {}),
        "TAGS": message.tag,
        "KEYS": " ".join(message.keys),
        "__SHARDINGKEY": message.ordering_key,
    }
    return sum(
        len(name.encode()) + len(value.encode()) + 2 for name, value in properties.items() if value
    )
