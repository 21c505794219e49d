"""The job `rebuild`: writes the units of a queue, or of a topic's queues, again from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migration.jobs import Outcome
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from kvcq_client.pb.v1 import jobs_pb2 as pb
    from migration.jobs import Job
    from server.jobs.kinds import Work
    from store.message_store import MessageStore

#: Between two batches of 1024 records, so that puts and dispatch come in between.
_PAUSE_S = 0.005


class Rebuild:
    """Does manually what the store does for a queue that a reader finds damaged.

    Readers and producers continue; no row is removed. If cancelled, a part is done, which does no
    harm.
    """

    name = "rebuild"
    unit = "bytes"

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def work(self, wanted: pb.RebuildJob) -> Work:
        """Raises InvalidArgumentError, UnknownTopicError, UnknownQueueError."""
        store, topic = self._store, wanted.topic
        queue_id = wanted.queue_id if wanted.HasField("queue_id") else None
        if not topic:
            raise InvalidArgumentError("topic", "is empty; name a topic or a light queue")
        store.check_queue(topic, queue_id or 0)

        def rebuild(running: Job) -> Outcome:
            def progress(start: int, at: int, end: int) -> None:
                running.report(at - start, end - start)
                running.pause(_PAUSE_S)

            start = store.log.start_offset
            running.step("read the log", 0, store.queues.dispatched_offset - start)
            found = store.maintenance.rebuild(topic, queue_id, progress)
            which = f"queue {queue_id} of {topic!r}" if queue_id is not None else f"{topic!r}"
            damaged = found.damaged_records
            left_out = f"; {damaged:,} damaged records of the log were skipped" if damaged else ""
            return Outcome(
                f"rebuilt the units of {found.units:,} records of {which}{left_out}",
                {"units_written": found.units, "damaged_records": damaged},
            )

        return rebuild
