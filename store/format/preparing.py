"""Prepares messages before their place in the log is known: checks them, encodes properties,
extracts keys and light queues.

This is the only place that decides what fits into a record. Numbers that grow while a store is used
(offsets in light queues, numbers in the mark of a batch) are counted with their maximum number of
digits, so a message that is accepted today is also accepted later.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple, overload

from store.errors import InvalidArgumentError
from store.format.limits import (
    LIGHT_LIST,
    MAX_KEYS,
    MAX_LIGHT_QUEUES,
    check_length,
    check_light_queues,
)
from store.format.properties import (
    BATCH,
    CRC_ITEM,
    DELAY,
    ITEM_END,
    KEYS,
    LMQ_NAMES,
    LMQ_OFFSETS,
    MAX_PROPERTIES_BYTES,
    NAME_END,
    TAGS,
    UNIQ_KEY,
    encode_properties,
    index_keys,
    light_item_bytes,
)
from store.format.record import CRC_ITEM_BYTES, TRANSACTION_MASK, java_hash
from store.light_queue import LMQ_PREFIX
from store.message import FEW, PlainMessages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from store.format.batch_mark import BatchMark
    from store.light_columns import LightNames
    from store.message import Message

# Each takes at least a character for its name, one for its value, and two separators.
_MAX_PROPERTIES = MAX_PROPERTIES_BYTES // 4
_NO_CARRIER_PREFIXES = ("%RETRY%", "rmq_sys_")
_SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

#: Property names that the store fills in itself, and why a caller may not.
OWN_PROPERTIES = {
    TAGS: "give the tag in its own field",
    KEYS: "give keys in their own field",
    LMQ_NAMES: "give light queues in their own field",
    LMQ_OFFSETS: "the store assigns these",
    CRC_ITEM: "the store computes this",
    BATCH: "the store marks numbered batches with it",
    "INNER_NUM": "inner batches are not taken",
    "INNER_BASE": "inner batches are not taken",
    DELAY: "delayed delivery is not offered",
}
# sys_flag bits a caller may set: compression and its type, multi tags, transaction type.
_CALLER_SYS_FLAGS = 0x0001 | 0x0002 | 0x000C | 0x0700

#: The rest is for the CRC item, whether or not this store writes it.
_MAX_PREPARED_BYTES = MAX_PROPERTIES_BYTES - CRC_ITEM_BYTES

#: Characters of the longest tag that is remembered with its hash.
_CACHED_TAG = 128

_I32 = range(-(1 << 31), 1 << 31)
_I64 = range(-(1 << 63), 1 << 63)
_LAST_I64 = _I64.stop - 1
_BYTES, _INT, _LISTS = {bytes}, {int}, {tuple, list}
_OFFSETS = range(1 << 63)  # below 0 is the place in a batch


class Prepared(NamedTuple):
    """Everything about a message that can be computed before its place in the log is known."""

    properties: bytes  # without light queues and CRC item
    keys: tuple[str, ...]  # for the key index
    tag_code: int
    light_queues: tuple[str, ...]  # each once


#: A message without tag, keys, light queues and properties.
PLAIN = Prepared(b"", (), 0, ())


class PlainBatch(Sequence[Prepared]):
    """The result of `prepare` for several checked messages, in columns."""

    __slots__ = ("light", "messages")

    def __init__(self, messages: PlainMessages, light: LightNames | None) -> None:
        self.messages = messages
        self.light = light

    def __len__(self) -> int:
        return len(self.messages)

    @overload
    def __getitem__(self, at: int) -> Prepared: ...
    @overload
    def __getitem__(self, at: slice) -> list[Prepared]: ...
    def __getitem__(self, at: int | slice) -> Prepared | list[Prepared]:
        if isinstance(at, slice):
            return list(self)[at]
        at = range(len(self))[at]
        names = () if self.light is None else self.light.of(at)
        return PLAIN._replace(light_queues=names) if names else PLAIN


def prepare_all(
    messages: Sequence[Message],
    max_body_bytes: int,
    max_light_queues: int,
    *,
    is_batch: bool = False,
    mark: BatchMark | None = None,
) -> Sequence[Prepared]:
    """`prepare` of each. Raises like it. The common case is checked in one pass.

    `is_batch`: a crash must leave all of them or none, or they are numbered. `mark`: any of them
    may have to carry it.
    """
    room = _MAX_PREPARED_BYTES if mark is None else _MAX_PREPARED_BYTES - mark.most_bytes
    if room < 0:
        raise InvalidArgumentError("producer_id", "is too long for the properties of a message")
    if len(messages) >= FEW:
        plain = messages if isinstance(messages, PlainMessages) else _plain_messages(messages)
        if plain is not None and _are_right(plain, max_body_bytes):
            if not plain.light_queues:
                return PlainBatch(plain, None)
            light = _right_light_queues(plain, max_light_queues, room)
            if light is not None:
                return PlainBatch(plain, light)
    prepared: list[Prepared] = []
    add = prepared.append
    for message in messages:
        (
            _topic,
            body,
            queue_id,
            tag,
            keys,
            light_queues,
            properties,
            flag,
            sys_flag,
            born_time_ms,
            _host,
            reconsume_times,
            transaction_offset,
        ) = message
        if (
            type(body) is bytes
            and len(body) <= max_body_bytes
            and queue_id >= 0
            and type(born_time_ms) is int
            and 0 <= born_time_ms <= _LAST_I64
            and not (tag or keys or light_queues or properties)
            and not (flag or sys_flag or reconsume_times or transaction_offset)
        ):
            add(PLAIN)
        else:
            index = len(prepared)
            if is_batch:
                _check_no_transaction(message, index)
            add(prepare(message, index, max_body_bytes, max_light_queues, room))
    return prepared


def _check_no_transaction(message: Message, index: int) -> None:
    """Reject a transactional message. Its record has no field left for its place in a batch, so
    recovery could not detect a torn one; and a rolled-back message is in no index, so its batch
    could not be found again."""
    for field in ("sys_flag", "prepared_transaction_offset"):
        value = getattr(message, field)
        if value & TRANSACTION_MASK if field == "sys_flag" else value:
            raise InvalidArgumentError(
                f"messages[{index}].{field}",
                f"{value:#x} is of a transaction, which cannot be part of a batch: append the "
                "message alone, or as one of separate puts",
            )


def _plain_messages(messages: Sequence[Message]) -> PlainMessages | None:
    """The messages in columns, if they are all plain."""
    topics, bodies, queue_ids, tags, keys, light_queues, *rest = zip(*messages, strict=True)
    properties, flags, sys_flags, born_times_ms, hosts, again, place = rest
    others = tags, keys, properties, flags, sys_flags, again, place
    if any(map(any, others)) or hosts.count(hosts[0]) != len(hosts):
        return None
    texts: list[str] = []
    if any(light_queues):
        if not _LISTS.issuperset(map(type, light_queues)):
            return None
        try:
            texts = list(map(",".join, light_queues))
        except TypeError:
            return None
        # A comma within a name would pass for one between two.
        if _name_counts(texts) != list(map(len, light_queues)):
            return None
    return PlainMessages(topics, bodies, queue_ids, born_times_ms, hosts[0], texts)


def _are_right(messages: PlainMessages, max_body_bytes: int) -> bool:
    """Whether `prepare` would accept all of them."""
    bodies, born_times_ms = messages.bodies, messages.born_times_ms
    return (
        set(map(type, bodies)) == _BYTES
        and max(map(len, bodies)) <= max_body_bytes
        and min(messages.queue_ids) >= 0
        and (
            not any(born_times_ms)
            or (
                set(map(type, born_times_ms)) == _INT
                and min(born_times_ms) >= 0
                and max(born_times_ms) <= _LAST_I64
            )
        )
    )


def _name_counts(texts: Iterable[str]) -> list[int]:
    """The number of comma-separated names in each text."""
    return [text.count(",") + 1 if text else 0 for text in texts]


def _right_light_queues(messages: PlainMessages, most: int, room: int) -> LightNames | None:
    """Their light queues in columns; None if `prepare` would reject or omit a name, or if columns
    do not pay."""
    # Only here: a front, which loads this room, does without numpy.
    from store.light_columns import LightNames

    texts = messages.light_queues
    text = ",".join(filter(None, texts))
    counts = _name_counts(texts)
    if (
        max(counts) > most
        or not (
            light_item_bytes(len(text), sum(counts)) <= room
            or max(map(light_item_bytes, map(len, texts), counts)) <= room
        )
        or not text.isascii()
        or text.encode().translate(None, LIGHT_LIST)
        or f",{text}".count(f",{LMQ_PREFIX}") != sum(counts)
        or not all(map(_is_carrier, set(compress(messages.topics, texts))))
    ):
        return None
    try:
        names = LightNames(text, counts)
    except ValueError:
        return None
    if names.lengths.min() == len(LMQ_PREFIX) or names.repeat_in_a_message:
        return None
    return names


def prepare(
    message: Message,
    index: int,
    max_body_bytes: int,
    max_light_queues: int,
    room: int = _MAX_PREPARED_BYTES,
) -> Prepared:
    """Check every field of the message; `index` is its place in the call, for error fields.

    `room`: bytes that its properties may take, light queues and their offsets included.

    Raises InvalidArgumentError naming the field, such as `messages[3].body`. The topic's name is
    checked where its existence is: in the commit log.
    """
    body = message.body
    if type(body) is not bytes:
        raise InvalidArgumentError(
            f"messages[{index}].body", f"is {type(body).__name__}, not bytes"
        )
    if len(body) > max_body_bytes:
        raise InvalidArgumentError(
            f"messages[{index}].body", f"{len(body)} bytes, more than {max_body_bytes}"
        )
    if message.queue_id < 0:
        raise InvalidArgumentError(f"messages[{index}].queue_id", f"{message.queue_id} is below 0")
    if message.flag or message.sys_flag or message.reconsume_times or message.born_time_ms:
        _check_numbers(message, index)
    if message.prepared_transaction_offset:
        _check_number(
            message.prepared_transaction_offset, _OFFSETS, index, "prepared_transaction_offset"
        )
    if not (message.tag or message.keys or message.properties or message.light_queues):
        return PLAIN
    if message.properties or message.light_queues:
        prepared = _prepare_full(message, index, max_light_queues, room)
    else:
        try:
            prepared = _prepare_tag_and_keys(message.tag, message.keys)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"messages[{index}].{error.field}", error.reason) from None
    if len(prepared[0]) > room:
        raise InvalidArgumentError(
            f"messages[{index}].properties",
            f"tag, keys and properties take {len(prepared[0]) + MAX_PROPERTIES_BYTES - room} bytes "
            f"with what the store adds, more than {MAX_PROPERTIES_BYTES}",
        )
    return prepared


def _tag_code(tag: str) -> int:
    check_length(tag, "tag", MAX_PROPERTIES_BYTES)
    # "*" is a tag, as in RocketMQ, whose own examples send it; a filter "*" lets all through.
    if NAME_END in tag or ITEM_END in tag or "||" in tag or tag != tag.strip():
        raise InvalidArgumentError(
            "tag", f"{tag!r} has '||', a control separator or outer blanks in it"
        )
    _check_text(tag, "tag")
    return java_hash(tag)


# Producers repeat tags; a tag's Java hash costs microseconds.
_short_tag_code = lru_cache(maxsize=4096)(_tag_code)


def _prepare_tag_and_keys(tag: str, keys: tuple[str, ...]) -> Prepared:
    tag_code = 0
    text = ""
    if tag:
        tag_code = _short_tag_code(tag) if len(tag) <= _CACHED_TAG else _tag_code(tag)
        text = f"TAGS\x01{tag}\x02"
    if keys:
        if len(keys) > MAX_KEYS:
            raise InvalidArgumentError("keys", f"{len(keys)} keys, more than {MAX_KEYS}")
        for key in keys:
            _check_key(key)
        text = f"KEYS\x01{' '.join(keys)}\x02{text}"
        keys = tuple(dict.fromkeys(keys)) if len(keys) > 1 else tuple(keys)
    return Prepared(text.encode(), keys, tag_code, ())


def _check_key(key: str) -> None:
    if len(key) > MAX_PROPERTIES_BYTES:
        raise InvalidArgumentError(
            "keys", f"one of {len(key)} characters, more than {MAX_PROPERTIES_BYTES}"
        )
    if not key or " " in key or NAME_END in key or ITEM_END in key:
        raise InvalidArgumentError("keys", f"{key!r} is empty, or has a blank or a separator in it")
    if not key.isascii():
        _check_text(key, "keys")


def _check_text(text: str, field: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(field, "has a lone surrogate") from None


def _prepare_full(message: Message, index: int, max_light_queues: int, room: int) -> Prepared:
    where = f"messages[{index}]"
    try:
        own = _prepare_tag_and_keys(message.tag, message.keys)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{where}.{error.field}", error.reason) from None
    properties = message.properties or {}
    _check_properties(properties, where)
    names: tuple[str, ...] = ()
    if message.light_queues:
        _check_carrier(message, where)
        # A name given twice would get one offset for two units: each name counts once.
        names = tuple(dict.fromkeys(message.light_queues))
        if len(names) > max_light_queues:
            raise InvalidArgumentError(
                f"{where}.light_queues", f"{len(names)} names, more than {max_light_queues}"
            )
        check_light_queues(names, f"{where}.light_queues")
    prepared = _with_properties(own, properties, names)
    if names:
        _check_names_fit(names, room - len(prepared.properties), where)
    return prepared


def _with_properties(
    own: Prepared, properties: Mapping[str, str], names: tuple[str, ...]
) -> Prepared:
    keys = own.keys
    if UNIQ_KEY in properties:
        keys = index_keys({UNIQ_KEY: properties[UNIQ_KEY], KEYS: " ".join(own.keys)})
    encoded = encode_properties(properties).encode() + own.properties
    return Prepared(encoded, keys, own.tag_code, names)


def prepare_again(message: Message) -> Prepared:
    """Like `prepare`, for a message read from a record: only tag, keys and light queues are
    checked. Its properties may not be larger than in the record.

    Raises InvalidArgumentError for the field that would be rejected.
    """
    if message.light_queues:
        return prepare(message, 0, len(message.body), MAX_LIGHT_QUEUES)
    own = _prepare_tag_and_keys(message.tag, message.keys)
    return _with_properties(own, message.properties or {}, ())


def _check_names_fit(names: Sequence[str], room: int, where: str) -> None:
    """Raises InvalidArgumentError unless the names fit, whatever the offsets in their queues."""
    letters = sum(map(len, names))
    needed = light_item_bytes(letters + len(names) - 1, len(names))
    if needed <= room:
        return
    each = -(-letters // len(names))
    fitting = len(names)
    while fitting and light_item_bytes(fitting * each + fitting - 1, fitting) > room:
        fitting -= 1
    raise InvalidArgumentError(
        f"{where}.light_queues",
        f"{len(names)} names take {needed} bytes with an offset for each, and this message has "
        f"{max(0, room)} left for them: {fitting} names of {each} characters fit",
    )


def _is_carrier(topic: str) -> bool:
    return not topic.startswith(_NO_CARRIER_PREFIXES) and topic != _SCHEDULE_TOPIC


def _check_carrier(message: Message, where: str) -> None:
    if not _is_carrier(message.topic):
        raise InvalidArgumentError(
            f"{where}.light_queues", f"topic {message.topic!r} cannot carry light queues"
        )
    if message.sys_flag & TRANSACTION_MASK not in (0, 0x8):
        raise InvalidArgumentError(
            f"{where}.light_queues", "an open or rolled-back transaction is in no queue"
        )


def _check_properties(properties: Mapping[str, str], where: str) -> None:
    field = f"{where}.properties"
    if len(properties) > _MAX_PROPERTIES:
        raise InvalidArgumentError(field, f"{len(properties)}, more than {_MAX_PROPERTIES}")
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidArgumentError(field, f"{name!r}: names and values must be text")
        if len(name) + len(value) > MAX_PROPERTIES_BYTES:
            raise InvalidArgumentError(
                field,
                f"one of {len(name) + len(value)} characters, more than {MAX_PROPERTIES_BYTES}",
            )
        reason = _fault_of_property(name, value)
        if reason:
            raise InvalidArgumentError(f"{field}[{name!r}]", reason)
        if not (name.isascii() and value.isascii()):
            _check_text(name + value, f"{field}[{name!r}]")


def _fault_of_property(name: str, value: str) -> str:
    """Why the property is invalid, apart from lone surrogates; "" if it is valid."""
    if not name or NAME_END in name or ITEM_END in name:
        return "the name is empty or has a separator in it"
    if name in OWN_PROPERTIES:
        return OWN_PROPERTIES[name]
    if not value or ITEM_END in value:
        return "the value is empty or has a separator in it"
    return ""


def _check_numbers(message: Message, index: int) -> None:
    _check_number(message.flag, _I32, index, "flag")
    _check_number(message.reconsume_times, _I32, index, "reconsume_times")
    _check_number(message.born_time_ms, _I64, index, "born_time_ms")
    if message.sys_flag & ~_CALLER_SYS_FLAGS:
        raise InvalidArgumentError(
            f"messages[{index}].sys_flag",
            f"{message.sys_flag:#x} has bits that only the store may set",
        )


def _check_number(value: int, allowed: range, index: int, field: str) -> None:
    if type(value) is not int or value not in allowed:
        raise InvalidArgumentError(
            f"messages[{index}].{field}",
            f"{value!r} is outside {allowed.start}..{allowed.stop - 1}",
        )
