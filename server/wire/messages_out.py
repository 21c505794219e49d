"""Converts messages, their places and queues to API messages."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from store.errors import InvalidArgumentError
from store.format import message_id, pack_host, unpack_record
from store.metadata import KEEP_ALL, MessageType

if TYPE_CHECKING:
    from server.wire.columns import Columns
    from store.consume_queue import Bounds, DispatchRequest
    from store.message import Host, StoredMessage
    from store.metadata import TopicConfig


_TYPE = "MESSAGE_TYPE_"


def put_out(request: DispatchRequest, store_time_ms: int, store_host: bytes) -> pb.PutResponse:
    response = pb.PutResponse(store_time_ms=store_time_ms)
    placed = response.placed  # filled in place: a message that is assigned is copied
    placed.queue_id = request.queue_id
    placed.queue_offset = request.queue_offset
    placed.physical_offset = request.physical_offset
    placed.message_id = message_id(store_host, request.physical_offset)
    if request.light_queues:
        placed.light_queue_offsets.extend([offset for _, offset in request.light_queues])
    return response


def only_placed_out(columns: Columns, store_host: bytes) -> pb.Placed:
    """The place of the only message in the columns."""
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
    """The record as a message; `queue_offset` is its offset in the queue that was read."""
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
        topic_queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        message_id=message_id_of(message),
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


def message_id_of(message: StoredMessage) -> str:
    """The message's id, which contains its position in the log."""
    return message_id(_packed(message.store_host), message.physical_offset)


@lru_cache(maxsize=4096)
def host_text(host: Host) -> str:
    """`address:port`, an IPv6 address in brackets."""
    address, port = host
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def topic_out(topic: TopicConfig) -> pb.Topic:
    kept = topic.retention
    return pb.Topic(
        name=topic.name,
        queue_count=topic.queue_count,
        created_time_ms=topic.created_ms,
        retention=None if kept == KEEP_ALL else pb.Retention(**kept._asdict()),
        message_type=f"{_TYPE}{topic.message_type.name}",
    )


def message_type_in(given: pb.MessageType) -> MessageType | None:
    """None for unspecified. Raises InvalidArgumentError."""
    if not given:
        return None
    try:
        return MessageType[pb.MessageType.Name(given).removeprefix(_TYPE)]
    except ValueError:
        raise InvalidArgumentError("message_type", f"{given} is not known to this server") from None


def bounds_out(
    topic: str,
    queue_id: int,
    bounds: Bounds,
    *,
    log_min_offset: int = 0,
    superseded: int = 0,
    given_at: int | None = None,
) -> pb.QueueOffsets:
    return pb.QueueOffsets(
        topic=topic,
        queue_id=queue_id,
        min_offset=bounds.min_offset,
        max_offset=bounds.max_offset,
        log_min_offset=log_min_offset,
        superseded_messages=superseded,
        given_at=given_at,
    )
