"""Make the units of a damaged queue again from the log, while the store runs."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from store.errors import CorruptRecordError, StoreError
from store.record import Found, check_record, dispatch_request
from store.sealed_run import SealedParser

if TYPE_CHECKING:
    from store.commit_log import CommitLog
    from store.consume_queue import ConsumeQueueStore, DispatchRequest
    from store.topics import Topics

logger = logging.getLogger(__name__)

_BATCH = 1024
_RUN = 256


class QueueRepair:
    """One repair at a time, each of one queue.

    Thread: "queue-repair", started when there is something to do. Writes only rows that a
    rebuild of the whole database would write, so doing it twice, or half, harms nothing.
    """

    def __init__(self, log: CommitLog, queues: ConsumeQueueStore, topics: Topics) -> None:
        # Constant after construction.
        self._log = log
        self._queues = queues
        self._topics = topics
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._parser = SealedParser()  # under `restoring`
        # Queues whose repair failed; few, since a damaged log fails each of them once.
        self._hopeless: set[tuple[str, int]] = set()
        self.done = 0  # repairs that ran to their end
        #: Held while rows are looked up and written: who removes a topic holds it too, so that no
        #: row comes back. Taken before any lock of topics or queues.
        self.restoring = threading.Lock()

    def start(self, topic: str, queue_id: int) -> None:
        """Begin, unless a repair is running: whoever reads the queue next starts the next one."""
        with self._lock:
            if self._stopping.is_set() or (self._thread is not None and self._thread.is_alive()):
                return
            if (topic, queue_id) in self._hopeless:
                return  # a damaged log stays damaged: reading all of it again would not help
            self._thread = threading.Thread(
                target=self._run, args=(topic, queue_id), name="queue-repair", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Leave off a running repair. Repeatable."""
        self._stopping.set()
        with self._lock:
            thread = self._thread
        if thread is not None and thread.is_alive():
            thread.join()

    def wait(self) -> None:
        """Until no repair runs."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self, topic: str, queue_id: int) -> None:
        logger.error("queue %d of %r is damaged: its units are made again", queue_id, topic)
        try:
            count = self.rebuild(topic, queue_id)
        except StoreError as error:
            logger.exception("queue %d of %r could not be rebuilt", queue_id, topic)
            if isinstance(error, CorruptRecordError):
                self._hopeless.add((topic, queue_id))
            # Else it may go well the next time: the store was busy, or a segment was removed.
            return
        self.done += 1
        logger.warning("queue %d of %r is rebuilt: %d units", queue_id, topic, count)

    def rebuild(self, topic: str, queue_id: int) -> int:
        """Write the queue's units again from the log; returns how many. Raises StoreError."""
        at = self._log.start_offset
        end = self._queues.dispatched_offset
        count = 0
        while at < end and not self._stopping.is_set():
            with self.restoring:
                requests, at = self._collect(at, end, topic, queue_id)
                self._queues.restore(requests)
            count += len(requests)
        return count

    def _collect(
        self, at: int, end: int, topic: str, queue_id: int
    ) -> tuple[list[DispatchRequest], int]:
        """Requests of this queue from `at` on, about a batch at most, and where to go on."""
        requests: list[DispatchRequest] = []
        view = self._log.view(at, end)
        try:
            base, stop = at, at + len(view)
            while at < stop and len(requests) < _BATCH:
                run, at = self._parser.parse(view, base, at, stop, _RUN)
                for each in run:
                    admitted = self._topics.admit(each)
                    if admitted is not None and _concerns(admitted, topic, queue_id):
                        requests.append(admitted)
                if run:
                    continue
                checked = check_record(view, at - base, len(view), at)
                if checked.found is Found.BLANK:
                    return requests, self._log.segment_end(at)
                if checked.found is Found.NOTHING:
                    raise CorruptRecordError(at, checked.reason)
                try:
                    request = self._topics.admit(dispatch_request(view, at - base))
                except CorruptRecordError:
                    request = None  # it stands in no queue: its dispatch said so
                if request is not None and _concerns(request, topic, queue_id):
                    requests.append(request)
                at += checked.size
        finally:
            view.release()
        return requests, at


def _concerns(request: DispatchRequest, topic: str, queue_id: int) -> bool:
    if request.topic == topic:
        return request.queue_id == queue_id
    return queue_id == 0 and any(name == topic for name, _ in request.light_queues)
