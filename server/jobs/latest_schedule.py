"""Runs `keep_latest` periodically on topics that keep the latest message of each key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import jobs_pb2 as pb
from server.errors import JobRunningError
from server.jobs.periodic_check import PeriodicCheck

if TYPE_CHECKING:
    from server.jobs.keep_latest import KeepLatest
    from server.jobs.registry import Jobs
    from store.base import Clock


class LatestSchedule(PeriodicCheck):
    """Starts a job `keep_latest` for all such topics, if there are any.

    Thread: "latest-schedule". The job history tells when the last one started.
    """

    def __init__(self, jobs: Jobs, kind: KeepLatest, clock: Clock, *, period_s: float) -> None:
        """`period_s`: 0 for none."""
        super().__init__("latest-schedule", period_s)
        # Constant after construction.
        self._jobs = jobs
        self._kind = kind
        self._clock = clock
        # Owned by the thread.
        self._looked_ms = 0

    def start_if_due(self) -> bool:
        """Start a job if one is due. Returns whether it did."""
        now_ms = self._clock.now_ms()
        before = (each for each in self._jobs.views(self._kind.name) if each.scheduled)
        last_ms = self._looked_ms or next((each.started_ms for each in before), 0)
        if abs(now_ms - last_ms) < self._period_s * 1000:  # the clock may have been ahead then
            return False
        self._looked_ms = now_ms
        if not any(True for _ in self._kind.topics()):
            return False
        try:
            self._jobs.begin(self._kind, self._kind.work(pb.KeepLatestJob()), {}, scheduled=True)
        except JobRunningError:
            return False
        return True
