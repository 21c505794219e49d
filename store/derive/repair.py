"""Rebuilds the units of a damaged queue from the log while the store runs."""

from __future__ import annotations

import logging
import threading
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from store.base import Lock
from store.errors import StoreBusyError, StoreError
from store.format import FastParser
from store.log import Damage, PreadWindow, Run, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from store.consume_queue import ConsumeQueueStore, DispatchRequest
    from store.derive.state_applier import StateApplier
    from store.log import CommitLog, StoreTimes
    from store.topics import Admission, Topics

logger = logging.getLogger(__name__)

_BATCH = 1024
#: Holes that stay, since the log does not have their records either; beyond it, some are forgotten.
_MANY_HOLES = 65_536
#: Between two batches of all queues, so that puts and dispatch come in between.
_PAUSE_S = 0.01
#: Delay after a failed refill before the next one, which reads all of the log.
_AGAIN_S = 60.0


class Rebuilt(NamedTuple):
    """What a repair of one queue found."""

    units: int  # records that have one
    damaged_records: int  # in the log, of any queue


class QueueRepair:
    """Repairs one queue, or all units up to a store time; one repair at a time.

    A damaged record of the log is left out, and costs only its own message. Thread: "queue-repair",
    started on demand. Only writes rows that a rebuild of the whole database would write, so
    repeating a repair or stopping it halfway does no harm.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueStore,
        topics: Topics,
        begins_at: Callable[[str, int, int], None],
        times: StoreTimes,
        paused: Callable[[], AbstractContextManager[object]],
        applier: StateApplier,
    ) -> None:
        """`begins_at` is called with a queue and the queue offset of its first record in the log,
        if the log up to it is undamaged. `paused`: a context in which nothing is dispatched."""
        # Constant after construction.
        self._log = log
        self._queues = queues
        self._topics = topics
        self._begins_at = begins_at
        self._times = times
        self._paused = paused
        self._applier = applier
        self._lock = Lock()
        # Guarded by _lock.
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._parser = FastParser()  # while dispatch is paused
        # Units that a repair of their queue did not change.
        self._failed: set[tuple[str, int, int]] = set()
        self.done = 0  # repairs that ran to their end
        # State of the refills; set by their thread.
        self._refilled_ms = 0
        self._refill_not_before_s = 0.0

    def start(self, topic: str, queue_id: int, offset: int = 0) -> None:
        """Start a repair, unless one is running; the queue's next read then starts it.

        `offset`: queue offset at which the damage was found.
        """
        if self.has_failed(topic, queue_id, offset):
            return  # reading all of the log again would not help
        self._begin(lambda: self._run(topic, queue_id, offset))

    def has_failed(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a repair did not help there: the log does not have the record either."""
        return (topic, queue_id, offset) in self._failed

    def refill(self, store_time_ms: int) -> bool:
        """Start to write the units of all records stored up to that time again.

        Returns False while a repair runs, and for a minute after such a repair failed.
        `take_refilled_ms` returns whether it finished.
        """
        if monotonic() < self._refill_not_before_s:
            return False
        return self._begin(lambda: self._run_refill(store_time_ms))

    def take_refilled_ms(self) -> int:
        """Store time in ms up to which the units of all records were written again; 0 if none. Each
        result is returned once."""
        found, self._refilled_ms = self._refilled_ms, 0
        return found

    def stop(self) -> None:
        """Stop a running repair. Repeatable."""
        self._stopping.set()
        with self._lock:
            thread = self._thread
        if thread is not None and thread.is_alive():
            thread.join()

    def wait(self) -> None:
        """Block until no repair runs."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _begin(self, run: Callable[[], None]) -> bool:
        with self._lock:
            if self._stopping.is_set() or (self._thread is not None and self._thread.is_alive()):
                return False
            self._thread = threading.Thread(target=run, name="queue-repair", daemon=True)
            self._thread.start()
            return True

    # --- one queue -------------------------------------------------------------------------

    def _run(self, topic: str, queue_id: int, offset: int) -> None:
        logger.error("queue %d of %r is damaged: its units are rebuilt", queue_id, topic)
        try:
            before = self._queues.read_units(topic, queue_id, offset, 1)
            found = self.rebuild(topic, queue_id)
            after = self._queues.read_units(topic, queue_id, offset, 1)
        except (StoreError, OSError):
            # The next attempt may succeed: the store was busy, or a segment was removed.
            logger.exception("queue %d of %r could not be rebuilt", queue_id, topic)
            return
        if self._stopping.is_set():
            return
        if before == after:
            if len(self._failed) >= _MANY_HOLES:
                self._failed.clear()
            self._failed.add((topic, queue_id, offset))
            logger.error(
                "offset %d in queue %d of %r could not be rebuilt: %s",
                offset,
                queue_id,
                topic,
                f"{found.damaged_records} records of the log are damaged"
                if found.damaged_records
                else "the log has no record for it",
            )
        self.done += 1
        logger.warning("queue %d of %r is rebuilt: %d units", queue_id, topic, found.units)

    def rebuild(
        self,
        topic: str,
        queue_id: int | None,
        progress: Callable[[int, int, int], None] = lambda _start, _at, _end: None,
    ) -> Rebuilt:
        """Rebuild the units of the queue, or of all queues of the topic, from the log.

        `progress` is called between batches with three physical offsets: start, current position
        and end. If it raises, the repair stops. Raises StoreError, and OSError if the disk cannot
        be read.
        """
        start = at = self._log.start_offset
        end = self._queues.dispatched_offset
        look = PreadWindow()
        count = 0
        firsts: dict[int, int] = {}
        damaged: list[int] = []
        with self._applier.admitting(self._topics.admission) as admission:
            while at < end and not self._stopping.is_set():
                with self._paused():
                    found, at = self._collect(look, at, end, damaged, admission)
                    requests = [each for each in found if _concerns(each, topic, queue_id)]
                    self._queues.rewrite(requests)
                for each in requests:
                    if each.in_queue:
                        its_queue = each.queue_id if each.topic == topic else 0
                        firsts.setdefault(its_queue, _offset_in(each, topic))
                count += len(requests)
                progress(start, at, end)
        if not damaged and at >= end:
            for its_queue, first in firsts.items():
                if first:
                    self._begins_at(topic, its_queue, first)
        return Rebuilt(count, len(damaged))

    # --- all queues ------------------------------------------------------------------------

    def _run_refill(self, store_time_ms: int) -> None:
        at = self._log.start_offset
        end = self._queues.dispatched_offset
        look = PreadWindow()
        count = 0
        try:
            with self._applier.admitting(self._topics.admission) as admission:
                while at < end:
                    if self._stopping.wait(_PAUSE_S):
                        return
                    try:
                        with self._paused():
                            found, behind = self._collect(look, at, end, [], admission)
                            requests = [
                                each for each in found if each.store_time_ms <= store_time_ms
                            ]
                            self._queues.rewrite(requests)
                    except StoreBusyError:
                        continue
                    if (
                        found
                        and self._times.oldest_from(at, found[0].store_time_ms) > store_time_ms
                    ):
                        break  # from here on all is younger
                    at = behind
                    count += len(requests)
        except Exception:
            logger.exception("units stored up to %d could not all be rebuilt", store_time_ms)
            self._refill_not_before_s = monotonic() + _AGAIN_S
            return
        self._refilled_ms = store_time_ms
        self.done += 1
        logger.warning("units stored up to %d ms are rebuilt: %d", store_time_ms, count)

    # --- from the log ----------------------------------------------------------------------

    def _collect(
        self, look: PreadWindow, at: int, end: int, damaged: list[int], admission: Admission
    ) -> tuple[Sequence[DispatchRequest], int]:
        """The requests to dispatch from `at` on, at most a batch, and the position after them.

        Physical offsets of damaged records are added to `damaged`.
        """
        for step in walk(
            self._log.segments, at, end=end, parser=self._parser, count=_BATCH, look=look
        ):
            at = step.next_offset
            match step:
                case Run():
                    return admission.admit_all(step.requests), at
                case Damage():
                    logger.error(
                        "left out of the repair: damaged record at physical offset %d (%s); the "
                        "log goes on at %d",
                        step.physical_offset,
                        step.reason,
                        at,
                    )
                    damaged.append(step.physical_offset)
        return [], at


def _concerns(request: DispatchRequest, topic: str, queue_id: int | None) -> bool:
    if request.topic == topic:
        return queue_id is None or request.queue_id == queue_id
    return not queue_id and any(name == topic for name, _ in request.light_queues)


def _offset_in(request: DispatchRequest, topic: str) -> int:
    """The record's offset in that queue, which it must belong to."""
    return dict(request.light_queues).get(topic, request.queue_offset)
