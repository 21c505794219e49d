"""Places of stored messages, from the responses to puts."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from kvcq_client.format.records import message_ids
from kvcq_client.values import Placed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcq_client.pb.v1 import kvcq_pb2 as pb


def placed(answer: pb.PutResponse) -> Placed:
    """The place of a single message."""
    place = answer.placed
    return Placed(
        place.queue_id,
        place.queue_offset,
        place.physical_offset,
        place.message_id,
        answer.store_time_ms,
        tuple(place.light_queue_offsets),
    )


def placed_all(columns: pb.PutBatchResponse, light_queues: Sequence[int]) -> list[Placed]:
    """The places of a batch's messages, in order. `light_queues`: number of light queues of each.

    Raises ValueError if the columns have another number of messages.
    """
    store_time_ms = columns.store_time_ms
    light_offsets = iter(columns.light_queue_offsets)
    physical_offsets = columns.physical_offsets
    repeated = columns.repeated_batch
    return [
        Placed(
            queue_id,
            queue_offset,
            physical_offset,
            message_id,  # "" if the batch was repeated, and the message has expired
            store_time_ms,
            tuple(islice(light_offsets, count)) if count else (),
            repeated,
        )
        for queue_id, queue_offset, physical_offset, message_id, count in zip(
            columns.queue_ids,
            columns.queue_offsets,
            physical_offsets,
            message_ids(columns.store_host, physical_offsets),
            light_queues,
            strict=True,
        )
    ]
