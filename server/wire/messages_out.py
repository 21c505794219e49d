"""Messages, their places and queues in the words of the API."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from kvcq_client.format import length_delimited, varint
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from store.format import message_id, pack_host, unpack_record
from store.message import Host, PullStatus
from store.metadata import KEEP_ALL

if TYPE_CHECKING:
    from server.wire.columns import Columns
    from store.consume_queue import Bounds, DispatchRequest
    from store.metadata import TopicConfig
    from store.reads import Pulled

#: In the words of the API.
PULL_STATUS = {
    PullStatus.FOUND: pb.PULL_STATUS_FOUND,
    PullStatus.NO_NEW_MESSAGE: pb.PULL_STATUS_NO_NEW_MESSAGE,
    PullStatus.NO_MATCH: pb.PULL_STATUS_NO_MATCH,
}
_RECORDS = length_delimited(pb.PullResponse, "records")
_BATCH = length_delimited(pb.QueueBatch, "batch")
_QUEUES = length_delimited(pb.SubscribeResponse, "queues")


def put_out(request: DispatchRequest, store_time_ms: int, store_host: bytes) -> pb.PutResponse:
    response = pb.PutResponse(store_time_ms=store_time_ms)
    placed = response.placed  # filled in place: one that is given to the response is copied
    placed.queue_id = request.queue_id
    placed.queue_offset = request.queue_offset
    placed.physical_offset = request.physical_offset
    placed.message_id = message_id(store_host, request.physical_offset)
    if request.light_queues:
        placed.light_queue_offsets.extend([offset for _, offset in request.light_queues])
    return response


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
    """The record as a message; `queue_offset` is the one in the queue that was read."""
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
    response.status = PULL_STATUS[pulled.status]
    response.next_offset = pulled.next_offset
    response.min_offset = pulled.min_offset
    response.max_offset = pulled.max_offset
    if form == pb.RECORD_FORM_WHOLE:
        records = b"".join(pulled.records.parts)
        response.records = records
        response.queue_offsets.extend(pulled.queue_offsets)
        return len(records)
    response.messages.extend(map(stored_out, pulled.records, pulled.queue_offsets))
    return sum(message.ByteSize() for message in response.messages)


def whole_out(pulled: Pulled) -> tuple[bytes, int]:
    """The response that `pulled_out` makes of whole records, encoded, and the bytes of these.

    They come last, and are copied once.
    """
    parts, size = _whole_parts(pulled)
    return b"".join(parts), size


def queue_batch_out(
    topic: str, queue_id: int, pulled: Pulled, form: pb.RecordForm
) -> tuple[bytes, int]:
    """The response of a subscription with this batch alone, encoded, and the bytes of its records,
    or of its encoded messages."""
    if form != pb.RECORD_FORM_WHOLE:
        response = pb.SubscribeResponse()
        batch = response.queues.add(topic=topic, queue_id=queue_id)
        cost_bytes = pulled_out(pulled, form, batch.batch)
        return response.SerializeToString(), cost_bytes
    parts, record_bytes = _whole_parts(pulled)
    size = len(parts[0]) + len(parts[1]) + record_bytes
    head = pb.QueueBatch(topic=topic, queue_id=queue_id).SerializeToString() + _BATCH + varint(size)
    return b"".join((_QUEUES, varint(len(head) + size), head, *parts)), record_bytes


def _whole_parts(pulled: Pulled) -> tuple[tuple[bytes, ...], int]:
    """What is before the records, in two, and they; and their bytes."""
    head = pb.PullResponse(
        status=PULL_STATUS[pulled.status],
        queue_offsets=pulled.queue_offsets,
        next_offset=pulled.next_offset,
        min_offset=pulled.min_offset,
        max_offset=pulled.max_offset,
    ).SerializeToString()
    size = pulled.records.size_bytes
    return (head, _RECORDS + varint(size) if size else b"", *pulled.records.parts), size


def topic_out(topic: TopicConfig) -> pb.Topic:
    kept = topic.retention
    return pb.Topic(
        name=topic.name,
        queue_count=topic.queue_count,
        created_time_ms=topic.created_ms,
        retention=None if kept == KEEP_ALL else pb.Retention(**kept._asdict()),
    )


def bounds_out(
    topic: str, queue_id: int, bounds: Bounds, *, log_min_offset: int = 0, superseded: int = 0
) -> pb.QueueOffsets:
    return pb.QueueOffsets(
        topic=topic,
        queue_id=queue_id,
        min_offset=bounds.min_offset,
        max_offset=bounds.max_offset,
        log_min_offset=log_min_offset,
        superseded_messages=superseded,
    )
