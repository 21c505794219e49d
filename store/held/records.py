"""The records of held messages, in system topics.

A held message is in no light queue and no other topic; its properties say where it will be put.
Property names are RocketMQ's, so that its tools understand them, except KVCQ_*.

| property           | value                                                               |
|--------------------|---------------------------------------------------------------------|
| REAL_TOPIC         | the topic to deliver to                                             |
| REAL_QID           | the queue there                                                     |
| TIMER_OUT_MS       | when it is due, ms since 1970                                       |
| TIMER_DELIVER_MS   | the requested time; also in the delivered message                   |
| KVCQ_LIGHT_QUEUES  | the light queues to deliver to, separated by commas                 |
| KVCQ_HELD          | its first place, if it was moved                                    |
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from store.errors import InvalidArgumentError
from store.format import (
    BORN_HOST_V6,
    CRC_ITEM_BYTES,
    HEADER_V4,
    ITEM_END,
    KEYS,
    MAGIC_V1,
    MAX_LIGHT_QUEUES,
    MAX_PROPERTIES_BYTES,
    NAME_END,
    OWN_PROPERTIES,
    PLAIN,
    STORE_HOST_V6,
    TAGS,
    TRANSACTION_MASK,
    UNIQ_KEY,
    Prepared,
    prepare_again,
    prepare_all,
    unpack_host,
    unpack_record,
)
from store.message import Message
from store.puts import MOST_BODY_BYTES
from store.state import SPAN, runs_of

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from store.message import StoredMessage
    from store.reads import ReadPath

REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE = "REAL_QID"
TIMER_OUT = "TIMER_OUT_MS"
TIMER_DELIVER = "TIMER_DELIVER_MS"
LIGHT_QUEUES = "KVCQ_LIGHT_QUEUES"
FIRST_PLACE = "KVCQ_HELD"
#: Properties that callers may not set on a held message.
HELD_PROPERTIES = frozenset(
    (REAL_TOPIC, REAL_QUEUE, TIMER_OUT, TIMER_DELIVER, LIGHT_QUEUES, FIRST_PLACE)
)
#: Bits of sys_flag that a held message keeps: compression and its type, and several tags.
_KEPT_FLAGS = 0x0001 | 0x0002 | 0x0700
#: Most bytes of properties of a held message. Moving it and handing it back add less than 128
#: bytes: its first place, an id and the number of checks.
_MOST_PROPERTIES_BYTES = MAX_PROPERTIES_BYTES - CRC_ITEM_BYTES - 128
#: Properties that make rows of the key index, or a tag code.
_INDEXED = frozenset((KEYS, TAGS, UNIQ_KEY))
#: Bytes of records that are read together.
_READ_BYTES = 4 << 20


class Target(NamedTuple):
    """Where a held message will be put."""

    topic: str
    queue_id: int
    light_queues: tuple[str, ...]


def check_may_wait(message: Message, at: int, field: str) -> None:
    """Raises InvalidArgumentError unless the message at position `at` of the call can be held.
    `field`: the argument that requests it. Does not check what `prepare_all` checks."""
    where = f"messages[{at}]"
    for name in message.properties or ():
        if name in HELD_PROPERTIES:
            raise InvalidArgumentError(
                f"{where}.properties", f"{name} is set by the store if {field} is given"
            )
    if message.sys_flag & TRANSACTION_MASK or message.prepared_transaction_offset:
        raise InvalidArgumentError(
            f"{where}.{field}", "cannot be set for a message of a transaction"
        )


def waiting(topic: str, message: Message, more: Mapping[str, str]) -> Message:
    """The record of the held message, for queue 0 of the system topic."""
    properties = {
        **(message.properties or {}),
        REAL_TOPIC: message.topic,
        REAL_QUEUE: str(message.queue_id),
        **more,
    }
    if message.light_queues:
        properties[LIGHT_QUEUES] = ",".join(message.light_queues)
    return message._replace(topic=topic, queue_id=0, light_queues=(), properties=properties)


def prepare_waiting(held: Sequence[Message], most_body_bytes: int) -> Sequence[Prepared]:
    """Like `prepare_all`, for held messages. Leaves room for the properties that are added when
    they are moved or handed back."""
    prepared = prepare_all(held, most_body_bytes, MAX_LIGHT_QUEUES, is_batch=True)
    for at, each in enumerate(prepared):
        if len(each.properties) > _MOST_PROPERTIES_BYTES:
            raise InvalidArgumentError(
                f"messages[{at}].properties",
                f"tag, keys and properties take {len(each.properties)} bytes with what the store "
                f"adds while it waits, more than {_MOST_PROPERTIES_BYTES}",
            )
    return prepared


def target_of(properties: Mapping[str, str]) -> Target:
    """Where the held message will be put. Raises InvalidArgumentError if the properties are
    invalid."""
    topic, queue_id = properties.get(REAL_TOPIC, ""), properties.get(REAL_QUEUE, "")
    if not topic or not _is_number(queue_id):
        raise InvalidArgumentError("properties", f"no {REAL_TOPIC}, or no {REAL_QUEUE}")
    light = properties.get(LIGHT_QUEUES, "")
    return Target(topic, int(queue_id), tuple(light.split(",")) if light else ())


def first_place(was: StoredMessage) -> int:
    """The first place of the held message, which is its name."""
    return number_of(was.properties, FIRST_PLACE, was.queue_offset)


def number_of(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name, "")
    return int(text) if _is_number(text) else default


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


def delivered(was: StoredMessage, kept: tuple[str, ...] = ()) -> Message:
    """The message to deliver. `kept`: HELD_PROPERTIES that it keeps. Raises like `target_of`."""
    target = target_of(was.properties)
    return again(was, target.topic, _held_but(kept), {}, target.queue_id, target.light_queues)


class Ready(NamedTuple):
    """A message and its prepared parts; tag, keys and properties may only be in these."""

    message: Message
    prepared: Prepared


def ready(record: bytes, kept: tuple[str, ...] = ()) -> Ready:
    """Decode the record of a held message, and prepare the message to deliver; see `delivered`.
    Raises InvalidArgumentError, CorruptRecordError."""
    return _ready(record, kept) or _ready_by_fields(record, kept)


def _ready_by_fields(record: bytes, kept: tuple[str, ...]) -> Ready:
    message = delivered(unpack_record(record, verify=False), kept)
    return Ready(message, prepare_again(message))


def _ready(record: bytes, kept: tuple[str, ...]) -> Ready | None:
    """The same in a third of the time, with tag, keys and properties only in the prepared parts.
    None for light queues, for hosts of IPv6, and for what we did not write."""
    fields = HEADER_V4.unpack_from(record)
    _, magic, _, _, flag, _, _, sys_flag, born_ms, born_host, _, _, reconsumed, _, size = fields
    if magic != MAGIC_V1 or sys_flag & (BORN_HOST_V6 | STORE_HOST_V6):
        return None
    body_end = HEADER_V4.size + size
    # Behind the body are the topic, with its length, and the length of the properties.
    try:
        text = str(record[body_end + 1 + record[body_end] + 2 :], "utf-8")
    except UnicodeDecodeError:
        return None
    dropped = _dropped_but(kept)
    held: dict[str, str] = {}
    indexed: dict[str, str] = {}
    items: list[str] = []
    for item in text.split(ITEM_END):
        name, _, value = item.partition(NAME_END)
        if name in dropped:
            held[name] = value
        else:
            items.append(item)
            if name in _INDEXED:
                indexed[name] = value
    topic, queue_id = held.get(REAL_TOPIC), held.get(REAL_QUEUE, "")
    if not topic or not _is_number(queue_id) or LIGHT_QUEUES in held:
        return None
    body = record[HEADER_V4.size : body_end]
    flags = sys_flag & _KEPT_FLAGS
    # By position, as by name it takes twice as long.
    message = Message(
        *(topic, body, int(queue_id), "", (), (), None, flag, flags),
        *(max(0, born_ms), unpack_host(born_host), reconsumed),
    )
    items.append("")  # the last one ends like the others
    properties = ITEM_END.join(items).encode()
    _, keys, tag_code, _ = _prepared(indexed) if indexed else PLAIN
    return Ready(message, Prepared(properties, keys, tag_code, ()))


def _prepared(indexed: Mapping[str, str]) -> Prepared:
    """What follows from these properties. Raises InvalidArgumentError."""
    keys = tuple(filter(None, indexed.get(KEYS, "").split(" ")))
    unique = {UNIQ_KEY: indexed[UNIQ_KEY]} if UNIQ_KEY in indexed else None
    return prepare_again(Message("", b"", 0, indexed.get(TAGS, ""), keys, (), unique))


@cache
def _held_but(kept: tuple[str, ...]) -> frozenset[str]:
    return HELD_PROPERTIES.difference(kept)


@cache
def _dropped_but(kept: tuple[str, ...]) -> frozenset[str]:
    """Also what the store fills in; "" is behind the last one."""
    return _held_but(kept).union(OWN_PROPERTIES, ("",)).difference((KEYS, TAGS))


def moved(was: StoredMessage) -> Message:
    """A copy of the held message, for a new place."""
    return again(was, was.topic, (), {FIRST_PLACE: str(first_place(was))})


def again(
    was: StoredMessage,
    topic: str,
    without: Container[str],
    more: Mapping[str, str],
    queue_id: int = 0,
    light_queues: tuple[str, ...] = (),
) -> Message:
    """A copy with the body, tag, keys and properties, except properties in `without`, plus
    `more`."""
    kept = {
        name: value
        for name, value in was.properties.items()
        if name and value and name not in without and name not in OWN_PROPERTIES
    }
    if more:
        kept |= more
    return Message(
        topic,
        was.body,
        queue_id,
        was.tag,
        was.keys,
        light_queues,
        kept,
        was.flag,
        was.sys_flag & _KEPT_FLAGS,
        max(0, was.born_time_ms),
        was.born_host,
        was.reconsume_times,
    )


def acceptable(message: Message, least: Mapping[str, str]) -> Message:
    """A message made by `again`, in a form that is never rejected: if it would be, without tag and
    keys, and only with the properties `least`. The body and its flags stay."""
    try:
        prepare_all([message], MOST_BODY_BYTES, MAX_LIGHT_QUEUES)
    except InvalidArgumentError:
        # The properties are too long, or another program wrote what this store rejects.
        return message._replace(tag="", keys=(), properties=least)
    return message


def read_places(reads: ReadPath, topic: str, places: Sequence[int]) -> dict[int, bytes]:
    """Records at these places of queue 0 of the topic, without those that are not dispatched or no
    longer kept. Raises UnknownTopicError, CorruptRecordError, DamagedQueueError."""
    found: dict[int, bytes] = {}
    for first, mask in runs_of(sorted(places)):
        for pulled in reads.pulls(topic, first, first + mask.bit_length(), SPAN, _READ_BYTES):
            found.update(
                (place, record)
                for place, record in zip(pulled.queue_offsets, pulled.records, strict=True)
                if mask >> place - first & 1
            )
    return found
