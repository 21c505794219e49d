"""Messages on their way out: checked when they are sent, and put into a request when they leave.

A batch travels by columns (kvcq.v1.MessageColumns), which both sides handle many times faster
than an object for each message. What columns cannot carry, such as properties, makes the batch
travel message by message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.arguments import INT32_MAX, INT64_MAX, text, whole, wrong_kind
from kvcq_client.format.fields import length_delimited, varint
from kvcq_client.pb.v1 import kvcq_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvcq_client.values import Message

#: Entries of the cache of what was checked before.
_CACHE_LIMIT = 8192
_LONGEST_KEY = 255
#: Where an ordering key is stored, as RocketMQ's producers store it.
SHARDING_KEY = "__SHARDINGKEY"
#: Counted for each message besides its texts and its body.
FRAME_BYTES = 16


#: A message in a batch: topic, body, queue id, tag, keys, light queues, properties, flag, time of
#: birth and ordering key, as Message has them, checked and frozen. A plain tuple: one of texts and
#: numbers is looked at by Python's garbage collector once, and one with names for its fields each
#: time. A producer's buffer holds tens of thousands, and a tenth of a sender's time went into that.
Outgoing = tuple[
    str,
    bytes,
    "int | None",
    str,
    "Sequence[str]",
    "Sequence[str]",
    "Mapping[str, str] | None",
    int,
    "int | None",
    str,
]


def write_to(message: pb.Message, outgoing: Outgoing) -> None:
    """Fill a message of a request, as the service takes it one by one.

    In place, and without the fields that are empty: to build a message with all of them and to
    copy it into its request takes five times as long.
    """
    topic, body, queue_id, tag, keys, light_queues, properties, flag, born_time_ms, key = outgoing
    message.topic = topic
    message.body = body
    if queue_id is not None:
        message.queue_id = queue_id
    if tag:
        message.tag = tag
    if keys:
        message.keys.extend(keys)
    if light_queues:
        message.light_queues.extend(light_queues)
    if properties:
        message.properties.update(properties)
    if flag:
        message.flag = flag
    if born_time_ms is not None:
        message.born_time_ms = born_time_ms
    if key:
        message.ordering_key = key


def outgoing_of(message: Message, field: str = "message") -> Outgoing:
    """Its fields, not checked yet. Raises TypeError on what is no message, or has no body."""
    try:
        return (
            message.topic,
            as_bytes(message.body),
            message.queue_id,
            message.tag,
            message.keys,
            message.light_queues,
            message.properties,
            message.flag,
            message.born_time_ms,
            message.ordering_key,
        )
    except AttributeError:
        raise wrong_kind(field, "a Message", message) from None


def given_as(
    topic: str | Message,
    body: bytes | None,
    queue_id: int | None,
    tag: str,
    keys: Sequence[str],
    light_queues: Sequence[str],
    properties: Mapping[str, str] | None,
    flag: int,
    born_time_ms: int | None,
    ordering_key: str,
) -> Outgoing:
    """What `put` was given: fields, or a Message instead of all of them. Not checked yet.

    Raises TypeError when it is neither, or both.
    """
    texts = (tag, keys, light_queues, properties)
    if body is not None:
        name = text("topic", topic)
        return (name, as_bytes(body), queue_id, *texts, flag, born_time_ms, ordering_key)
    if isinstance(topic, str):
        raise wrong_kind("body", "bytes", body)
    if any(texts) or queue_id is not None or flag or born_time_ms is not None or ordering_key:
        raise TypeError("a Message has all fields of what is put: give none beside it")
    return outgoing_of(topic)


def as_bytes(body: object) -> bytes:
    """The body, frozen. Raises TypeError on text: only its owner knows the encoding."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise TypeError(f"a body is bytes, not {type(body).__name__}; encode text first")


class Checker:
    """Refuses what no request can carry, when it is sent and not when it leaves.

    Thread: any; the cache is a plain set of pure values, so a race costs one more check.
    """

    def __init__(self) -> None:
        #: (topic, queue_id, tag) that were checked before. A sender may look here first, for a
        #: queue id that is None or an int (True would pass for 1); what cannot be looked up raises
        #: TypeError, and `check_place` says what it is.
        self.known: set[tuple[str, int | None, str]] = set()

    def check_place(self, topic: str, queue_id: int | None, tag: str) -> None:
        """Raises ValueError, TypeError."""
        if queue_id is not None and whole("queue_id", queue_id, INT32_MAX) < 0:
            raise ValueError(f"queue_id: {queue_id} is not from 0 to {INT32_MAX}")
        text("topic", topic)
        text("tag", tag)
        if len(self.known) >= _CACHE_LIMIT:
            self.known.clear()
        self.known.add((topic, queue_id, tag))

    def check(self, message: Outgoing) -> tuple[Outgoing, int]:
        """The message, frozen, and its size in bytes. Raises ValueError, TypeError."""
        topic, body, queue_id, tag, keys, light_queues, properties, flag, born_time_ms, key = (
            message
        )
        try:
            is_known = (topic, queue_id, tag) in self.known
        except TypeError:
            is_known = False
        if not is_known or (queue_id is not None and queue_id.__class__ is not int):
            self.check_place(topic, queue_id, tag)
        size = FRAME_BYTES + len(topic) + len(body)
        if keys:
            keys = _texts("keys", keys)
            size += sum(map(len, keys)) + len(keys)
        if light_queues:
            light_queues = _texts("light_queues", light_queues)
            size += sum(map(len, light_queues)) + len(light_queues)
        if properties:
            try:
                properties = dict(properties)
            except (TypeError, ValueError):
                kind = type(properties).__name__
                raise TypeError(f"properties: a mapping of texts is wanted, not {kind}") from None
            for name, value in properties.items():
                size += _text_bytes("properties", name) + _text_bytes("properties", value)
        whole("flag", flag, INT32_MAX)
        if born_time_ms is not None and whole("born_time_ms", born_time_ms) < 0:
            raise ValueError(f"born_time_ms: {born_time_ms} is not from 0 to {INT64_MAX}")
        if key != "":
            _check_ordering_key(key, queue_id, properties)
            size += len(key)
        if keys or light_queues or properties:
            texts = (tag, keys, light_queues, properties)
            message = (topic, body, queue_id, *texts, flag, born_time_ms, key)
        return message, size


def _check_ordering_key(
    key: str, queue_id: int | None, properties: Mapping[str, str] | None
) -> None:
    """Raises ValueError, TypeError."""
    text("ordering_key", key)
    if queue_id is not None:
        raise ValueError("ordering_key: decides the queue; leave out one of it and queue_id")
    if len(key) > _LONGEST_KEY or not key.isprintable():
        raise ValueError(f"ordering_key: {key!r} is not up to {_LONGEST_KEY} printable characters")
    if properties and SHARDING_KEY in properties:
        raise ValueError(f"ordering_key: {SHARDING_KEY} is among the properties as well")


def _text_bytes(field: str, value: str) -> int:
    """Bytes of the text in UTF-8. Raises TypeError, ValueError (a lone surrogate)."""
    text(field, value)
    return len(value) if value.isascii() else len(value.encode())


def _texts(field: str, texts: Sequence[str]) -> tuple[str, ...]:
    if isinstance(texts, str):
        raise TypeError(f"{field}: a sequence of texts is wanted, not one text; put it in a tuple")
    try:
        frozen = tuple(texts)
    except TypeError:
        kind = type(texts).__name__
        raise TypeError(f"{field}: a sequence of texts is wanted, not {kind}") from None
    try:
        plain = "".join(frozen).isascii()
    except TypeError:
        plain = False  # one of them is no text
    if not plain:
        for one in frozen:
            text(field, one)
    return frozen


def put_stream_request(
    request_id: int, messages: Sequence[Outgoing], producer_id: str, sequence: int
) -> bytes:
    """The bytes of a PutStreamRequest with one batch."""
    batch = pb.PutBatchRequest()
    batch.producer.producer_id = producer_id
    batch.producer.sequence = sequence
    columns = _columns(messages)
    if columns is None:
        for message in messages:
            write_to(batch.messages.add(), message)
        return pb.PutStreamRequest(request_id=request_id, batch=batch).SerializeToString()
    # The bodies are nearly all of the request, and the generated code copies each three times.
    # So the fields around them are written here; the order of fields is free.
    parts = [columns.SerializeToString()]
    for message in messages:
        body = message[1]
        size = len(body)
        parts += (_BODY_HEADS.get(size) or _BODY + varint(size), body)
    around = batch.SerializeToString()
    size = sum(map(len, parts))
    columns_head = _COLUMNS + varint(size)
    size += len(around) + len(columns_head)
    head = pb.PutStreamRequest(request_id=request_id).SerializeToString()
    return b"".join((head, _BATCH, varint(size), around, columns_head, *parts))


_BATCH = length_delimited(pb.PutStreamRequest, "batch")
_COLUMNS = length_delimited(pb.PutBatchRequest, "columns")
_BODY = length_delimited(pb.MessageColumns, "bodies")
_BODY_HEADS = {size: _BODY + varint(size) for size in range(2048)}


def _columns(messages: Sequence[Outgoing]) -> pb.MessageColumns | None:
    """All but the bodies by columns; None when the messages cannot travel so."""
    columns = pb.MessageColumns()
    topics, _, queue_ids, tags, keys, light_queues, properties, flags, born_times_ms, orders = zip(
        *messages, strict=True
    )
    if any(properties):
        return None
    if any(keys):
        joined = _joined(keys, " ")
        if joined is None:
            return None
        columns.keys.extend(joined)
    if any(light_queues):
        joined = _joined(light_queues, ",")
        if joined is None:
            return None
        columns.light_queues.extend(joined)
    names = dict.fromkeys(topics)
    columns.topics.extend(names)
    if len(names) > 1:
        index = dict(zip(names, range(len(names)), strict=True))
        columns.topic_indexes.extend(map(index.__getitem__, topics))
    if None not in queue_ids:
        columns.queue_ids.extend(queue_ids)
    elif any(queue_id is not None for queue_id in queue_ids):
        columns.queue_ids.extend([-1 if one is None else one for one in queue_ids])
    if any(tags):
        columns.tags.extend(tags)
    if any(flags):
        columns.flags.extend([one or 0 for one in flags])
    if any(born_times_ms):
        columns.born_times_ms.extend([one or 0 for one in born_times_ms])
    if any(orders):
        columns.ordering_keys.extend([one or "" for one in orders])
    return columns


def _joined(lists: Sequence[Sequence[str]], separator: str) -> list[str] | None:
    """Each list as one text; None when the texts of one would not come apart again."""
    joined = [separator.join(texts or ()) for texts in lists]
    for texts, whole_text in zip(lists, joined, strict=True):
        if texts and (whole_text.count(separator) != len(texts) - 1 or not all(texts)):
            return None
    return joined
