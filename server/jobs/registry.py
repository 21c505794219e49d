"""The jobs of one served store: running ones, and the last ones of each kind."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from migration.errors import UnknownJobError
from migration.jobs import Job, JobState, JobView
from server.errors import JobRunningError
from server.jobs.history import read_history, write_history
from server.workers import CLOSE_S
from store.errors import InvalidArgumentError, StoreClosedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from migration.jobs import JobList
    from server.jobs.kinds import Kind, Work
    from store.base import Clock
    from store.notes import Notes

logger = logging.getLogger(__name__)

#: Number of jobs kept of each kind.
KEPT_JOBS = 100
#: Kinds of jobs that only a migration starts.
MIGRATION_KINDS = ("backfill", "verify")


class _LastDone(NamedTuple):
    """The last successful job of a kind; without an id if there is none."""

    job_id: str = ""
    ended_ms: int = 0
    seconds: float = 0.0
    size: int = 0  # bytes read; for a backup its size; 0 if the kind counts no bytes
    failed_since: int = 0


class Jobs:
    """Starts jobs, one of a kind at a time, and remembers their results.

    Thread: any. Locks: `_lock`, never held while a job works or during disk access. Durability:
    finished jobs are known to the next process; one that a crash ended counts as failed.
    """

    def __init__(
        self, kinds: Iterable[Kind], notes: Notes, clock: Clock, kept: int = KEPT_JOBS
    ) -> None:
        """`kept`: how many jobs of each kind are remembered."""
        # Constant after construction.
        self._kept = kept
        self._kinds = {kind.name: kind for kind in kinds}
        self._names = sorted({*self._kinds, *MIGRATION_KINDS})
        self._notes = notes
        self._clock = clock
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        # Guarded by _lock. By id, in the order in which they began: those of earlier processes as
        # they were seen last.
        self._jobs: dict[str, Job | JobView] = {view.job_id: view for view in read_history(notes)}
        self._last_done = dict.fromkeys(self._names, _LastDone())
        for view in self._jobs.values():
            self._note_end(_view_of(view))
        self._listeners: set[Callable[[str], None]] = set()
        self._ended: Counter[tuple[str, str]] = Counter()
        self._closed = False

    def start(
        self,
        name: str,
        wanted: Any,  # noqa: ANN401 - the kind's own message
        arguments: Mapping[str, str],
    ) -> JobView:
        """Start a job of that kind. May access the disk.

        Raises InvalidArgumentError and other errors of the kind, JobRunningError while another one
        of the kind runs, StoreClosedError.
        """
        kind = self._kinds.get(name)
        if kind is None:
            known = ", ".join(sorted(self._kinds))
            raise InvalidArgumentError("kind", f"{name or 'nothing'!r} is not one of {known}")
        return self.begin(kind, kind.work(wanted), arguments)

    def begin(
        self, kind: Kind, work: Work, arguments: Mapping[str, str], *, scheduled: bool = False
    ) -> JobView:
        """Start the work as a job of the kind. May access the disk.

        `scheduled`: started by the server, independently of one that a user starts. Raises
        JobRunningError while another one of the kind runs, StoreClosedError, DiskFullError, and
        RuntimeError if the process cannot create more threads.
        """
        name = kind.name
        job = Job(name, self._clock, work, unit=kind.unit, arguments=arguments, scheduled=scheduled)
        job.when_ended(self._job_ended)
        with self._lock:
            if self._closed:
                raise StoreClosedError("the server's jobs")
            for other in self._jobs.values():
                if (other.kind, other.scheduled) == (name, scheduled) and other.is_running:
                    raise JobRunningError(name, other.job_id)
            self._jobs[job.job_id] = job
            self._forget(name)
        try:
            # Saved before it works, so that a job that a crash interrupts has a name.
            self._save()
            job.start()
        except Exception:  # it never runs: no room for the name, or no thread
            with self._lock:
                self._jobs.pop(job.job_id, None)
            with suppress(StoreError):
                self._save()
            raise
        return job.view()

    def follow(self, jobs: JobList) -> None:
        """Also list the jobs that run there, now or later."""
        jobs.follow(self._add)

    def _add(self, job: Job) -> None:
        with self._lock:
            self._jobs[job.job_id] = job
            self._forget(job.kind)
        job.when_ended(self._job_ended)
        self._save()

    def get(self, job_id: str) -> JobView:
        """The job. Raises UnknownJobError."""
        with self._lock:
            job = self._jobs.get(job_id)
        if job is None:
            raise UnknownJobError(job_id)
        return _view_of(job)

    def views(self, kind: str = "") -> list[JobView]:
        """Jobs of one kind or of all, newest first. Raises InvalidArgumentError."""
        if kind and kind not in self._names:
            known = ", ".join(self._names)
            raise InvalidArgumentError("kind", f"{kind!r} is not one of {known}")
        return [each for each in reversed(self._all()) if not kind or each.kind == kind]

    def cancel(self, job_id: str) -> JobView:
        """Cancel the job, which ends soon; a finished one does not change. Raises
        UnknownJobError."""
        with self._lock:
            job = self._jobs.get(job_id)
        if isinstance(job, Job):
            job.cancel()
        return self.get(job_id)

    def on_end(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call `listener` with the id of each job that ends, on its thread; it must be short.

        Returns a function that removes it.
        """
        with self._lock:
            self._listeners.add(listener)

        def take_back() -> None:
            with self._lock:
                self._listeners.discard(listener)

        return take_back

    def statistics(self) -> dict[str, float]:
        """Running jobs, jobs that ended since the start, and the last success, by kind."""
        with self._lock:
            jobs = list(self._jobs.values())
            ended, last_done = dict(self._ended), dict(self._last_done)
        found: dict[str, float] = {}
        for name in self._names:
            views = [_view_of(job) for job in jobs if job.kind == name and job.is_running]
            found[f"jobs.{name}.running"] = len(views)
            found[f"jobs.{name}.percent"] = views[-1].percent if views else 0.0
        for name, last in last_done.items():
            found[f"jobs.{name}.last_done_ms"] = last.ended_ms
            found[f"jobs.{name}.last_done_seconds"] = last.seconds
            found[f"jobs.{name}.last_done_bytes"] = last.size
            found[f"jobs.{name}.failed_since"] = last.failed_since
        for (name, state), count in ended.items():
            found[f"jobs.{name}.{state}"] = count
        return found

    def wait(self, job_id: str, timeout_s: float | None = None) -> JobView:
        """Block until the job has ended, or until the timeout. Raises UnknownJobError."""
        with self._lock:
            job = self._jobs.get(job_id)
        if isinstance(job, Job):
            job.wait(timeout_s)
        return self.get(job_id)

    def close(self) -> None:
        """Start no more, cancel running jobs, and wait for them, at most `CLOSE_S`. Blocks."""
        with self._lock:
            self._closed = True
            jobs = [job for job in self._jobs.values() if isinstance(job, Job) and job.is_running]
        for job in jobs:
            job.stop_soon()
        left = [job.kind for job in jobs if not job.wait(CLOSE_S)]
        if left:
            logger.warning("the server stops while jobs are still running: %s", ", ".join(left))

    def _all(self) -> list[JobView]:
        """Oldest first."""
        with self._lock:
            jobs = list(self._jobs.values())
        return list(map(_view_of, jobs))

    def _forget(self, kind: str) -> None:
        """Forget the oldest jobs of the kind that are too many; the newest is the last. Must hold
        _lock.

        The last successful one stays, however many failed since.
        """
        mine = [job_id for job_id, each in self._jobs.items() if each.kind == kind]
        for job_id in mine[: -self._kept]:
            if not self._jobs[job_id].is_running and job_id != self._last_done[kind].job_id:
                del self._jobs[job_id]

    def _note_end(self, view: JobView) -> None:
        """Must hold _lock; called in the order in which jobs ended."""
        last = self._last_done.get(view.kind)
        if last is None:
            return  # a kind that only an earlier version had
        if view.state is JobState.DONE:
            size = view.numbers.get("bytes", 0)
            last = _LastDone(view.job_id, view.ended_ms, view.elapsed_s, size)
        elif view.state is JobState.FAILED:
            last = last._replace(failed_since=last.failed_since + 1)
        self._last_done[view.kind] = last

    def _job_ended(self, job: Job) -> None:
        view = job.view()
        with self._lock:
            self._ended[view.kind, view.state.value] += 1
            self._note_end(view)
            listeners = tuple(self._listeners)
        self._save()
        for listener in listeners:
            listener(job.job_id)

    def _save(self) -> None:
        with self._saving:  # so that the last one to write knows of all
            write_history(self._notes, self._all())


def _view_of(job: Job | JobView) -> JobView:
    return job.view() if isinstance(job, Job) else job
