"""Outgoing messages: checked when they are sent, encoded when their batch leaves.

A batch is encoded by columns (kvcq.v1.MessageColumns), which both sides process many times faster
than a protobuf message each. A batch with something that columns cannot carry, such as properties,
is encoded message by message.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from kvcq_client.arguments import INT32_MAX, INT64_MAX, check_known, text, whole, wrong_kind
from kvcq_client.format.fields import length_delimited, varint
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.values import Message, MessageFields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Never

C = TypeVar("C", bound=Callable[..., Any])

#: Entries of the cache of checked places.
_CACHE_LIMIT = 8192
_LONGEST_KEY = 255
#: The property that holds the ordering key, as with RocketMQ's producers.
SHARDING_KEY = "__SHARDINGKEY"
#: Bytes counted for each message in addition to its texts and body.
FRAME_BYTES = 16


#: A message in a batch: topic, body, queue id, tag, keys, light queues, properties, flag, time of
#: birth and ordering key, as Message has them, checked and frozen. A plain tuple, because
#: Python's garbage collector stops tracking a tuple of texts and numbers, but not a NamedTuple. A
#: producer's buffer holds tens of thousands.
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
#: A message, and the bytes that it counts for.
Sized = tuple[Outgoing, int]


_fields_of: Callable[[Message], Outgoing] = attrgetter(*Message.__match_args__)


def write_to(message: pb.Message, outgoing: Outgoing) -> None:
    """Fill a message of a request.

    In place and without empty fields, which is several times faster than building a message with
    all fields and copying it into the request.
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
    """Its fields, not checked yet. Raises TypeError if it is not a Message."""
    try:
        return _fields_of(message)
    except AttributeError:
        raise wrong_kind(field, "a Message", message) from None


def outgoing_with(
    topic: str,
    body: bytes,
    *,
    queue_id: int | None = None,
    tag: str = "",
    keys: Sequence[str] = (),
    light_queues: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    flag: int = 0,
    born_time_ms: int | None = None,
    ordering_key: str = "",
    **unknown: Never,
) -> Outgoing:
    """A message with these fields, not checked yet. Raises TypeError for an unknown field.

    The public calls take the fields as MessageFields, and pass them on to this.
    """
    if unknown:
        check_known(unknown)
    return (
        topic,
        body,
        queue_id,
        tag,
        keys,
        light_queues,
        properties,
        flag,
        born_time_ms,
        ordering_key,
    )


def outgoing_or_message(
    topic: str | Message, body: bytes | None, fields: MessageFields
) -> Outgoing:
    """Like `outgoing_with`, or from a Message instead of fields.

    Raises TypeError if neither or both are given.
    """
    if body is not None:
        return outgoing_with(text("topic", topic), body, **fields)
    if isinstance(topic, str):
        raise wrong_kind("body", "bytes", body)
    if fields:
        outgoing_with("", b"", **fields)  # reports an unknown field first
        raise TypeError("a Message has all fields: give no others beside it")
    return outgoing_of(topic)


def with_message_fields(call: C) -> C:
    """Let `help` and notebooks show each field of MessageFields, with its default."""
    signature = inspect.signature(call)
    parameters = dict(signature.parameters)
    del parameters["fields"]
    named = [
        one
        for one in inspect.signature(outgoing_with).parameters.values()
        if one.name in MessageFields.__annotations__
    ]
    shown = signature.replace(parameters=[*parameters.values(), *named])
    call.__signature__ = shown  # type: ignore[attr-defined]
    return call


def as_bytes(body: object) -> bytes:
    """The body as immutable bytes. Raises TypeError for text, whose encoding is not known here."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise TypeError(f"a body is bytes, not {type(body).__name__}; encode text first")


class Checker:
    """Rejects at `send` what no request can carry.

    Thread-safe: a race for the cache only costs another check.
    """

    def __init__(self) -> None:
        # Checked (topic, queue_id, tag).
        self._known: set[tuple[str, int | None, str]] = set()

    def check(self, message: Outgoing, *, strict: bool = False) -> Sized:
        """The message with immutable fields, and its size in bytes. Raises ValueError, TypeError.

        Unless `strict`, None is accepted as an empty field, which saves producers a check of each.
        """
        topic, body, queue_id, tag, keys, light_queues, properties, flag, born_time_ms, key = (
            message
        )
        if body.__class__ is not bytes:
            body = as_bytes(body)
            message = (topic, body, *message[2:])
        try:
            is_known = (topic, queue_id, tag) in self._known
        except TypeError:  # one of them is not hashable, and is rejected below
            is_known = False
        # True equals 1.
        if not is_known or (queue_id is not None and queue_id.__class__ is not int):
            self._check_place(topic, queue_id, tag)
        size = FRAME_BYTES + len(topic) + len(body)
        if not (strict or keys or light_queues or properties or flag or born_time_ms or key):
            return message, size
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
                raise TypeError(f"properties: expected a mapping of texts, not {kind}") from None
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

    def _check_place(self, topic: str, queue_id: int | None, tag: str) -> None:
        """Raises ValueError, TypeError."""
        if queue_id is not None and whole("queue_id", queue_id, INT32_MAX) < 0:
            raise ValueError(f"queue_id: {queue_id} is not from 0 to {INT32_MAX}")
        text("topic", topic)
        text("tag", tag)
        if len(self._known) >= _CACHE_LIMIT:
            self._known.clear()
        self._known.add((topic, queue_id, tag))


def _check_ordering_key(
    key: str, queue_id: int | None, properties: Mapping[str, str] | None
) -> None:
    """Raises ValueError, TypeError."""
    text("ordering_key", key)
    if queue_id is not None:
        raise ValueError(
            "ordering_key: cannot be combined with queue_id, since it decides the queue"
        )
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
        raise TypeError(f"{field}: expected a sequence of texts, not one text; put it in a tuple")
    try:
        frozen = tuple(texts)
    except TypeError:
        kind = type(texts).__name__
        raise TypeError(f"{field}: expected a sequence of texts, not {kind}") from None
    try:
        plain = "".join(frozen).isascii()
    except TypeError:
        plain = False  # one of them is not text
    if not plain:
        for one in frozen:
            text(field, one)
    return frozen


def put_stream_request(
    request_id: int, messages: Sequence[Outgoing], producer_id: str, sequence: int
) -> bytes:
    """An encoded PutStreamRequest with one batch."""
    batch = pb.PutBatchRequest()
    batch.producer.producer_id = producer_id
    batch.producer.sequence = sequence
    columns = _columns(messages)
    if columns is None:
        for message in messages:
            write_to(batch.messages.add(), message)
        return pb.PutStreamRequest(request_id=request_id, batch=batch).SerializeToString()
    # Bodies make up most of the request, and protobuf would copy each three times. So the fields
    # around them are encoded here; their order is free.
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
    """All fields but the bodies, by columns; None if columns cannot carry them."""
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
    """Each list joined to one text; None if one could not be split again."""
    joined = [separator.join(texts or ()) for texts in lists]
    for texts, whole_text in zip(lists, joined, strict=True):
        if texts and (whole_text.count(separator) != len(texts) - 1 or not all(texts)):
            return None
    return joined
