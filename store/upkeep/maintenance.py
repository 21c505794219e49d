"""Slow operations on an open store: work on a whole queue or the whole log, and copies."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, ParamSpec

from store.errors import StoreClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from store.consume_queue import ConsumeQueueStore
    from store.derive import Rebuilt
    from store.log import LogHold
    from store.puts import AppendPath
    from store.reads import LatestKept, LatestMessages
    from store.topics import Topics
    from store.upkeep.services import Services
    from store.upkeep.upkeep import Upkeep

P = ParamSpec("P")


class Maintenance:
    """The slow calls of a store, and those of its retention. Thread: any.

    All raise StoreClosedError, also if the store is closed meanwhile, and what `progress` raises.
    """

    def __init__(
        self,
        appends: AppendPath,
        topics: Topics,
        queues: ConsumeQueueStore,
        latest: LatestMessages,
        upkeep: Upkeep,
        services: Services,
    ) -> None:
        self._appends = appends
        self._log = appends.log
        self._topics = topics
        self._queues = queues
        self._latest = latest
        self._upkeep = upkeep
        self._services = services

    def compact(
        self,
        progress: Callable[[float], None],
        *,
        family: str | None = None,
        topic: str | None = None,
    ) -> None:
        """Reclaim the space of expired and deleted rows: see ConsumeQueueStore. Slow."""
        self._appends.check_open()
        self._queues.compact(self._while_open(progress), family=family, topic=topic)

    def rebuild(
        self, topic: str, queue_id: int | None, progress: Callable[[int, int, int], None]
    ) -> Rebuilt:
        """Write the units of the topic, or of one of its queues, again from the log; none is
        removed. Slow: reads the whole log.

        `progress`: see QueueRepair.rebuild. Raises UnknownTopicError, UnknownQueueError.
        """
        self._check_queue(topic, queue_id or 0)
        return self._services.repair.rebuild(topic, queue_id, self._while_open(progress))

    def keep_latest(
        self, topic: str, queue_id: int, progress: Callable[[int, int], None]
    ) -> LatestKept:
        """Hide all but the latest of the messages with the same key in the queue. Slow.

        Covers messages that are durable now. One call at a time; see LatestMessages.keep. Raises
        UnknownTopicError, UnknownQueueError.
        """
        self._check_queue(topic, queue_id)
        progress = self._while_open(progress)
        return self._latest.keep(topic, queue_id, self._durable_end(), progress)

    def _while_open(self, progress: Callable[P, None]) -> Callable[P, None]:
        """`progress`, which raises StoreClosedError once the store is closed: closing does not wait
        for the whole operation."""

        def told(*args: P.args, **named: P.kwargs) -> None:
            self._appends.check_open()
            progress(*args, **named)

        return told

    def _durable_end(self) -> int:
        """Physical offset below which everything is durable and dispatched, after a flush."""
        checkpoints = self._upkeep.checkpoints
        with checkpoints.lock:
            checkpoints.flush()
        return min(self._appends.flushed.value, self._queues.dispatched_offset)

    def hidden_messages(self, topic: str, queue_id: int) -> int:
        """Number of hidden messages after the last `keep_latest` of the queue."""
        hidden = self._latest.superseded.get(topic, queue_id)
        return 0 if hidden is None else hidden.count

    def _check_queue(self, topic: str, queue_id: int) -> None:
        self._appends.check_open()
        self._topics.require_queue(topic, queue_id)

    def hold_log(self) -> LogHold:
        """A context in which retention drops nothing; it ends with the context, or when the hold is
        raised.

        Blocks during a run of retention. Segments that expire meanwhile are dropped by a later run.
        """
        return self._services.retention.hold()

    @contextmanager
    def at_one_point(self) -> Iterator[None]:
        """A context for copies of the database. Begins once everything appended before is durable
        and dispatched. Until it ends no checkpoint is written; puts and reads continue.

        Raises what MessageStore.flush raises, StoreBusyError.
        """
        self._appends.check_open()
        self._appends.drain(self._log.appended_offset)
        with self._upkeep.checkpoints.lock:
            self._upkeep.checkpoints.flush()
            yield

    def first_store_time_ms(self) -> int | None:
        """Store time of the oldest message of the log, ms since 1970; None if there is none."""
        while True:
            self._appends.check_open()
            with suppress(StoreClosedError):  # its segment was dropped meanwhile
                found = self._log.first_time_from(self._log.start_offset)
                return None if found is None else found[1]
