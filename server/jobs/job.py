"""A job as it is seen from outside, while it runs and after."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from migration.jobs import Job as Thread
from migration.jobs import JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kvcq.inspect import Finding
    from server.jobs.kinds import Outcome, Running, Work
    from store.base import Clock

logger = logging.getLogger(__name__)

#: Findings of one job that are kept; the others are counted.
MOST_FINDINGS = 1000


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A job at one moment."""

    job_id: str
    kind: str
    unit: str
    arguments: Mapping[str, str]
    scheduled: bool
    state: JobState
    step: str
    done: int
    total: int
    percent: float
    started_ms: int
    ended_ms: int  # 0: it runs
    elapsed_s: float
    remaining_s: float | None  # None: not to be said yet
    summary: str = ""
    numbers: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    error: str = ""

    @property
    def is_running(self) -> bool:
        return self.state is JobState.RUNNING

    def document(self) -> dict[str, Any]:
        """For the history: plain values, without the findings."""
        document = asdict(replace(self, findings=()))
        document["state"] = self.state.value
        del document["findings"]
        return document

    @classmethod
    def of_document(cls, document: dict[str, Any]) -> JobView:
        """Inverse of `document`. Raises TypeError, ValueError and KeyError for another's."""
        return cls(**{**document, "state": JobState(document["state"])})


class Job:
    """A job that was begun in this process.

    Thread: any. Its work runs on a thread of its own, see migration/jobs.py.
    """

    def __init__(
        self,
        kind: str,
        unit: str,
        arguments: Mapping[str, str],
        clock: Clock,
        work: Work,
        on_end: Callable[[Job], None],
        *,
        scheduled: bool,
    ) -> None:
        # Constant after construction.
        self.kind = kind
        self._unit = unit
        self._arguments = dict(arguments)
        self.scheduled = scheduled
        self._clock = clock
        self._work = work
        self._started_ms = clock.now_ms()
        self._thread = Thread(kind, clock, self._run, on_end=lambda: on_end(self))
        # Written by the job's thread, read freely.
        self._ended_ms = 0
        self._outcome: Outcome | None = None

    @property
    def job_id(self) -> str:
        return self._thread.job_id

    @property
    def is_running(self) -> bool:
        return self._thread.is_running

    def start(self) -> None:
        self._thread.start()

    def cancel(self) -> None:
        """It is to end soon. Repeatable."""
        self._thread.cancel()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until it ended; whether it did in time."""
        return self._thread.wait(timeout_s)

    def view(self) -> JobView:
        status = self._thread.status()
        outcome = self._outcome
        return JobView(
            job_id=self.job_id,
            kind=self.kind,
            unit=self._unit,
            arguments=self._arguments,
            scheduled=self.scheduled,
            state=status.state,
            step=status.step,
            done=status.done_bytes,
            total=status.total_bytes,
            percent=status.percent,
            started_ms=self._started_ms,
            ended_ms=0 if status.state is JobState.RUNNING else self._ended_ms,
            elapsed_s=status.elapsed_s,
            remaining_s=status.remaining_s,
            summary="" if outcome is None else outcome.summary,
            numbers={} if outcome is None else outcome.numbers,
            findings=() if outcome is None else tuple(outcome.findings[:MOST_FINDINGS]),
            error=status.error,
        )

    def _run(self, running: Running) -> None:
        logger.debug("job %s, %s, begins: %s", self.job_id, self.kind, self._arguments)
        try:
            self._outcome = self._work(running)
        finally:
            self._ended_ms = self._clock.now_ms()
            summary = "no result" if self._outcome is None else self._outcome.summary
            logger.debug("job %s, %s, ended: %s", self.job_id, self.kind, summary)
