"""Topics that keep the latest message of each key are gone through once in a period."""

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
    """Begins a job `keep_latest` for all such topics, unless there is none.

    Thread: "latest-schedule". When the last one began is known from the jobs that are remembered.
    """

    def __init__(self, jobs: Jobs, kind: KeepLatest, clock: Clock, *, period_s: float) -> None:
        """`period_s`: of 0 none is begun."""
        super().__init__("latest-schedule", period_s)
        # Constant after construction.
        self._jobs = jobs
        self._kind = kind
        self._clock = clock
        # Owned by the thread.
        self._looked_ms = 0

    def start_if_due(self) -> bool:
        """Begin a job if one is due; whether it was begun."""
        now_ms = self._clock.now_ms()
        before = (each for each in self._jobs.views(self._kind.name) if each.scheduled)
        last_ms = max(self._looked_ms, next((each.started_ms for each in before), 0))
        if now_ms - last_ms < self._period_s * 1000:
            return False
        self._looked_ms = now_ms
        if not any(True for _ in self._kind.topics()):
            return False
        try:
            self._jobs.begin(self._kind, self._kind.work(pb.KeepLatestJob()), {}, scheduled=True)
        except JobRunningError:
            return False
        return True
