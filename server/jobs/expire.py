"""The job `expire`: drops segments of the log whose messages have all expired."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migration.jobs import Outcome

if TYPE_CHECKING:
    from kvcq_client.pb.v1 import jobs_pb2 as pb
    from migration.jobs import Job
    from server.jobs.kinds import Work
    from store.message_store import MessageStore


class Expire:
    """Does what retention does at its hour, until nothing more has expired.

    It drops nothing that retention would keep. If cancelled, it ends after the current segments.
    """

    name = "expire"
    unit = "bytes"

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def work(self, wanted: pb.ExpireJob) -> Work:
        """Accepts every request."""
        store = self._store

        def expire(running: Job) -> Outcome:
            log = store.log
            start, end = log.start_offset, log.appended_offset
            running.step("drop segments", 0, end - start)
            segments = 0
            while dropped := store.expire():
                segments += dropped
                running.report(log.start_offset - start, end - start)
                running.check()
            freed = log.start_offset - start
            return Outcome(
                f"{segments:,} segments dropped, {freed:,} bytes freed; the log starts at "
                f"{log.start_offset:,}",
                {
                    "segments_dropped": segments,
                    "bytes_freed": freed,
                    "log_start_offset": log.start_offset,
                },
            )

        return expire
