"""A job: long work with an id, a thread, progress, and cancellation. Used for a migration's
backfill and verification, and for the jobs of a server."""

from __future__ import annotations

import enum
import logging
import threading
import uuid
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from migration.errors import JobCancelledError, UnknownJobError
from store.errors import StoreClosedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kvcq.inspect import Finding
    from store.base import Clock

logger = logging.getLogger(__name__)

#: Most jobs of one open store that are kept.
_KEPT_JOBS = 20
#: Findings of one job that are kept; the others are counted.
MOST_FINDINGS = 1000


class JobState(enum.Enum):
    """Whether a job runs, or how it ended."""

    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


class Outcome(NamedTuple):
    """The result of a job that succeeded."""

    summary: str  # one sentence
    numbers: Mapping[str, int]  # by name in snake_case, with units in the names
    findings: Sequence[Finding] = ()


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A snapshot of a job."""

    job_id: str
    kind: str
    unit: str
    arguments: Mapping[str, str]
    scheduled: bool
    state: JobState
    step: str
    done: int
    total: int
    started_ms: int
    ended_ms: int  # 0: running
    elapsed_s: float
    remaining_s: float | None  # None: unknown
    summary: str = ""
    numbers: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    error: str = ""

    @property
    def is_running(self) -> bool:
        return self.state is JobState.RUNNING

    @property
    def percent(self) -> float:
        if self.state is JobState.DONE:
            return 100.0
        return 100.0 * min(1.0, self.done / self.total) if self.total else 0.0

    def document(self) -> dict[str, Any]:
        """Plain values for the history of jobs, without findings."""
        document = asdict(replace(self, findings=()))
        document["state"] = self.state.value
        del document["findings"]
        return document

    @classmethod
    def of_document(cls, document: dict[str, Any]) -> JobView:
        """Inverse of `document`. Raises TypeError, ValueError and KeyError for an invalid one."""
        fields = dict(document)
        fields.pop("percent", None)  # in documents of version 0.1
        return cls(**{**fields, "state": JobState(fields["state"])})


class Job:
    """One run of some work on its own thread.

    Thread: the work itself calls `step`, `report`, `count` and `check`; callers use the other
    methods, from any thread. An error of the work is stored, and returned by `view`.
    """

    def __init__(
        self,
        kind: str,
        clock: Clock,
        work: Callable[[Job], Outcome | None],
        *,
        unit: str = "bytes",
        arguments: Mapping[str, str] | None = None,
        scheduled: bool = False,
    ) -> None:
        """`unit`: unit of progress. `scheduled`: started by the server itself."""
        # Constant after construction.
        self.job_id = uuid.uuid4().hex[:12]
        self.kind = kind
        self.scheduled = scheduled
        self._unit = unit
        self._arguments = dict(arguments or {})
        self._clock = clock
        self._work = work
        self._thread = threading.Thread(target=self._run, name=f"job-{kind}", daemon=True)
        self._cancelled = threading.Event()
        self._ended = threading.Event()
        self._began_s = clock.monotonic_s()
        self._began_ms = clock.now_ms()
        #: Ended by its owner, for a step or because the store closes, not by an operator.
        self.is_stopped = False
        # Guarded by _listening.
        self._listening = threading.Lock()
        self._listeners: list[Callable[[Job], None]] | None = []
        # Written by the job's thread; may be read by any.
        self._step = "begins"
        self._state = JobState.RUNNING
        self._error: BaseException | None = None
        self._outcome: Outcome | None = None
        self._done = self._total = 0
        self._numbers: dict[str, int] = {}
        self._step_began_s = self._began_s
        self._step_done = 0
        self._ended_s: float | None = None
        self._ended_ms = 0

    def start(self) -> Job:
        self._thread.start()
        return self

    # --- for the work ----------------------------------------------------------------------

    def step(self, name: str, done: int, total: int) -> None:
        """Begin the next step. Estimates start over."""
        self._step, self._done, self._total = name, done, total
        self._step_done, self._step_began_s = done, self._clock.monotonic_s()

    def report(self, done: int, total: int) -> None:
        """Set the progress of the step, in the job's unit."""
        self._done, self._total = done, total

    def count(self, **numbers: int) -> None:
        """Add to counters. `view` has them by name, also while the job runs."""
        self._numbers = self._numbers | {
            name: self._numbers.get(name, 0) + more for name, more in numbers.items()
        }

    def check(self) -> None:
        """Raises JobCancelledError after a cancellation. Must be called several times a second."""
        if self._cancelled.is_set():
            raise JobCancelledError(f"{self.kind} was cancelled")

    def pause(self, seconds: float) -> None:
        """Block for this time, or until a cancellation. Raises JobCancelledError."""
        self._cancelled.wait(seconds)
        self.check()

    # --- for others ------------------------------------------------------------------------

    def cancel(self) -> None:
        """Ask the job to end soon. If started again, it continues from its position. Repeatable."""
        self._cancelled.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until the job has ended. Returns False after `timeout_s`."""
        return self._ended.wait(timeout_s)

    def stop_soon(self) -> None:
        """Like `cancel`, by the job's owner."""
        self.is_stopped = True
        self.cancel()

    def stop(self) -> None:
        """Stop the job, and block until it has ended. Repeatable; must not be called by the job."""
        self.stop_soon()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def when_ended(self, listener: Callable[[Job], None]) -> None:
        """Call `listener` on the job's thread, after `view` has the result and before `wait`
        returns; at once if the job has ended."""
        with self._listening:
            if self._listeners is not None:
                self._listeners.append(listener)
                return
        listener(self)

    @property
    def error(self) -> BaseException | None:
        return self._error

    @property
    def is_running(self) -> bool:
        return self._state is JobState.RUNNING

    def view(self) -> JobView:
        now_s = self._clock.monotonic_s() if self._ended_s is None else self._ended_s
        state, outcome, numbers = self._state, self._outcome, self._numbers
        done, total = self._done, self._total
        gained = done - self._step_done
        remaining_s: float | None = None
        if state is JobState.RUNNING and gained > 0 and total >= done:
            remaining_s = (now_s - self._step_began_s) * (total - done) / gained
        return JobView(
            job_id=self.job_id,
            kind=self.kind,
            unit=self._unit,
            arguments=self._arguments,
            scheduled=self.scheduled,
            state=state,
            step=self._step,
            done=done,
            total=total,
            started_ms=self._began_ms,
            ended_ms=0 if state is JobState.RUNNING else self._ended_ms,
            elapsed_s=now_s - self._began_s,
            remaining_s=remaining_s,
            summary="" if outcome is None else outcome.summary,
            numbers=numbers if outcome is None else {**numbers, **outcome.numbers},
            findings=() if outcome is None else tuple(outcome.findings[:MOST_FINDINGS]),
            error="" if self._error is None else str(self._error),
        )

    def _run(self) -> None:
        state = JobState.DONE
        logger.debug("job %s, %s, begins: %s", self.job_id, self.kind, self._arguments)
        try:
            self._outcome = self._work(self)
        except JobCancelledError as error:
            self._error = error
            state = JobState.CANCELLED
        except StoreError as error:
            # Without a traceback: the error's text is enough.
            logger.warning("%s ended: %s", self.kind, error)
            self._error = error
            state = JobState.FAILED
        except Exception as error:
            logger.exception("%s ended", self.kind)
            self._error = error
            state = JobState.FAILED
        finally:
            self._ended_s, self._ended_ms = self._clock.monotonic_s(), self._clock.now_ms()
            self._state = state
            logger.debug("job %s, %s, ended: %s", self.job_id, self.kind, state.value)
            with self._listening:
                listeners, self._listeners = self._listeners or [], None
            try:
                for listener in listeners:
                    listener(self)
            finally:
                self._ended.set()


class JobList:
    """The last jobs of one open store. Only one step at a time may begin a job; any thread may
    read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: dict[str, Job] = {}
        self._followers: list[Callable[[Job], None]] = []
        #: Whether new jobs are rejected.
        self.closed = False

    def begin(self, kind: str, work: Callable[[Job], Outcome | None]) -> Job:
        """Create and start a job. Raises StoreClosedError."""
        if self.closed:
            raise StoreClosedError("the migration")
        job = Job(kind, self._clock, work)
        ended = [each.job_id for each in self.all() if not each.is_running]
        for job_id in ended[: max(0, len(self._jobs) + 1 - _KEPT_JOBS)]:
            del self._jobs[job_id]
        job.start()  # first: if that fails, the job is not listed
        self._jobs[job.job_id] = job
        for follower in self._followers:
            follower(job)
        return job

    def follow(self, follower: Callable[[Job], None]) -> None:
        """Call `follower` with each running job, and each that begins later."""
        self._followers.append(follower)
        for job in self.all():
            if job.is_running:
                follower(job)

    def job(self, job_id: str) -> Job:
        """The job with that id. Raises UnknownJobError."""
        try:
            return self._jobs[job_id]
        except KeyError:
            raise UnknownJobError(job_id) from None

    def all(self) -> list[Job]:
        """All jobs, oldest first."""
        return list(self._jobs.values())

    def close(self) -> None:
        """Reject new jobs, and ask running ones to end soon."""
        self.closed = True
        for job in self.all():
            job.stop_soon()

    def stop(self) -> None:
        """Stop all jobs, and block until they have ended."""
        for job in self.all():
            job.stop()
