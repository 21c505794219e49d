"""Protobuf to values and back. Checks the shape of a request; the store checks its content.

A refusal names the field as the request has it, such as `messages[3].topic`.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.wire.put_limits import SHORT_TAG
from store.consume_queue import Boundary
from store.errors import InvalidArgumentError
from store.format import message_id, pack_host, unpack_record
from store.message import Host, Message, PullStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from server.wire.columns import Columns
    from server.wire.put_limits import Budget
    from store.consume_queue import Bounds, DispatchRequest
    from store.message import Pulled
    from store.metadata import TopicConfig

T = TypeVar("T")

MAX_PULL_MESSAGES = 10_000
MAX_QUERY_MESSAGES = 1_000
MAX_PAGE_SIZE = 10_000
MAX_QUEUES = 10_000  # of one request

DEFAULT_PULL_MESSAGES = 32
DEFAULT_PULL_BYTES = 4 << 20
DEFAULT_QUERY_MESSAGES = 32
DEFAULT_PAGE_SIZE = 1_000

_NOWHERE: Host = ("127.0.0.1", 0)
_STATUS = {
    PullStatus.FOUND: pb.PULL_STATUS_FOUND,
    PullStatus.NO_NEW_MESSAGE: pb.PULL_STATUS_NO_NEW_MESSAGE,
    PullStatus.NO_MATCH: pb.PULL_STATUS_NO_MATCH,
}


# --- messages in ---------------------------------------------------------------------------


def message_in(
    message: pb.Message, born_host: Host, choose: Callable[[str], int], budget: Budget
) -> Message:
    """The message as the store takes it; `choose` gives a queue to one that names none.

    Raises TooMuchError when it has more parts than are left in the budget.
    """
    topic = message.topic
    tag = message.tag
    if len(tag) > SHORT_TAG:
        budget.tag(len(tag), "messages")
    # The hottest lines of a put. Emptiness is asked first, and a slice is taken before the tuple:
    # tuple() of protobuf's own containers takes several times as long as all the rest.
    keys, light_queues, properties = message.keys, message.light_queues, message.properties
    if keys or light_queues or properties:
        budget.parts(len(keys) + len(light_queues) + len(properties), "messages")
    return Message(
        topic,
        message.body,
        message.queue_id if message.HasField("queue_id") else choose(topic),
        tag,
        tuple(keys[:]) if keys else (),
        tuple(light_queues[:]) if light_queues else (),
        dict(properties) if properties else None,
        message.flag,
        0,
        message.born_time_ms,
        born_host,
    )


def batch_in(
    messages: Sequence[pb.Message], born_host: Host, choose: Callable[[str], int], budget: Budget
) -> list[Message]:
    """All messages of a batch. Raises as `request_in` does."""
    budget.messages(len(messages), "messages")
    return [message_in(message, born_host, choose, budget) for message in messages]


def request_in(
    request: pb.PutBatchRequest, born_host: Host, choose: Callable[[str], int], budget: Budget
) -> list[Message]:
    """The messages of a batch in either form.

    Raises InvalidArgumentError, naming the field; TooMuchError when the budget does not do.
    """
    if not request.HasField("columns"):
        return batch_in(request.messages, born_host, choose, budget)
    if request.messages:
        raise InvalidArgumentError("columns", "messages are given as well: give one of the two")
    return columns_in(request.columns, born_host, choose, budget)


def columns_in(
    columns: pb.MessageColumns, born_host: Host, choose: Callable[[str], int], budget: Budget
) -> list[Message]:
    """All messages of a batch by columns. Raises as `request_in` does, naming the column."""
    count = len(columns.bodies)
    budget.messages(count, "columns.bodies")
    bodies = list(columns.bodies)
    topics = _topics_in(columns, count)
    if columns.queue_ids:
        queue_ids = _column("queue_ids", columns.queue_ids, count)
        if -1 in queue_ids:
            queue_ids = [
                choose(topic) if queue_id == -1 else queue_id
                for topic, queue_id in zip(topics, queue_ids, strict=True)
            ]
    else:
        queue_ids = [choose(topic) for topic in topics]
    tags: Iterable[str] = repeat("")
    if columns.tags:
        tags = _column("tags", columns.tags, count)
        budget.tag(sum(map(len, tags)), "columns.tags")
    keys: Iterable[tuple[str, ...]] = repeat(())
    if columns.keys:
        keys = _split_column("keys", columns.keys, count, " ", budget)
    light_queues: Iterable[tuple[str, ...]] = repeat(())
    if columns.light_queues:
        light_queues = _split_column("light_queues", columns.light_queues, count, ",", budget)
    flags: Iterable[int] = repeat(0)
    if columns.flags:
        flags = _column("flags", columns.flags, count)
    born_times_ms: Iterable[int] = repeat(0)
    if columns.born_times_ms:
        born_times_ms = _column("born_times_ms", columns.born_times_ms, count)
    new = tuple.__new__
    return [
        new(Message, fields)
        for fields in zip(
            topics,
            bodies,
            queue_ids,
            tags,
            keys,
            light_queues,
            repeat(None),
            flags,
            repeat(0),
            born_times_ms,
            repeat(born_host),
            repeat(0),
            repeat(0),
        )
    ]


def _topics_in(columns: pb.MessageColumns, count: int) -> list[str]:
    if len(columns.topics) > count:
        raise InvalidArgumentError(
            "columns.topics", f"{len(columns.topics)} topics of {count} messages"
        )
    names = list(columns.topics)
    if not columns.topic_indexes:
        if len(names) != 1:
            raise InvalidArgumentError(
                "columns.topics", f"{len(names)} topics, but no topic_indexes to tell which"
            )
        return names * count
    indexes = _column("topic_indexes", columns.topic_indexes, count)
    if max(indexes) >= len(names):
        raise InvalidArgumentError(
            "columns.topic_indexes", f"{max(indexes)}, but there are {len(names)} topics"
        )
    return [names[index] for index in indexes]


def _column(name: str, values: Sequence[T], count: int) -> list[T]:
    if len(values) != count:
        raise InvalidArgumentError(f"columns.{name}", f"{len(values)} values for {count} messages")
    return list(values)


def _split_column(
    name: str, values: Sequence[str], count: int, separator: str, budget: Budget
) -> list[tuple[str, ...]]:
    """Each text as its words."""
    texts = _column(name, values, count)
    budget.parts(sum([text.count(separator) + 1 for text in texts if text]), f"columns.{name}")
    return [tuple(text.split(separator)) if text else () for text in texts]


@lru_cache(maxsize=4096)
def host_of_peer(peer: str) -> Host:
    """The caller's address, from gRPC's name for it: ipv4:…, ipv6:[…]:…, or unix:…"""
    family, _, rest = unquote(peer).partition(":")
    if family not in ("ipv4", "ipv6"):
        return _NOWHERE
    address, _, port = rest.rpartition(":")
    try:
        host = (address.strip("[]").partition("%")[0], int(port))
        pack_host(host)
    except (ValueError, InvalidArgumentError):
        return _NOWHERE
    return host


# --- messages out --------------------------------------------------------------------------


def placed_out(request: DispatchRequest, store_host: bytes) -> pb.Placed:
    return pb.Placed(
        queue_id=request.queue_id,
        queue_offset=request.queue_offset,
        physical_offset=request.physical_offset,
        message_id=message_id(store_host, request.physical_offset),
        light_queue_offsets=[offset for _, offset in request.light_queues],
    )


def only_placed_out(columns: Columns, store_host: bytes) -> pb.Placed:
    """Where the one message of the columns came to stand."""
    return pb.Placed(
        queue_id=columns.queue_ids[0],
        queue_offset=columns.queue_offsets[0],
        physical_offset=columns.physical_offsets[0],
        message_id=message_id(store_host, columns.physical_offsets[0]),
        light_queue_offsets=columns.light_queue_offsets,
    )


def batch_out(columns: Columns, store_time_ms: int, store_host: bytes) -> pb.PutBatchResponse:
    return pb.PutBatchResponse(
        queue_ids=columns.queue_ids,
        queue_offsets=columns.queue_offsets,
        physical_offsets=columns.physical_offsets,
        light_queue_offsets=columns.light_queue_offsets,
        store_time_ms=store_time_ms,
        store_host=store_host,
    )


def stored_out(record: bytes, queue_offset: int | None = None) -> pb.StoredMessage:
    """The record as a message; `queue_offset` is the one in the queue that was asked for."""
    # The store has verified every record that it hands out.
    message = unpack_record(record, verify=False)
    # Tag and keys have fields of their own, as in a put.
    properties = message.properties
    tag = properties.pop("TAGS", "")
    keys = properties.pop("KEYS", "")
    return pb.StoredMessage(
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset if queue_offset is None else queue_offset,
        physical_offset=message.physical_offset,
        message_id=message_id(_packed(message.store_host), message.physical_offset),
        body=message.body,
        tag=tag,
        keys=[key for key in keys.split(" ") if key] if keys else (),
        properties=properties,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_time_ms=message.born_time_ms,
        born_host=host_text(message.born_host),
        store_time_ms=message.store_time_ms,
        store_host=host_text(message.store_host),
        reconsume_times=message.reconsume_times,
    )


# Hosts are few: one store, and a producer for each connection.
_packed = lru_cache(maxsize=1024)(pack_host)


@lru_cache(maxsize=4096)
def host_text(host: Host) -> str:
    """`address:port`, an IPv6 address in brackets."""
    address, port = host
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def pulled_out(pulled: Pulled, form: pb.RecordForm, response: pb.PullResponse) -> int:
    """Write it into `response`, which is empty: a message that is assigned is copied.

    Returns the bytes of its records, or of its encoded messages.
    """
    response.status = _STATUS[pulled.status]
    response.next_offset = pulled.next_offset
    response.min_offset = pulled.min_offset
    response.max_offset = pulled.max_offset
    if form == pb.RECORD_FORM_WHOLE:
        records = b"".join(pulled.records)
        response.records = records
        response.queue_offsets.extend(pulled.queue_offsets)
        return len(records)
    response.messages.extend(map(stored_out, pulled.records, pulled.queue_offsets))
    return sum(message.ByteSize() for message in response.messages)


def topic_out(topic: TopicConfig) -> pb.Topic:
    return pb.Topic(
        name=topic.name, queue_count=topic.queue_count, created_time_ms=topic.created_ms
    )


def bounds_out(topic: str, queue_id: int, bounds: Bounds) -> pb.QueueOffsets:
    return pb.QueueOffsets(
        topic=topic,
        queue_id=queue_id,
        min_offset=bounds.min_offset,
        max_offset=bounds.max_offset,
    )


# --- the shape of requests -----------------------------------------------------------------


def bounded(field: str, value: int, default: int, limit: int) -> int:
    """`value`, or `default` for 0. Raises InvalidArgumentError outside 0..limit."""
    if value == 0:
        return min(default, limit)
    if not 0 < value <= limit:
        raise InvalidArgumentError(field, f"{value} is not from 0 (the default) to {limit}")
    return value


def in_range(field: str, value: int, low: int, high: int) -> int:
    """`value`. Raises InvalidArgumentError outside low..high, both inclusive."""
    if not low <= value <= high:
        raise InvalidArgumentError(field, f"{value} is not from {low} to {high}")
    return value


def not_negative(field: str, value: int) -> int:
    if value < 0:
        raise InvalidArgumentError(field, f"{value} is below 0")
    return value


def form_of(value: pb.RecordForm) -> pb.RecordForm:
    """The wanted form; decoded when it was left open."""
    if value == pb.RECORD_FORM_UNSPECIFIED:
        return pb.RECORD_FORM_DECODED
    if value not in (pb.RECORD_FORM_DECODED, pb.RECORD_FORM_WHOLE):
        raise InvalidArgumentError("form", f"{value} is no RecordForm")
    return value


def boundary_of(value: pb.TimeBoundary) -> Boundary:
    """The wanted boundary; the lower one when it was left open."""
    if value in (pb.TIME_BOUNDARY_UNSPECIFIED, pb.TIME_BOUNDARY_LOWER):
        return Boundary.LOWER
    if value == pb.TIME_BOUNDARY_UPPER:
        return Boundary.UPPER
    raise InvalidArgumentError("boundary", f"{value} is no TimeBoundary")


def queues_of(queues: Sequence[pb.Queue], field: str = "queues") -> list[tuple[str, int]]:
    """Topic and queue id of each. Raises InvalidArgumentError when there are too many."""
    if len(queues) > MAX_QUEUES:
        raise InvalidArgumentError(field, f"{len(queues)} queues, more than {MAX_QUEUES}")
    return [
        (queue.topic, not_negative(f"{field}[{index}].queue_id", queue.queue_id))
        for index, queue in enumerate(queues)
    ]
