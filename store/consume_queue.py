"""The protocols of the consume queues, and the values that pass between them and the log."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, NamedTuple, Protocol, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    import numpy.typing as npt

    from store.light_columns import LightUnits


class CqUnit(NamedTuple):
    """One entry of a consume queue: where a message lies in the log."""

    physical_offset: int
    record_size: int  # bytes
    tag_code: int  # signed 64 bit
    store_time_ms: int


class DispatchRequest(NamedTuple):
    """What dispatch derives from one record. The appender and the parser make equal ones."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    record_size: int
    tag_code: int
    store_time_ms: int
    keys: tuple[str, ...]  # properties.index_keys: no duplicates
    light_queues: tuple[tuple[str, int], ...]  # (name, offset in it)
    in_queue: bool  # false for PREPARED and ROLLBACK, which are in no queue


class PlainRequests(Sequence[DispatchRequest]):
    """Requests of plain messages that were appended together, stored in columns. Most batches are
    of this kind.

    Requests are built on demand; callers that use the columns directly never build them.
    """

    __slots__ = (
        "first_keys",
        "light",
        "physical_offsets",
        "queue_ids",
        "queue_offsets",
        "record_sizes",
        "store_time_ms",
        "topics",
    )

    def __init__(
        self,
        topics: Sequence[str],
        queue_ids: Sequence[int],
        queue_offsets: Sequence[int],
        physical_offsets: npt.NDArray[np.int64],
        record_sizes: npt.NDArray[np.int64],
        store_time_ms: int,
        first_keys: tuple[str, ...],
        light: LightUnits | None = None,
    ) -> None:
        """All columns have the same length and must not be modified. Only the first message may
        have keys, which are the mark of its batch. `light`: their light queues; None if there are
        none."""
        self.topics = topics
        self.queue_ids = queue_ids
        self.queue_offsets = queue_offsets
        self.physical_offsets = physical_offsets
        self.record_sizes = record_sizes
        self.store_time_ms = store_time_ms
        self.first_keys = first_keys
        self.light = light

    def __len__(self) -> int:
        return len(self.topics)

    @overload
    def __getitem__(self, at: int) -> DispatchRequest: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[DispatchRequest]: ...
    def __getitem__(self, at: int | slice) -> DispatchRequest | Sequence[DispatchRequest]:
        if isinstance(at, slice):
            if at.step not in (None, 1):
                return list(self)[at]
            # Columns again: a large batch is dispatched in many pieces.
            light = None if self.light is None else self.light[at]
            return PlainRequests(
                self.topics[at],
                self.queue_ids[at],
                self.queue_offsets[at],
                self.physical_offsets[at],
                self.record_sizes[at],
                self.store_time_ms,
                () if at.indices(len(self))[0] else self.first_keys,
                light if light is not None and light.places else None,
            )
        at = range(len(self))[at]
        return DispatchRequest(
            self.topics[at],
            self.queue_ids[at],
            self.queue_offsets[at],
            int(self.physical_offsets[at]),
            int(self.record_sizes[at]),
            0,
            self.store_time_ms,
            () if at else self.first_keys,
            () if self.light is None else self.light[at],
            True,  # noqa: FBT003 - in_queue
        )

    def __iter__(self) -> Iterator[DispatchRequest]:
        fields = zip(
            self.topics,
            self.queue_ids,
            self.queue_offsets,
            self.physical_offsets.tolist(),
            self.record_sizes.tolist(),
            repeat(0),  # tag_code
            repeat(self.store_time_ms),
            chain((self.first_keys,), repeat(())),
            repeat(()) if self.light is None else self.light,
            repeat(True),  # noqa: FBT003 - in_queue
        )
        return map(tuple.__new__, repeat(DispatchRequest), fields)


def is_constant(column: Sequence[object]) -> bool:
    """Whether all values of the column are equal."""
    return column.count(column[0]) == len(column)


def row_counts(requests: Sequence[DispatchRequest]) -> list[int]:
    """Number of rows derived from each request: its unit, and one for each light queue and each
    key."""
    if isinstance(requests, PlainRequests):
        light = requests.light
        counts = [1] * len(requests) if light is None else [1 + count for count in light.counts]
        if requests.first_keys and counts:
            counts[0] += len(requests.first_keys)
        return counts
    return [1 + len(each[7]) + len(each[8]) for each in requests]


def queues_of(requests: Sequence[DispatchRequest]) -> set[tuple[str, int]]:
    """The queues that get a new unit from these requests, as (topic, queue id); a light queue is
    (name, 0)."""
    if isinstance(requests, PlainRequests):
        topics, queue_ids = requests.topics, requests.queue_ids
        if topics and is_constant(topics) and is_constant(queue_ids):
            queues = {(topics[0], queue_ids[0])}
        else:
            queues = set(zip(topics, queue_ids, strict=True))
        if requests.light is not None:
            queues.update(zip(requests.light.flat_names, repeat(0)))
        return queues
    queues = {(each.topic, each.queue_id) for each in requests}
    for each in requests:
        if each.light_queues:
            queues.update((name, 0) for name, _ in each.light_queues)
    return queues


class Bounds(NamedTuple):
    """Min and max offset of one queue; max is exclusive, and equal to min if the queue is empty."""

    min_offset: int
    max_offset: int  # exclusive


class LastUnit(NamedTuple):
    """The end of a queue. Its last record may have left the log; the queue's offsets continue."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int


class KeyHit(NamedTuple):
    """One row of the key index: a message that has the key."""

    store_time_ms: int
    physical_offset: int


class Boundary(enum.Enum):
    """Which of several matching units a search by time returns."""

    LOWER = "lower"  # the first unit stored at or after the time
    UPPER = "upper"  # the last unit stored at or before the time


class Dispatcher(Protocol):
    """Derives data from the log. Called in log order, by one thread at a time."""

    @property
    def gathers(self) -> bool:
        """Whether one dispatch of many batches is much cheaper than one dispatch each.

        If so, larger batches wait a few milliseconds for others.
        """
        ...

    def dispatch(self, requests: Sequence[DispatchRequest], end_offset: int) -> None:
        """Apply all `requests`, or none. `end_offset` is the log position after the last one.

        Repeating an earlier dispatch changes nothing. Raises StoreBusyError if it cannot be applied
        now; the same call may then be repeated.
        """
        ...


class ConsumeQueueStore(Dispatcher, Protocol):
    """Queues derived from the log, and the key index. Thread-safe."""

    @property
    def dispatched_offset(self) -> int:
        """Physical offset below which everything is dispatched and visible."""
        ...

    def rewrite(self, requests: Sequence[DispatchRequest]) -> None:
        """Write damaged units again that were dispatched before. Bounds and dispatch point do not
        change."""
        ...

    def next_offsets(self, queues: Sequence[tuple[str, int]]) -> list[int]:
        """The max offset of each (topic, queue id); 0 for a queue that never had a message."""
        ...

    def last_of(self, queues: Sequence[tuple[str, int]]) -> list[tuple[int, int] | None]:
        """Physical offset and queue offset of the last unit of each queue; None if it has no
        units."""
        ...

    def bounds(self, topic: str, queue_id: int, log_start: int) -> Bounds:
        """Min and max of the queue; min is its first unit at or above physical offset `log_start`.
        Writes nothing."""
        ...

    def read_units(
        self, topic: str, queue_id: int, start: int, count: int
    ) -> list[tuple[int, CqUnit]]:
        """Up to `count` units from offset `start` on, as (queue offset, unit), ascending.

        Gaps are not hidden: they show in the returned offsets.
        """
        ...

    def read_places(
        self, topic: str, queue_id: int, start: int, count: int
    ) -> list[tuple[int, int]]:
        """Physical offset and size in bytes of up to `count` units from offset `start` on.

        Stops before a gap. Cheaper than `read_units` when only locations are needed.
        """
        ...

    def places_of(
        self, topic: str, queue_id: int, offsets: Sequence[int]
    ) -> list[tuple[int, int] | None]:
        """Physical offset and size in bytes of the unit at each offset; None where there is no
        unit.

        For scattered offsets; for adjacent ones `read_places` is cheaper.
        """
        ...

    def search_time(
        self, topic: str, queue_id: int, time_ms: int, boundary: Boundary, log_start: int
    ) -> int:
        """The boundary table in kvcq/tables/time_search.py, clamped to min..max."""
        ...

    def query_key(
        self,
        topic: str,
        key: str,
        begin_ms: int,
        end_ms: int,
        after: KeyHit | None,
        limit: int,
    ) -> list[KeyHit]:
        """Rows of exactly this topic and key, after cursor `after`, ascending. Times are ms since
        1970, inclusive.

        The key of a batch is found whatever the topic.
        """
        ...

    def marks_below(self, key: str, limit: int) -> list[tuple[str, int]] | None:
        """Keys of batches of the same producer below `key`, descending, with their physical
        offsets.

        Returns None if this store does not support it.
        """
        ...

    def delete_topic(self, topic: str, physical_offset: int) -> None:
        """Remove all rows of the topic or light queue in one step. The record at `physical_offset`
        deletes it.

        Does nothing if dispatch is already past that record, since the rows were removed then.
        """
        ...

    def queue_ids(self, topic: str) -> list[int]:
        """Ids of the topic's queues that have or had messages, ascending."""
        ...

    def list_names(self, prefix: str, after: str | None, limit: int) -> list[str]:
        """Up to `limit` names of topics and light queues that have messages, ordered by length,
        then bytes; only names after `after`.

        `prefix` must not be empty.
        """
        ...

    def restore_last_units(self, units: Sequence[LastUnit]) -> None:
        """Move the ends of queues that end before these units behind them; other queues do not
        change. Repeatable."""
        ...

    def expire(self, log_start: int, store_time_ms: int) -> None:
        """Expire units below `log_start`, whose segments are dropped; their last record was stored
        at `store_time_ms`."""
        ...

    def keep_from(self, store_time_ms: int) -> None:
        """Protect the unit of a record that is about to be appended with that store time from
        expiring.

        Cheap, unless later store times have already expired because the clock was set back. Raises
        what `expire` raises.
        """
        ...

    def maintain(self) -> int:
        """Do periodic work; called about every second.

        Returns a store time in ms if units stored up to then may have been removed before they
        expired, else 0. Each loss is reported once.
        """
        ...

    def compact(
        self,
        progress: Callable[[float], None] | None = None,
        *,
        family: str | None = None,
        topic: str | None = None,
    ) -> None:
        """Reclaim the space of expired and deleted rows. Slow.

        Compacts units and key index, or only column family `family`; all topics and light queues,
        or only `topic`. `progress` is called between steps with the fraction done, 0 to 1; if it
        raises, the work stops and the error is raised.
        """
        ...

    def flush(self) -> None:
        """Make everything dispatched so far durable, at one dispatch point."""
        ...

    def statistics(self) -> dict[str, float]:
        """Metrics for operators, by name."""
        ...

    def close(self) -> None:
        """Flush, then close all files. Repeatable."""
        ...
