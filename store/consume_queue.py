"""What the log asks of a consume queue, and the values that pass between them."""

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
    """What is derived from one record. Made by the appender or by parsing, always the same."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    record_size: int
    tag_code: int
    store_time_ms: int
    keys: tuple[str, ...]  # properties.index_keys: no duplicates
    light_queues: tuple[tuple[str, int], ...]  # (name, offset in it)
    in_queue: bool  # false for PREPARED and ROLLBACK: they stand in no queue


class PlainRequests(Sequence[DispatchRequest]):
    """Those of plain messages that were appended together, in columns: what most batches are. A
    request is made when it is asked for; who goes by columns does without."""

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
        """The columns are of one length, and nobody changes them. The first of them may have keys:
        the mark of its batch. None: they stand in no light queue."""
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
    """Whether all of the column is what its first value is."""
    return column.count(column[0]) == len(column)


def row_counts(requests: Sequence[DispatchRequest]) -> list[int]:
    """How many rows are derived from each: its unit, one for each light queue, and for each key."""
    if isinstance(requests, PlainRequests):
        light = requests.light
        counts = [1] * len(requests) if light is None else [1 + count for count in light.counts]
        if requests.first_keys and counts:
            counts[0] += len(requests.first_keys)
        return counts
    return [1 + len(each[7]) + len(each[8]) for each in requests]


def queues_of(requests: Sequence[DispatchRequest]) -> set[tuple[str, int]]:
    """The queues that have a new unit of these: topic and queue id; a light queue is (name, 0)."""
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
    """min..max of one queue; empty when they are equal."""

    min_offset: int
    max_offset: int  # exclusive


class LastUnit(NamedTuple):
    """Where a queue ends. Its record may be gone from the log; the queue's offsets continue."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int


class KeyHit(NamedTuple):
    """One row of the key index: a message that carries the key."""

    store_time_ms: int
    physical_offset: int


class Boundary(enum.Enum):
    """Which of several units a search by time returns."""

    LOWER = "lower"  # the first unit stored at or after the time
    UPPER = "upper"  # the last unit stored at or before the time


class Dispatcher(Protocol):
    """Derives something from the log. Called in log order, by one thread at a time."""

    @property
    def gathers(self) -> bool:
        """Whether many batches in one dispatch cost much less than each in a dispatch of its own.

        Batches of some size then wait for each other, for milliseconds, while more come in.
        """
        ...

    def dispatch(self, requests: Sequence[DispatchRequest], end_offset: int) -> None:
        """Take all `requests`, or none. `end_offset` is the log position after the last one.

        Repeating what was dispatched before changes nothing.
        Raises StoreBusyError when it cannot be taken now: the same call may be repeated.
        """
        ...


class ConsumeQueueStore(Dispatcher, Protocol):
    """Queues derived from the log, and the key index. Safe to call from several threads."""

    @property
    def dispatched_offset(self) -> int:
        """End of what is dispatched and visible."""
        ...

    def rewrite(self, requests: Sequence[DispatchRequest]) -> None:
        """Write again what was dispatched before and is damaged; bounds and dispatch point stay."""
        ...

    def next_offsets(self, queues: Sequence[tuple[str, int]]) -> list[int]:
        """The max offset of each (topic, queue id); 0 where nothing was ever dispatched."""
        ...

    def last_of(self, queues: Sequence[tuple[str, int]]) -> list[tuple[int, int] | None]:
        """Physical offset and queue offset of the last unit of each; None where there is none."""
        ...

    def bounds(self, topic: str, queue_id: int, log_start: int) -> Bounds:
        """Min and max; min is the first unit at or above `log_start`. Writes nothing."""
        ...

    def read_units(
        self, topic: str, queue_id: int, start: int, count: int
    ) -> list[tuple[int, CqUnit]]:
        """Up to `count` units from offset `start` on, as (queue offset, unit), rising.

        A hole is not skipped silently: the offsets returned show it.
        """
        ...

    def read_places(
        self, topic: str, queue_id: int, start: int, count: int
    ) -> list[tuple[int, int]]:
        """Physical offset and size of up to `count` units from offset `start` on.

        It ends in front of a hole. Less work than `read_units`, for who needs no more.
        """
        ...

    def places_of(
        self, topic: str, queue_id: int, offsets: Sequence[int]
    ) -> list[tuple[int, int] | None]:
        """Physical offset and size of the unit at each offset; None where there is none.

        For offsets that lie far apart: otherwise `read_places` is less work.
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
        """Rows of exactly this topic and key, times inclusive, rising, beyond `after`.

        The key of a batch is found whatever the topic.
        """
        ...

    def marks_below(self, key: str, limit: int) -> list[tuple[str, int]] | None:
        """Keys of batches of the same producer below `key`, falling, with their physical offsets.

        None when this store cannot tell.
        """
        ...

    def delete_topic(self, topic: str, physical_offset: int) -> None:
        """Remove every row of the topic, or light queue, in one step: the record there ends it.

        Nothing happens where more than that is dispatched: it was done then.
        """
        ...

    def queue_ids(self, topic: str) -> list[int]:
        """Ids of the queues of the topic that hold or held messages, rising."""
        ...

    def list_names(self, prefix: str, after: str | None, limit: int) -> list[str]:
        """Names of topics and light queues with messages, by length, then bytes; above `after`.

        `prefix` is not empty.
        """
        ...

    def restore_last_units(self, units: Sequence[LastUnit]) -> None:
        """Queues that end before these units continue behind them; others stay. Repeatable."""
        ...

    def expire(self, log_start: int, store_time_ms: int) -> None:
        """Segments below `log_start` are gone; their last record was stored at `store_time_ms`."""
        ...

    def keep_from(self, store_time_ms: int) -> None:
        """A record with that store time is about to be appended: its unit does not expire.

        Cheap unless later ones have expired: store times fell. Raises what `expire` raises.
        """
        ...

    def maintain(self) -> int:
        """What is due from time to time; called about every second.

        Returns a store time, ms, if units stored up to then may be gone before they expired; else
        0. Each is reported once.
        """
        ...

    def compact(
        self,
        progress: Callable[[float], None] | None = None,
        *,
        family: str | None = None,
        topic: str | None = None,
    ) -> None:
        """Give back the space of what is expired or deleted. Slow.

        Of units and key index, or of one column family; of all topics and light queues, or one.
        `progress` is called between pieces of the work, if it has any, with the part that is done,
        0 to 1; an error it raises ends the work, and is raised.
        """
        ...

    def flush(self) -> None:
        """Make everything dispatched so far durable, all of it at one dispatch point."""
        ...

    def statistics(self) -> dict[str, float]:
        """Numbers for operators, by name."""
        ...

    def close(self) -> None:
        """Flush, then let go of all files. Repeatable."""
        ...
