"""A message whose light queues do not fit into one record, as several messages.

The properties of a record have at most 32,767 bytes. Each light queue takes its name and 12 bytes
of that (a comma, and room for its offset); what the message has of its own takes the rest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcq_client.values import Message

#: Light queues of one message, at most, as long as the server's `store.max_light_queues` is not set
#: to less.
_MOST_NAMES = 4096
_PROPERTIES_BYTES = 32_767
_CRC_ITEM_BYTES = 20
#: Names of the properties with names and offsets of light queues, and two separators each; no comma
#: is behind the last name.
_LIGHT_BYTES = len("INNER_MULTI_DISPATCH") + len("INNER_MULTI_QUEUE_OFFSET") + 4 - 1
_A_NAME_BYTES = 12


def divided(message: Message) -> Iterator[Message]:
    """The message, once for as many of its light queues as fit a record; each name once."""
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
    """What tag, keys, ordering key and properties take, at most."""
    properties = {
        **(message.properties or {}),
        "TAGS": message.tag,
        "KEYS": " ".join(message.keys),
        "__SHARDINGKEY": message.ordering_key,
    }
    return sum(
        len(name.encode()) + len(value.encode()) + 2 for name, value in properties.items() if value
    )
