"""Encodes one read of a queue: the response to a pull, or a part of a subscription's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvcq_client.format import length_delimited, varint
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.wire.messages_out import stored_out
from store.message import PullStatus

if TYPE_CHECKING:
    from store.reads import Pulled

_STATUS = {
    PullStatus.FOUND: pb.PULL_STATUS_FOUND,
    PullStatus.NO_NEW_MESSAGE: pb.PULL_STATUS_NO_NEW_MESSAGE,
    PullStatus.NO_MATCH: pb.PULL_STATUS_NO_MATCH,
}
_RECORDS = length_delimited(pb.PullResponse, "records")
_BATCH = length_delimited(pb.QueueBatch, "batch")
_QUEUES = length_delimited(pb.SubscribeResponse, "queues")


class Encoded(NamedTuple):
    """One encoded read of a queue."""

    has_news: bool  # false: there was no new message, matching or not
    next_offset: int  # where the next read begins
    max_offset: int  # of the queue, exclusive
    given_at: int | None  # of these offsets; None: the queue has not begun
    message_count: int
    cost_bytes: int  # of its records, or of its encoded messages
    data: bytes


def encode_pull(
    pulled: Pulled, form: pb.RecordForm, batch_of: tuple[str, int] | None = None
) -> Encoded:
    """A PullResponse; with `batch_of`, a topic and queue id, a SubscribeResponse with this batch.

    Several of the latter, concatenated, are one response with all batches. Whole records come last,
    so they are copied once.
    """
    head = pb.PullResponse(
        status=_STATUS[pulled.status],
        queue_offsets=pulled.queue_offsets if form == pb.RECORD_FORM_WHOLE else (),
        next_offset=pulled.next_offset,
        min_offset=pulled.min_offset,
        max_offset=pulled.max_offset,
        given_at=pulled.given_at,
    )
    records: tuple[bytes, ...] = ()
    if form == pb.RECORD_FORM_WHOLE:
        cost_bytes = pulled.records.size_bytes
        if cost_bytes:
            records = (_RECORDS + varint(cost_bytes), *pulled.records.parts)
    else:
        head.messages.extend(map(stored_out, pulled.records, pulled.queue_offsets))
        cost_bytes = sum(message.ByteSize() for message in head.messages)
    parts = (head.SerializeToString(), *records)
    if batch_of is not None:
        topic, queue_id = batch_of
        size = sum(map(len, parts))
        queue = pb.QueueBatch(topic=topic, queue_id=queue_id).SerializeToString()
        queue += _BATCH + varint(size)
        parts = (_QUEUES + varint(len(queue) + size), queue, *parts)
    return Encoded(
        pulled.status is not PullStatus.NO_NEW_MESSAGE,
        pulled.next_offset,
        pulled.max_offset,
        pulled.given_at,
        len(pulled.records),
        cost_bytes,
        parts[0] if len(parts) == 1 else b"".join(parts),
    )
