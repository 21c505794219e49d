"""A long job: an id, a thread, progress for those who ask, a way to end it."""

from __future__ import annotations

import enum
import logging
import threading
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from migration.errors import JobCancelledError, UnknownJobError
from store.errors import StoreClosedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.base import Clock

logger = logging.getLogger(__name__)

_KEPT_JOBS = 20


class JobState(enum.Enum):
    """Whether a job runs, or how it ended."""

    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True)
class JobStatus:
    """A job as it is now."""

    job_id: str
    kind: str
    step: str
    state: JobState
    done_bytes: int  # of the log; or what else a job counts
    total_bytes: int
    rows: int  # messages of the log that were written on, or compared
    rows_per_s: float
    elapsed_s: float
    remaining_s: float | None  # None: not to be said yet
    differences: int
    error: str

    @property
    def percent(self) -> float:
        if self.state is JobState.DONE:
            return 100.0
        return 100.0 * min(1.0, self.done_bytes / self.total_bytes) if self.total_bytes else 0.0


class Job:
    """One run of a piece of work on a thread of its own.

    Thread: the work's own reports through `report`, `count` and `check`; the others ask.
    Failure: kept, and told by `status`; nothing else ends with it.
    """

    def __init__(
        self,
        kind: str,
        clock: Clock,
        work: Callable[[Job], None],
        *,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_end` is called on the job's thread when its status says how it ended, before `wait`
        returns."""
        # Constant after construction.
        self.job_id = uuid.uuid4().hex[:12]
        self.kind = kind
        self._clock = clock
        self._work = work
        self._on_end = on_end
        self._thread = threading.Thread(target=self._run, name=f"job-{kind}", daemon=True)
        self._cancelled = threading.Event()
        self._ended = threading.Event()
        self._began_s = clock.monotonic_s()
        # Written by the job's thread, read freely.
        self._step = "begins"
        self._state = JobState.RUNNING
        self._error: BaseException | None = None
        self._done = self._total = self._rows = 0
        self._step_began_s = self._began_s
        self._step_done = 0
        self._ended_s: float | None = None
        self.differences = 0

    def start(self) -> Job:
        self._thread.start()
        return self

    # --- for the work ----------------------------------------------------------------------

    def step(self, name: str, done: int, total: int) -> None:
        """Another step begins: estimates start anew."""
        self._step, self._done, self._total = name, done, total
        self._step_done, self._step_began_s = done, self._clock.monotonic_s()

    def report(self, done: int, total: int, rows: int = 0) -> None:
        """The step has come so far, and wrote or compared so many more rows."""
        self._done, self._total = done, total
        self._rows += rows

    def check(self) -> None:
        """Raises JobCancelledError once the job is to end."""
        if self._cancelled.is_set():
            raise JobCancelledError(f"{self.kind} was cancelled")

    def pause(self, seconds: float) -> None:
        """Wait, but not beyond a cancellation. Raises JobCancelledError."""
        self._cancelled.wait(seconds)
        self.check()

    # --- for others ------------------------------------------------------------------------

    def cancel(self) -> None:
        """The job is to end soon; it can be started again and goes on where it was."""
        self._cancelled.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until the job ended; whether it did in time."""
        return self._ended.wait(timeout_s)

    def stop(self) -> None:
        """Cancel, and wait for the end. Repeatable; never called by the job itself."""
        self.cancel()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    @property
    def error(self) -> BaseException | None:
        return self._error

    @property
    def is_running(self) -> bool:
        return self._state is JobState.RUNNING

    def status(self) -> JobStatus:
        now_s = self._clock.monotonic_s() if self._ended_s is None else self._ended_s
        elapsed_s = now_s - self._began_s
        step_s = now_s - self._step_began_s
        gained = self._done - self._step_done
        remaining_s: float | None = None
        if self._state is JobState.RUNNING and gained > 0 and self._total >= self._done:
            remaining_s = step_s * (self._total - self._done) / gained
        return JobStatus(
            self.job_id,
            self.kind,
            self._step,
            self._state,
            self._done,
            self._total,
            self._rows,
            self._rows / elapsed_s if elapsed_s > 0 else 0.0,
            elapsed_s,
            remaining_s,
            self.differences,
            "" if self._error is None else str(self._error),
        )

    def _run(self) -> None:
        state = JobState.DONE
        try:
            self._work(self)
        except JobCancelledError as error:
            self._error = error
            state = JobState.CANCELLED
        except StoreError as error:
            # It says all there is to know; where in the program it arose helps nobody.
            logger.warning("%s ended: %s", self.kind, error)
            self._error = error
            state = JobState.FAILED
        except Exception as error:
            logger.exception("%s ended", self.kind)
            self._error = error
            state = JobState.FAILED
        finally:
            self._ended_s = self._clock.monotonic_s()
            self._state = state
            try:
                self._on_end()
            finally:
                self._ended.set()


class JobList:
    """The jobs of one open store, the last ones. One step at a time begins one; anybody asks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: dict[str, Job] = {}
        #: No job begins any more.
        self.closed = False

    def begin(self, kind: str, work: Callable[[Job], None]) -> Job:
        """Raises StoreClosedError."""
        if self.closed:
            raise StoreClosedError("the migration")
        job = Job(kind, self._clock, work)
        ended = [each.job_id for each in self.all() if not each.is_running]
        for job_id in ended[: max(0, len(self._jobs) + 1 - _KEPT_JOBS)]:
            del self._jobs[job_id]
        job.start()  # first: one without a thread is none
        self._jobs[job.job_id] = job
        return job

    def job(self, job_id: str) -> Job:
        """Raises UnknownJobError."""
        try:
            return self._jobs[job_id]
        except KeyError:
            raise UnknownJobError(job_id) from None

    def all(self) -> list[Job]:
        """Oldest first."""
        return list(self._jobs.values())

    def close(self) -> None:
        """None begins from here on, and those that run are to end soon."""
        self.closed = True
        for job in self.all():
            job.cancel()

    def stop(self) -> None:
        """Cancel all, and wait for their end."""
        for job in self.all():
            job.stop()
