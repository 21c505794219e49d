"""Where messages came to stand, out of the answers to their puts."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from kvcq_client.format.records import message_ids
from kvcq_client.values import Placed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcq_client.pb.v1 import kvcq_pb2 as pb


def placed(answer: pb.PutResponse) -> Placed:
    """The place of a message that was put by itself."""
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
    """The places of the messages of a batch, in its order; `light_queues`: to how many each goes.

    Raises ValueError when the columns are not of so many messages.
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
            message_id,  # none when it was sent again, and has expired since it was stored
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
