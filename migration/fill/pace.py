"""Limits the processor time of a job that reads the log again while producers run.

While messages arrive, the job only uses a share of a processor. If it does not catch up with that,
the share grows.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from store.errors import StoreBusyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from migration.jobs import Job
    from store.log import CommitLog

#: Share of one processor while messages arrive; producers keep 0.8 of their speed.
_SHARE = 0.2
_SHARE_MOST = 0.6
_TREND_S = 5.0
_BUSY_WAIT_S = 0.02


def retry_while_side_busy(job: Job, action: Callable[[], object]) -> None:
    """Run `action`, and repeat it while the side is busy. Raises JobCancelledError, and any other
    error of `action`."""
    while True:
        try:
            action()
            return
        except StoreBusyError:
            job.pause(_BUSY_WAIT_S)


class Pace:
    """Limits work to its share of a processor while the log grows."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._share = _SHARE
        self._appended = log.appended_offset
        self._worked_s = time.thread_time()
        self._looked_s = time.monotonic()
        self._lag: int | None = None

    def after_batch(self, job: Job, lag: int) -> None:
        """Sleep as long as the share requires. `lag`: remaining bytes. Only processor time of this
        thread counts, not its waiting. Raises JobCancelledError."""
        worked_s = time.thread_time()
        used_s, self._worked_s = worked_s - self._worked_s, worked_s
        appended = self._log.appended_offset
        busy, self._appended = appended != self._appended, appended
        now_s = time.monotonic()
        if now_s - self._looked_s >= _TREND_S:
            if self._lag is not None and busy and lag >= self._lag:
                self._share = min(_SHARE_MOST, self._share + 0.1)
            self._lag, self._looked_s = lag, now_s
        if busy:
            job.pause(used_s * (1 - self._share) / self._share)
        else:
            job.check()
