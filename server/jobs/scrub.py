"""The job `scrub`: reads the log of the running store, and verifies records and units.

A pass keeps to a rate, and, while messages arrive, also to a share of one processor, because its
work takes interpreter time from serving them. A manual scrub reads as fast as that share allows,
or, with a requested rate, at that rate whatever it costs. The server scrubs once in a period, by
default a week, spread over most of it: see scrub_schedule.py.
"""

from __future__ import annotations

import logging
import shlex
import threading
from time import thread_time
from typing import TYPE_CHECKING

from kvcq.inspect import Kind, Scrub
from migration.jobs import Outcome
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq.inspect import Finding
    from kvcq_client.pb.v1 import jobs_pb2 as pb
    from migration.jobs import Job
    from server.jobs.kinds import Work
    from store.message_store import MessageStore

logger = logging.getLogger(__name__)

#: Most findings of a pass that are logged; the job counts all.
_LOGGED = 20
#: Read at a time: a millisecond or two of work, then a pause that keeps the rate.
BURST_BYTES = 256 << 10
MOST_BYTES_PER_S = 1 << 40
#: The rate by default: a third of what a slow disk reads.
BYTES_PER_S = 32 << 20
#: Share of one processor while messages arrive.
SHARE = 0.02


class ScrubNumbers:
    """Results of scrubbing since the server started, for operators. Thread: any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals = dict.fromkeys(("records", "bytes", "units", "faults"), 0)

    def add(self, **gained: int) -> None:
        with self._lock:
            for name, amount in gained.items():
                self._totals[name] += amount

    def statistics(self) -> dict[str, float]:
        with self._lock:
            return {f"scrub.{name}": total for name, total in self._totals.items()}


class ScrubWork:
    """A pass, or the rest of one, at a given pace. Used by one job's thread."""

    def __init__(
        self,
        scrub: Scrub,
        kind: ScrubKind,
        end: int,
        rate: Callable[[int], float],
        saved: Callable[[Scrub], None] = lambda _: None,
        *,
        share: float = SHARE,
        cpu_s: Callable[[], float] = thread_time,
    ) -> None:
        """`rate` returns how many bytes a second may be read now; `end`, a physical offset, minus
        the position is left; `saved` is called after each burst. `share`: of one processor, while
        messages arrive; 1 for no limit."""
        self._scrub = scrub
        self._kind = kind
        self._end = end
        self._rate = rate
        self._saved = saved
        self._share = share
        self._cpu_s = cpu_s
        self._logged = 0

    def run(self, running: Job) -> Outcome:
        scrub, end = self._scrub, self._end
        start = scrub.position
        running.step("verify records and units", 0, max(0, end - start))
        goes_on = start < end
        appended, worked_s = self._kind.appended(), self._cpu_s()
        while goes_on:
            before = (scrub.records, scrub.bytes, scrub.units, _faults_of(scrub))
            try:
                goes_on = scrub.advance(end, BURST_BYTES)
            finally:
                after = (scrub.records, scrub.bytes, scrub.units, _faults_of(scrub))
                gained = [new - old for new, old in zip(after, before, strict=True)]
                self._kind.numbers.add(
                    records=gained[0], bytes=gained[1], units=gained[2], faults=gained[3]
                )
                self._saved(scrub)
            if gained[3]:
                self._log(scrub.findings)
            running.report(min(scrub.position, end) - start, end - start)
            if goes_on:
                pause_s = gained[1] / self._rate(end - scrub.position)
                now_appended, now_s = self._kind.appended(), self._cpu_s()
                if now_appended != appended:
                    pause_s = max(pause_s, (now_s - worked_s) * (1 / self._share - 1))
                running.pause(pause_s)
                appended, worked_s = now_appended, self._cpu_s()
        return outcome_of(scrub)

    def _log(self, findings: list[Finding]) -> None:
        for finding in findings[self._logged : _LOGGED]:
            logger.error("scrub: %s; %s", finding, _advice(finding))
        if self._logged <= _LOGGED < len(findings):
            logger.error("scrub: more faults are not logged; `kvcq job show` counts them")
        self._logged = len(findings)


class ScrubKind:
    """Scrubs the whole log once."""

    name = "scrub"
    unit = "bytes"

    def __init__(self, store: MessageStore, bytes_per_s: int = BYTES_PER_S) -> None:
        """`bytes_per_s`: the rate for requests without one."""
        self._store = store
        self._bytes_per_s = bytes_per_s
        self.numbers = ScrubNumbers()

    def work(self, wanted: pb.ScrubJob) -> Work:
        """Raises InvalidArgumentError."""
        rate = wanted.bytes_per_s or self._bytes_per_s
        share = 1.0 if wanted.bytes_per_s else SHARE
        if not 0 < rate <= MOST_BYTES_PER_S:
            raise InvalidArgumentError("bytes_per_s", f"{rate} is not from 1 to {MOST_BYTES_PER_S}")

        def scrub(running: Job) -> Outcome:
            pass_ = self.scrub_from(0, log_only=wanted.log_only)
            end = self._store.queues.dispatched_offset
            return ScrubWork(pass_, self, end, lambda _: rate, share=share).run(running)

        return scrub

    def scrub_from(self, position: int, *, log_only: bool = False) -> Scrub:
        """A pass that begins at a physical offset, or at the log's start if that is later."""
        store = self._store
        return Scrub(store.log, store.queues, lambda: store.admission, position, log_only=log_only)

    def appended(self) -> int:
        """Physical end of the log."""
        return self._store.log.appended_offset

    def statistics(self) -> dict[str, float]:
        return self.numbers.statistics()


def _faults_of(scrub: Scrub) -> int:
    return scrub.damaged_records + scrub.wrong_units


def _advice(finding: Finding) -> str:
    if finding.kind is Kind.DAMAGED_RECORD:
        return "restore the segment from a backup or a replica"
    return (
        f"rebuild the queue: {shlex.join(['kvcq', 'job', 'start', 'rebuild', finding.topic or ''])}"
    )


def outcome_of(scrub: Scrub) -> Outcome:
    """The result of a pass."""
    faults = _faults_of(scrub)
    units = f" and {scrub.units:,} units" if scrub.units else ""
    found = f"{faults:,} are damaged" if faults else "no faults found"
    return Outcome(
        f"{scrub.records:,} records{units} verified: {found}",
        {
            "records": scrub.records,
            "bytes": scrub.bytes,
            "units": scrub.units,
            "damaged_records": scrub.damaged_records,
            "wrong_units": scrub.wrong_units,
        },
        scrub.findings,
    )
