"""Limits on what a producer gives, checked before anything is written.

| what            | limit                                                                       |
|-----------------|-----------------------------------------------------------------------------|
| topic           | 1 to 127 bytes; 255 when it begins with %RETRY% or %DLQ%                     |
| light queue     | begins with %LMQ%, then 1 or more characters; 255 bytes in all               |
| names           | letters, digits, `%`, `|`, `_`, `-`: elsewhere they become file names         |
|                 | of light queues also `$`: RocketMQ's lite topics are %LMQ%$parent$lite       |
| group           | 1 to 120 characters of the alphabet of topics                               |
| body            | StoreConfig.max_body_bytes                                                  |
| properties      | 32,767 bytes, with keys, tag, light queues and the CRC item                 |
| keys            | 4,096 of one message: each is a row of the key index                        |
| light queues    | StoreConfig.max_light_queues in one message                                 |

Counts and lengths come first: nothing is copied, hashed or searched before it is known to be short.

Source of the first rows: RocketMQ 5, TopicValidator, Validators and LiteUtil.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple, overload

from store.errors import InvalidArgumentError
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
)
from store.format.record import CRC_ITEM_BYTES, TRANSACTION_MASK, java_hash
from store.light_queue import LMQ_PREFIX, is_light
from store.message import FEW, PlainMessages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from store.light_columns import LightNames
    from store.message import Message

#: Of one message.
MAX_KEYS = 4096
# Each takes at least a character for its name, one for its value, and two separators.
_MAX_PROPERTIES = MAX_PROPERTIES_BYTES // 4
LONGEST_NAME = 255

_ALPHABET = re.compile(r"[%|a-zA-Z0-9_-]+")
_LIGHT_ALPHABET = re.compile(r"[$%|a-zA-Z0-9_-]+")
# Of a list of names: these characters, and the comma between two.
_LIGHT_LIST = bytes(code for code in range(128) if _LIGHT_ALPHABET.fullmatch(chr(code))) + b","
# Every light queue there may be, in one look; and a list of them.
_LIGHT_NAME = r"%LMQ%[$%|a-zA-Z0-9_-]{1,250}+"
_LIGHT_QUEUE = re.compile(_LIGHT_NAME).fullmatch
_LIGHT_QUEUES = re.compile(f"(?:{_LIGHT_NAME},)*+{_LIGHT_NAME}").fullmatch
assert LMQ_PREFIX == "%LMQ%"
# Most topics, in one look: short, and not beginning with %, which is for names with a meaning.
_PLAIN_NAME = r"[|a-zA-Z0-9_-][%|a-zA-Z0-9_-]{0,126}+"
_PLAIN_TOPIC = re.compile(_PLAIN_NAME).fullmatch
_PLAIN_TOPICS = re.compile(f"(?:{_PLAIN_NAME},)*+{_PLAIN_NAME}").fullmatch
_LONG_PREFIXES = ("%RETRY%", "%DLQ%")
_NO_CARRIER_PREFIXES = ("%RETRY%", "rmq_sys_")
_SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

#: Rows of the bounds family use this name for the dispatch point.
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"

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


def check_topic(topic: str, field: str = "topic") -> None:
    """Raises InvalidArgumentError unless `topic` may name a topic."""
    if _PLAIN_TOPIC(topic) and topic != CHECKPOINT_TOPIC:
        return
    check_length(topic, field, LONGEST_NAME)
    if is_light(topic):
        raise InvalidArgumentError(
            field, f"{topic!r} is a light queue: name it in light_queues of another topic's message"
        )
    limit = LONGEST_NAME if topic.startswith(_LONG_PREFIXES) else 127
    _check_name(topic, field, limit)
    if topic == CHECKPOINT_TOPIC:
        raise InvalidArgumentError(field, f"{topic!r} is reserved")


def is_topic_name(name: str) -> bool:
    """Whether `check_topic` lets the name pass."""
    try:
        check_topic(name)
    except InvalidArgumentError:
        return False
    return True


def check_topics(topics: Sequence[str]) -> None:
    """`check_topic` of each. Names that are plain are seen in one look."""
    if max(map(len, topics)) <= LONGEST_NAME and CHECKPOINT_TOPIC not in topics:
        text = ",".join(topics)
        # A comma within a name would pass for one between two.
        if _PLAIN_TOPICS(text) and text.count(",") == len(topics) - 1:
            return
    for topic in topics:
        check_topic(topic)


def check_light_queue(name: str, field: str) -> None:
    """Raises InvalidArgumentError unless `name` may name a light queue."""
    if _LIGHT_QUEUE(name):
        return
    check_length(name, field, LONGEST_NAME)
    if not is_light(name) or len(name) == len(LMQ_PREFIX):
        raise InvalidArgumentError(field, f"{name!r} does not begin with {LMQ_PREFIX} and a name")
    if not _LIGHT_ALPHABET.fullmatch(name):
        raise InvalidArgumentError(field, f"{name!r} has characters other than $%|a-zA-Z0-9_-")


def _check_light_queues(names: Sequence[str], field: str) -> None:
    """`check_light_queue` of each. Names that are right, and fit a record, are seen in one look."""
    if sum(map(len, names)) <= MAX_PROPERTIES_BYTES:
        text = ",".join(names)
        # A comma within a name would pass for one between two.
        if _LIGHT_QUEUES(text) and text.count(",") == len(names) - 1:
            return
    for name in names:
        check_light_queue(name, field)


def check_group(group: str, field: str = "group") -> None:
    """Raises InvalidArgumentError unless `group` may name a consumer group."""
    _check_name(group, field, 120)


def check_queue_count(count: int, limit: int, field: str = "queue_count") -> None:
    """Raises InvalidArgumentError unless 1 <= count <= limit."""
    if not 1 <= count <= limit:
        raise InvalidArgumentError(field, f"{count} is not from 1 to {limit}")


def _check_name(name: str, field: str, limit: int) -> None:
    if not name:
        raise InvalidArgumentError(field, "is empty")
    check_length(name, field, limit)
    if not _ALPHABET.fullmatch(name):
        raise InvalidArgumentError(field, f"{name!r} has characters other than %|a-zA-Z0-9_-")


def check_length(text: str, field: str, limit: int) -> None:
    """Raises InvalidArgumentError. Characters: before bytes are counted, that takes time."""
    if len(text) > limit:
        raise InvalidArgumentError(field, f"{len(text)} characters, more than {limit}")


class Prepared(NamedTuple):
    """What can be made of a message before its place in the log is known."""

    properties: bytes  # without light queues and CRC item
    keys: tuple[str, ...]  # for the key index
    tag_code: int
    light_queues: tuple[str, ...]  # each once


#: A message without tag, keys, light queues and properties.
PLAIN = Prepared(b"", (), 0, ())


class PlainBatch(Sequence[Prepared]):
    """What `prepare` makes of each of these messages, which are checked, and by columns."""

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
    messages: Sequence[Message], max_body_bytes: int, max_light_queues: int
) -> Sequence[Prepared]:
    """`prepare` of each. Raises as it does; what most batches are is seen in one look."""
    if len(messages) >= FEW:
        plain = messages if isinstance(messages, PlainMessages) else _plain_messages(messages)
        if plain is not None and _are_right(plain, max_body_bytes):
            if not plain.light_queues:
                return PlainBatch(plain, None)
            light = _right_light_queues(plain, max_light_queues)
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
            add(prepare(message, len(prepared), max_body_bytes, max_light_queues))
    return prepared


def _plain_messages(messages: Sequence[Message]) -> PlainMessages | None:
    """The same by columns, if that is all there is in them."""
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
    """Whether `prepare` would find nothing wrong with any of them."""
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
    """How many names each has, with commas between them."""
    return [text.count(",") + 1 if text else 0 for text in texts]


def _right_light_queues(messages: PlainMessages, most: int) -> LightNames | None:
    """Their light queues, unless `prepare` would find something wrong with one, or leave one out,
    or they are of no use as columns."""
    # Only here: a front, which loads this room, does without numpy.
    from store.light_columns import LightNames

    texts = messages.light_queues
    text = ",".join(filter(None, texts))
    counts = _name_counts(texts)
    if (
        max(counts) > most
        or not text.isascii()
        or text.encode().translate(None, _LIGHT_LIST)
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


def prepare(message: Message, index: int, max_body_bytes: int, max_light_queues: int) -> Prepared:
    """Check every field of the message; `index` is its place in the call, for error fields.

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
        prepared = _prepare_full(message, index, max_light_queues)
    else:
        try:
            prepared = _prepare_tag_and_keys(message.tag, message.keys)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"messages[{index}].{error.field}", error.reason) from None
    if len(prepared[0]) > _MAX_PREPARED_BYTES:
        raise InvalidArgumentError(
            f"messages[{index}].properties",
            f"tag, keys and properties take {len(prepared[0]) + CRC_ITEM_BYTES} bytes with the "
            f"CRC item, more than {MAX_PROPERTIES_BYTES}",
        )
    return prepared


def _tag_code(tag: str) -> int:
    check_length(tag, "tag", MAX_PROPERTIES_BYTES)
    if NAME_END in tag or ITEM_END in tag or "||" in tag or tag != tag.strip() or tag == "*":
        raise InvalidArgumentError(
            "tag", f"{tag!r} is '*', or has '||', a control separator or outer blanks in it"
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


def _prepare_full(message: Message, index: int, max_light_queues: int) -> Prepared:
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
        _check_light_queues(names, f"{where}.light_queues")
    keys = own.keys
    if UNIQ_KEY in properties:
        keys = index_keys({UNIQ_KEY: properties[UNIQ_KEY], KEYS: " ".join(own.keys)})
    return Prepared(
        encode_properties(properties).encode() + own.properties, keys, own.tag_code, names
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
            f"{where}.light_queues", "an open or rolled back transaction stands in no queue"
        )


def _check_properties(properties: Mapping[str, str], where: str) -> None:
    field = f"{where}.properties"
    if len(properties) > _MAX_PROPERTIES:
        raise InvalidArgumentError(field, f"{len(properties)}, more than {_MAX_PROPERTIES}")
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidArgumentError(field, f"{name!r}: names and values are text")
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
    """What is wrong with it, but for lone surrogates; "" when nothing is."""
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
            f"messages[{index}].sys_flag", f"{message.sys_flag:#x} has bits only the store sets"
        )


def _check_number(value: int, allowed: range, index: int, field: str) -> None:
    if type(value) is not int or value not in allowed:
        raise InvalidArgumentError(
            f"messages[{index}].{field}",
            f"{value!r} is outside {allowed.start}..{allowed.stop - 1}",
        )
