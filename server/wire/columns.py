"""The places of a batch's messages, a list for each field: the response to a put."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from store.consume_queue import PlainRequests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.consume_queue import DispatchRequest


class Columns(NamedTuple):
    """One value for each message, in the order of the batch; light queue offsets of all, flat."""

    queue_ids: list[int]
    queue_offsets: list[int]
    physical_offsets: list[int]
    light_queue_offsets: list[int]

    @property
    def message_count(self) -> int:
        return len(self.queue_ids)


class Stored(NamedTuple):
    """A batch in the log. Acknowledged once `end_offset` is durable."""

    columns: Columns
    end_offset: int
    store_time_ms: int
    repeated: bool

    @property
    def record_bytes(self) -> int:
        """Size of its records, and of the blanks between them if it spans segments."""
        return self.end_offset - self.columns.physical_offsets[0]


def columns_of(requests: Sequence[DispatchRequest]) -> Columns:
    """The places of appended messages."""
    if isinstance(requests, PlainRequests):
        offsets: list[int] = requests.physical_offsets.tolist()
        light = [] if requests.light is None else requests.light.flat_offsets.tolist()
        return Columns(list(requests.queue_ids), list(requests.queue_offsets), offsets, light)
    _, queue_ids, queue_offsets, physical_offsets, *_, light_queues, _ = zip(*requests, strict=True)
    light = [offset for places in light_queues for _, offset in places]
    return Columns(list(queue_ids), list(queue_offsets), list(physical_offsets), light)
