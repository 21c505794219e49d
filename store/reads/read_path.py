"""Reads of an open store: checks arguments, and repairs damaged queues.

The counterpart of `store.puts.AppendPath`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from store.errors import (
    DamagedQueueError,
    InvalidArgumentError,
    MessageNotFoundError,
    OffsetOutOfRangeError,
)
from store.reads.filters import TagFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from store.consume_queue import Boundary, Bounds
    from store.derive import QueueRepair
    from store.log import CommitLog
    from store.reads.filters import Filter
    from store.reads.lookups import Hidden, Lookups
    from store.reads.pull_plan import Pulled, PullPlan
    from store.reads.reader import Reader
    from store.reads.time_search import TimeSearch

T = TypeVar("T")


class ReadPath:
    """The reader, and the repair of queues that it finds damaged.

    Methods without a docstring are documented in MessageStore. Thread: any.
    """

    def __init__(
        self,
        log: CommitLog,
        reader: Reader,
        lookups: Lookups,
        time_search: TimeSearch,
        repair: QueueRepair,
        check_open: Callable[[], None],
    ) -> None:
        """`check_open` raises StoreClosedError."""
        self.reader = reader
        self.lookups = lookups
        self._time_search = time_search
        self._log = log
        self._repair = repair
        self._check_open = check_open

    def repairing(self, read: Callable[[], T]) -> T:
        """Run `read`. If it raises DamagedQueueError, the queue is rebuilt from the log in the
        background; if that has not helped before, the error says where to continue."""
        self._check_open()
        try:
            return read()
        except DamagedQueueError as error:
            place = error.topic, error.queue_id, error.queue_offset
            if self._repair.has_failed(*place):
                error.next_offset = error.behind
            else:
                self._repair.start(*place)
            raise

    def plan_pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int,
        max_bytes: int,
        tag_filter: str | Filter | None,
        given_at: int | None = None,
    ) -> PullPlan:
        """The first half of `MessageStore.pull`: plans what to read from the log. Reads no record.

        `given_at`: of the response that `offset` comes from, see `MessageStore.with_given_at`.
        Raises what `pull` raises, except errors in records, and RecreatedQueueError.
        """
        if max_messages < 1:
            raise InvalidArgumentError("max_messages", f"{max_messages} is below 1")
        if max_bytes < 1:
            raise InvalidArgumentError("max_bytes", f"{max_bytes} is below 1")
        if isinstance(tag_filter, str):
            tag_filter = TagFilter.parse(tag_filter)
        wanted = (topic, queue_id, offset, max_messages, max_bytes, tag_filter, given_at)
        return self.repairing(lambda: self.reader.plan(*wanted))

    def read_planned(self, plan: PullPlan) -> Pulled:
        """The second half of `pull`; call it soon after the first. Raises what `pull` raises."""
        return self.repairing(lambda: self.reader.read(plan))

    def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int = 32,
        max_bytes: int = 4 << 20,
        tag_filter: str | Filter | None = "",
    ) -> Pulled:
        return self.read_planned(
            self.plan_pull(
                *(topic, queue_id, offset),
                max_messages=max_messages,
                max_bytes=max_bytes,
                tag_filter=tag_filter,
            )
        )

    def pulls(
        self, topic: str, at: int, behind: int, max_messages: int, max_bytes: int
    ) -> Iterator[Pulled]:
        """Pulls, one after the other, of all messages at at <= offset < behind in queue 0, without
        those that are not dispatched or no longer kept. Raises what `pull` raises."""
        while at < behind:
            try:
                pulled = self.pull(
                    *(topic, 0, at),
                    max_messages=min(max_messages, behind - at),
                    max_bytes=max_bytes,
                    tag_filter=None,
                )
            except OffsetOutOfRangeError as error:
                if at >= error.min_offset:
                    return
                at = error.min_offset
                continue
            if pulled.next_offset == at:
                return
            yield pulled
            at = pulled.next_offset

    def is_cold(self, topic: str, queue_id: int, offset: int) -> bool:
        if self._log.is_hot(self._log.start_offset):
            return False
        unit = self.reader.first_unit(topic, queue_id, offset)
        return unit is not None and not self._log.is_hot(unit.physical_offset)

    def get(self, physical_offset: int) -> bytes:
        record, hidden = self.find(physical_offset)
        if hidden is not None:
            raise MessageNotFoundError(str(physical_offset), hidden.reason)
        return record

    def find(self, physical_offset: int) -> tuple[bytes, Hidden | None]:
        """The record there, even if readers no longer see it, and why they do not."""
        return self.repairing(lambda: self.lookups.find(physical_offset))

    def bounds(self, queues: Sequence[tuple[str, int]]) -> list[Bounds]:
        return self.repairing(lambda: [self.reader.bounds(*queue) for queue in queues])

    def bounds_in_log(self, queues: Sequence[tuple[str, int]]) -> list[Bounds]:
        return self.repairing(lambda: [self.reader.bounds_in_log(*queue) for queue in queues])

    def search_time(self, topic: str, queue_id: int, time_ms: int, boundary: Boundary) -> int:
        try:
            return self.repairing(
                lambda: self._time_search.search(topic, queue_id, time_ms, boundary)
            )
        except DamagedQueueError as error:
            if error.next_offset is None:
                raise
            return self._time_search.search_over_holes(topic, queue_id, time_ms, boundary)

    def backlog_since_ms(self, topic: str, queue_id: int, offset: int) -> int | None:
        self._check_open()
        unit = self.reader.first_unit(topic, queue_id, offset)
        return None if unit is None else unit.store_time_ms
