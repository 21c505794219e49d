"""One of the two stores of queues behind a double write, and what it can do besides."""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING, Protocol

import numpy as np

from migration.files import FileQueueStore
from migration.formats import tag_as_key, valid_units
from store.consume_queue import ConsumeQueueStore, DispatchRequest
from store.files import DIRECTORY_MODE, fsync_directory
from store.light_queue import is_light

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from migration.files import Adoption, FileQueueOptions, RecordLookup
    from migration.state import SideName
    from store.clock import Clock
    from store.progress import Progress

#: A name no topic can have: deletion number N "of it" sets a new side's count of deletions.
NO_TOPIC = "?"
_TRASH = "purged_queues"


class SideStore(ConsumeQueueStore, Protocol):
    """A ConsumeQueueStore that can gain and lose single topics."""

    def fill(self, requests: Sequence[DispatchRequest]) -> None:
        """Write queues that it did not have, in log order; its watermark stays.

        Raises StoreBusyError when it cannot be taken now.
        """
        ...

    def purge_topic(self, topic: str) -> None:
        """Remove every row of a name that it does not serve any more. Repeatable."""
        ...

    def names(self) -> list[str]:
        """Every topic and light queue that it keeps anything of, also without a message."""
        ...

    def last_units(self) -> Iterator[tuple[str, int, int, int]]:
        """Topic, queue id, queue offset, physical offset of the last unit of every queue."""
        ...

    def stored_units(
        self, topic: str, queue_id: int, start: int, count: int
    ) -> list[tuple[int, tuple[int, ...]]]:
        """Up to `count` units as they are stored: physical offset, size, tag code and, where it
        is kept, store time. Without a look at the log."""
        ...


class IngestingStore(SideStore, Protocol):
    """One that takes files which somebody else has sorted."""

    def ingest(
        self, files: Mapping[str, Sequence[Path]], end_offset: int, *, move: bool
    ) -> None: ...


class FileSideStore(FileQueueStore):
    """The file queues as one side. `purge_topic` leaves the key index, which holds all topics."""

    def __init__(
        self,
        root: Path,
        lookup: RecordLookup,
        options: FileQueueOptions,
        clock: Clock,
        adoption: Adoption,
        progress: Progress,
    ) -> None:
        """As FileQueueStore; takes over `lookup`, the records of the log."""
        self._lookup = lookup
        self._tags_from = options.index_tags_from
        super().__init__(
            root,
            store_time_ms=lookup.store_time_ms,
            record_keys=lookup.record_keys,
            options=options,
            clock=clock,
            adoption=adoption,
            progress=progress,
        )

    def dispatch(self, requests: Sequence[DispatchRequest], end_offset: int) -> None:
        """See FileQueueStore. Tags are indexed as well, where the layout says so."""
        super().dispatch(self._with_tags(requests), end_offset)

    def _with_tags(self, requests: Sequence[DispatchRequest]) -> Sequence[DispatchRequest]:
        """The requests with their tags among the keys, as far as the index still takes them."""
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
        """The record's tag when the index should have it, and has not."""
        if self._tags_from is None or not _may_be_tagged(request, self._tags_from):
            return None
        (tag,) = self._lookup.tags([request])
        if not tag:
            return None
        time_ms = request.store_time_ms
        there = self._index.candidates(request.topic, tag_as_key(tag), time_ms, time_ms)
        return None if any(request.physical_offset in each for each in there) else tag

    def fill(self, requests: Sequence[DispatchRequest]) -> None:
        """See SideStore. The index passes over keys of records it is already beyond."""
        self.dispatch(requests, 0)

    def purge_topic(self, topic: str) -> None:
        with self._writing:
            self._check_writable()
            trash = self._root / _TRASH
            shutil.rmtree(trash, ignore_errors=True)
            trash.mkdir(DIRECTORY_MODE)
            if self._queues.move_topic_away(topic, trash / "queues"):
                fsync_directory(self._queues.root)
            shutil.rmtree(trash, ignore_errors=True)

    def names(self) -> list[str]:
        return [
            topic
            for topic in self._queues.topics()
            # RocketMQ's own database lies here as well; it has no queues.
            if self._queues.queue_ids(topic) or not any((self._queues.root / topic).iterdir())
        ]

    def stored_units(
        self, topic: str, queue_id: int, start: int, count: int
    ) -> list[tuple[int, tuple[int, ...]]]:
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return []
        found: list[tuple[int, tuple[int, ...]]] = []
        for first, units in queue.read(start, count):
            valid = np.flatnonzero(valid_units(units))
            rows = units[valid].tolist()
            found += zip((valid + first).tolist(), rows, strict=True)
        return found

    def expire(self, log_start: int, store_time_ms: int) -> None:
        self._lookup.forget_below(log_start)
        super().expire(log_start, store_time_ms)

    def close(self) -> None:
        super().close()
        self._lookup.close()


def _may_be_tagged(request: DispatchRequest, first: int) -> bool:
    """Whether its record lies at `first` or above, and may have a tag that is indexed.

    One of a deleted topic goes under the name of its first light queue: nothing of it is indexed.
    """
    topic, _, _, physical_offset, _, tag_code = request[:6]
    return bool(tag_code) and physical_offset >= first and not is_light(topic)


def _with_key(request: DispatchRequest, key: str) -> DispatchRequest:
    """The request with one key more; `_replace` takes three times as long."""
    return DispatchRequest(*request[:7], (*request.keys, key), *request[8:])


class Side:
    """A side that is in use. Its fields are guarded by the double store's lock, read freely."""

    def __init__(self, name: SideName, store: SideStore) -> None:
        # Constant after construction.
        self.name = name
        self.store = store
        #: Held while a filler reads a piece of the log and writes it here, and while a topic is
        #: deleted: so nothing of a deleted topic is written after its deletion.
        self.filling = threading.RLock()
        #: Live dispatch feeds it.
        self.joined = False
        #: Why it was left behind, until somebody resumes.
        self.failure: BaseException | None = None
