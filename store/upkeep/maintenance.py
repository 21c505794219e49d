"""What operators ask of an open store: work on all of a queue or of the log, and copies."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

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


class Maintenance:
    """The slow calls of a store, and those of its retention. Thread: any.

    Each raises StoreClosedError, also when the store is closed meanwhile; and what `progress`
    raises.
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
        """Rows of what is expired or deleted give their space back: see ConsumeQueueStore. Slow."""

        def told(share: float) -> None:
            # Between pieces: closing does not wait for all of it.
            self._appends.check_open()
            progress(share)

        self._appends.check_open()
        self._queues.compact(told, family=family, topic=topic)

    def rebuild(
        self, topic: str, queue_id: int | None, progress: Callable[[int, int, int], None]
    ) -> Rebuilt:
        """Units of the topic, or of one of its queues, are written again from the log; none is
        removed. Slow: it reads all of the log.

        `progress`: see QueueRepair.rebuild. Raises UnknownTopicError, UnknownQueueError.
        """
        self._check_queue(topic, queue_id or 0)

        def told(start: int, at: int, end: int) -> None:
            self._appends.check_open()
            progress(start, at, end)

        return self._services.repair.rebuild(topic, queue_id, told)

    def keep_latest(
        self, topic: str, queue_id: int, progress: Callable[[int, int], None]
    ) -> LatestKept:
        """Of messages with the same key in the queue, all but the latest are hidden. Slow.

        As far as they are durable now. One call at a time; see LatestMessages.keep. Raises
        UnknownTopicError, UnknownQueueError.
        """
        self._check_queue(topic, queue_id)
        durable_end = self._durable_end()

        def told(done: int, total: int) -> None:
            self._appends.check_open()
            progress(done, total)

        return self._latest.keep(topic, queue_id, durable_end, told)

    def _durable_end(self) -> int:
        """Up to where all is durable and dispatched, behind a flush."""
        checkpoints = self._upkeep.checkpoints
        with checkpoints.lock:
            checkpoints.flush()
        return min(self._appends.flushed.value, self._queues.dispatched_offset)

    def hidden_messages(self, topic: str, queue_id: int) -> int:
        """How many were hidden when `keep_latest` last went through the queue."""
        hidden = self._latest.superseded.get(topic, queue_id)
        return 0 if hidden is None else hidden.count

    def _check_queue(self, topic: str, queue_id: int) -> None:
        self._appends.check_open()
        self._topics.require_queue(topic, queue_id)

    def hold_log(self) -> LogHold:
        """A context: retention drops nothing until it ends, or the hold is moved.

        Blocks while a run of retention works. What expires meanwhile goes with a later run.
        """
        return self._services.retention.hold()

    @contextmanager
    def at_one_point(self) -> Iterator[None]:
        """Begins when all that was appended before is durable and dispatched. Until it ends, no
        checkpoint is written; puts and reads go on. For copies of the database.

        Raises what MessageStore.flush raises, StoreBusyError.
        """
        self._appends.check_open()
        self._appends.drain(self._log.appended_offset)
        with self._upkeep.checkpoints.lock:
            self._upkeep.checkpoints.flush()
            yield

    def first_store_time_ms(self) -> int | None:
        """When the oldest message of the log was stored, ms since 1970; None: there is none."""
        while True:
            self._appends.check_open()
            with suppress(StoreClosedError):  # its segment was dropped meanwhile
                found = self._log.first_time_from(self._log.start_offset)
                return None if found is None else found[1]
