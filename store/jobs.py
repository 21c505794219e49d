"""Periodic jobs. The only module that knows the scheduler library."""

from __future__ import annotations

import datetime
import logging
import time
from math import inf
from typing import TYPE_CHECKING

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from store.base import Lock
from store.errors import LACKS, StoreClosedError

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)
# The scheduler warns of runs skipped because the previous one is still running; that is intended.
logging.getLogger("apscheduler.scheduler").setLevel(logging.ERROR)

_WORKERS = 2
#: How far the wall clock is set back at least for it to be noticed, and how often it is looked at.
_SET_BACK_S = 1.0
_LOOK_S = 1.0


class _Scheduler(BackgroundScheduler):  # type: ignore[misc] # the library has no types
    """A scheduler that also runs overdue jobs when the wall clock was set back. The library only
    looks at the wall clock."""

    _ahead_s = -inf  # wall clock minus monotonic clock

    def _process_jobs(self) -> float:
        ahead_s = time.time() - time.monotonic()
        if ahead_s < self._ahead_s - _SET_BACK_S:
            for job in self.get_jobs():
                job.modify(next_run_time=datetime.datetime.now(datetime.UTC))
        self._ahead_s = ahead_s
        wait_s = super()._process_jobs()
        return _LOOK_S if wait_s is None else min(wait_s, _LOOK_S)


class Jobs:
    """Runs each job at its interval, on threads of its own, one run of a job at a time.

    A run that comes due while the last one continues is skipped. A job that raises is logged and
    counted, and runs again at its next time. A repeated error is logged once, and so is its end.
    Thread: "jobs_…" run the jobs; the scheduler's thread only starts them. Methods: any thread.
    Locks: `_lock` for the counts, never held while a job runs.
    """

    def __init__(self) -> None:
        # Constant after construction.
        self._scheduler = _Scheduler(
            # Intervals do not depend on the zone; naming one spares a search for the local one.
            timezone=datetime.UTC,
            executors={
                "default": ThreadPoolExecutor(_WORKERS, {"thread_name_prefix": "jobs"}),
            },
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            daemon=True,
        )
        self._lock = Lock()
        # Guarded by _lock.
        self._runs: dict[str, int] = {}
        self._failures: dict[str, int] = {}
        self._last_error: dict[str, str] = {}
        self._stopped = False

    def add(self, name: str, interval_s: float, action: Callable[[], object]) -> None:
        """Run `action` every `interval_s` seconds, first after one interval."""
        with self._lock:
            assert name not in self._runs, f"job {name!r} is there already"
            self._runs[name] = self._failures[name] = 0
            self._last_error[name] = ""
        self._scheduler.add_job(
            self._run, "interval", seconds=interval_s, args=(name, action), id=name, name=name
        )

    def start(self) -> None:
        self._scheduler.start()

    def stop(self) -> None:
        """Start no more runs, and wait for current ones. Repeatable."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        if self._scheduler.running:
            self._scheduler.shutdown(wait=True)

    def runs(self, name: str) -> int:
        """Number of finished runs, failed ones included."""
        with self._lock:
            return self._runs[name]

    def failures(self, name: str) -> int:
        """Number of failed runs."""
        with self._lock:
            return self._failures[name]

    def _run(self, name: str, action: Callable[[], object]) -> None:
        try:
            action()
        except StoreClosedError:
            self._count(name, "")  # while it ran: there is nothing left to do
        except LACKS as error:
            # By a fixed name, because the error's text names another file each time.
            if self._count(name, "lack"):
                logger.warning("job %r is tried again: %s", name, str(error))
        except Exception as error:
            if self._count(name, f"{type(error).__name__}: {error}"):
                logger.exception("job %r raised; it stays scheduled", name)
        else:
            if self._count(name, ""):
                logger.info("job %r runs again", name)

    def _count(self, name: str, error: str) -> bool:
        """Count a run; `error` if it failed. Returns whether the error differs from the last
        one."""
        with self._lock:
            self._runs[name] += 1
            self._failures[name] += bool(error)
            before, self._last_error[name] = self._last_error[name], error
            return error != before
