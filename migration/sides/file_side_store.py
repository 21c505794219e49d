"""The file queues as one of the two sides, with tags in the index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvcq.tables import pages_of_queues
from migration.files import FileQueueStore
from migration.formats import tag_as_key, valid_units
from store.consume_queue import DispatchRequest
from store.light_queue import is_light

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from kvcq.tables import UnitColumns
    from migration.files import FileQueueOptions, RecordLookup
    from migration.formats import UnitArray
    from store.base import Clock, Progress

_PAGE_UNITS = 16_384


class FileSideStore(FileQueueStore):
    """The file queues as one side."""

    def __init__(
        self,
        root: Path,
        lookup: RecordLookup,
        options: FileQueueOptions,
        clock: Clock,
        progress: Progress,
    ) -> None:
        """Like FileQueueStore. `lookup`: reads records of the log; closed with the side."""
        self._lookup = lookup
        self._tags_from = options.index_tags_from
        super().__init__(
            root,
            store_time_ms=lookup.store_time_ms,
            record_at=lookup.request,
            options=options,
            clock=clock,
            progress=progress,
        )

    def dispatch(self, requests: Sequence[DispatchRequest], end_offset: int) -> None:
        """See FileQueueStore. Also indexes tags if the layout says so."""
        super().dispatch(self._with_tags(requests), end_offset)

    def _with_tags(self, requests: Sequence[DispatchRequest]) -> Sequence[DispatchRequest]:
        """The requests with their tags added to the keys, if the index does not have them yet."""
        if self._tags_from is None:
            return requests
        first = max(self._tags_from, -1 if self._index_is_stale else self._index.end_offset)
        wanted = [at for at, request in enumerate(requests) if _may_be_tagged(request, first)]
        if not wanted:
            return requests
        tagged = list(requests)
        tags = self._lookup.tags([requests[at] for at in wanted])
        for at, tag in zip(wanted, tags, strict=True):
            if tag:
                tagged[at] = _with_key(requests[at], tag_as_key(tag))
        return tagged

    def missing_tag(self, request: DispatchRequest) -> str | None:
        """The record's tag if the index should have it, but does not."""
        if self._tags_from is None or not _may_be_tagged(request, self._tags_from):
            return None
        (tag,) = self._lookup.tags([request])
        if not tag:
            return None
        time_ms = request.store_time_ms
        there = self._index.candidates(request.topic, tag_as_key(tag), time_ms, time_ms)
        return None if any(request.physical_offset in each for each in there) else tag

    def names(self) -> list[str]:
        return [
            topic
            for topic in self._queues.topics()
            # RocketMQ's own database is here, too; it is no topic.
            if self._queues.queue_ids(topic) or not any((self._queues.root / topic).iterdir())
        ]

    def units_between(self, start: int, end: int) -> Iterator[UnitColumns]:
        """See SideStore."""
        return pages_of_queues(self._parts_between(start, end))

    def _parts_between(
        self, start: int, end: int
    ) -> Iterator[tuple[tuple[str, int], npt.NDArray[np.int64], UnitArray]]:
        for name in self._queues.names():
            queue = self._queues.get(*name)
            for first, stored in () if queue is None else queue.read(0, queue.end):
                places = stored["physical_offset"]
                kept = np.flatnonzero(valid_units(stored) & (places >= start) & (places < end))
                yield name, kept + first, stored[kept]

    def expire(self, log_start: int, store_time_ms: int) -> None:
        self._lookup.forget_below(log_start)
        super().expire(log_start, store_time_ms)

    def close(self) -> None:
        super().close()
        self._lookup.close()


def _may_be_tagged(request: DispatchRequest, first: int) -> bool:
    """Whether the record is at or above `first`, and may have a tag to index. Records of deleted
    topics have none: only their light queues count."""
    topic, _, _, physical_offset, _, tag_code = request[:6]
    return bool(tag_code) and physical_offset >= first and not is_light(topic)


def _with_key(request: DispatchRequest, key: str) -> DispatchRequest:
    """The request with one more key. Not with `_replace`, which takes three times as long."""
    return DispatchRequest(*request[:7], (*request.keys, key), *request[8:])
