"""The property string of a record: `name 01 value 02`, repeated.

Every item ends with 02, the last one too; older RocketMQ releases leave the final one out, so a
reader takes both. Source: RocketMQ 5, MessageDecoder.messageProperties2String and its inverse.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from store.light_queue import is_light

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME_END = "\x01"
ITEM_END = "\x02"
_ITEM_END_BYTE = ITEM_END.encode()

TAGS = "TAGS"
KEYS = "KEYS"
UNIQ_KEY = "UNIQ_KEY"
DELAY = "DELAY"
#: The ordering key of a message, as RocketMQ's producers store it.
SHARDING_KEY = "__SHARDINGKEY"
LMQ_NAMES = "INNER_MULTI_DISPATCH"
LMQ_OFFSETS = "INNER_MULTI_QUEUE_OFFSET"
CRC_ITEM = "__CRC32#"
#: In the first record of a numbered batch; see batch_mark.py.
BATCH = "KVCQ_BATCH"

#: Longest property string a record can carry: its length is a signed 16-bit number.
MAX_PROPERTIES_BYTES = 32767
#: Before them in a record: their size in bytes.
PROPERTIES_LENGTH = struct.Struct(">h")

#: Number of digits reserved for a message's offset in each of its light queues. Whether a message
#: fits into a record must not depend on the offsets that the queues have reached.
_OFFSET_DIGITS = 10

_MAX_OFFSET = (1 << 63) - 1
_MAX_OFFSET_DIGITS = len(str(_MAX_OFFSET))


def encode_properties(properties: Mapping[str, str]) -> str:
    """The property string; names and values must not hold the separators (not checked here)."""
    return "".join(
        f"{name}{NAME_END}{value}{ITEM_END}" for name, value in properties.items() if value
    )


def decode_properties(text: str) -> dict[str, str]:
    """Names and values, as RocketMQ reads them.

    Items under 3 characters, without a name, or without a value vanish; a later name overwrites
    an earlier one; a value may hold 01.
    """
    found: dict[str, str] = {}
    for item in text.split(ITEM_END):
        if len(item) < 3:
            continue
        name, separator, value = item.partition(NAME_END)
        if separator and name and value:
            found[name] = value
    return found


def last_value(data: bytes, name: str) -> str:
    """The value that `decode_properties` finds under the name, "" without one.

    Raises UnicodeDecodeError when the value is not UTF-8.
    """
    mark = f"{ITEM_END}{name}{NAME_END}".encode()
    end = len(data)
    while (at := data.rfind(mark, 0, end)) >= 0 or data.startswith(mark[1:]):
        begin = at + len(mark)  # also for the first item, which has no mark before it: at is -1
        stop = data.find(_ITEM_END_BYTE, begin)
        value = data[begin : len(data) if stop < 0 else stop]
        if value:
            return value.decode()
        if at < 0:
            break
        end = at + 1  # the end of the item before may be the beginning of its mark
    return ""


def index_keys(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The keys of a message in the key index: UNIQ_KEY, then each word of KEYS, without repeats.

    The last one is the `mark_key` if a numbered batch begins here.
    """
    unique = properties.get(UNIQ_KEY)
    words = properties.get(KEYS)
    mark = properties.get(BATCH)
    if words is None and mark is None:
        return (unique,) if unique else ()
    keys = [unique] if unique else []
    if words is not None:
        keys.extend(word for word in words.split(" ") if word)
    if mark is not None:
        keys.append(mark_key(":".join(mark.split(":", 2)[:2])))
    return tuple(dict.fromkeys(keys))


def mark_key(name: str) -> str:
    """The key of a batch. It differs from every message's key, because it begins with the byte that
    ends a property."""
    return ITEM_END + name


def is_mark(key: str) -> bool:
    """Whether it is the key of a batch, which belongs to no topic."""
    return key.startswith(ITEM_END)


def light_queues(properties: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """The light queues of a record, with its offset in each; () if the two lists have different
    lengths.

    Only names of light queues count: RocketMQ gives the others no offset. An offset that no unit
    can hold is ignored as well, so that it does not stop the dispatch of the rest.
    """
    names = properties.get(LMQ_NAMES)
    if names is None:
        return ()
    name_list = names.split(",")
    offset_list = properties.get(LMQ_OFFSETS, "").split(",")
    if len(name_list) != len(offset_list):
        return ()
    found: dict[str, int] = {}
    for name, offset in zip(name_list, offset_list, strict=True):
        if (
            is_light(name)
            and offset.isascii()
            and offset.isdigit()
            and len(offset) <= _MAX_OFFSET_DIGITS
            and int(offset) <= _MAX_OFFSET
        ):
            found.setdefault(name, int(offset))
    return tuple(found.items())


def light_item(names: str, offsets: list[int]) -> bytes:
    """The encoded properties for light queues: their comma-separated names, and the message's
    offset in each."""
    places = str(offsets)[1:-1].replace(" ", "")  # takes three quarters of the time of a join
    return f"{LMQ_NAMES}\x01{names}\x02{LMQ_OFFSETS}\x01{places}\x02".encode()


def light_item_bytes(names_length: int, count: int) -> int:
    """The maximum size of `light_item` in bytes, for names of that total length with commas, while
    no queue has had ten billion messages."""
    return _LIGHT_ITEM_BYTES + names_length + count * (_OFFSET_DIGITS + 1)


_LIGHT_ITEM_BYTES = len(light_item("", []))
