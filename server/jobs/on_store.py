"""The kinds of jobs on a served store, and the scheduled ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.jobs.compact import Compact
from server.jobs.expire import Expire
from server.jobs.keep_latest import KeepLatest
from server.jobs.latest_schedule import LatestSchedule
from server.jobs.rebuild import Rebuild
from server.jobs.registry import Jobs
from server.jobs.scrub import BYTES_PER_S, ScrubKind
from server.jobs.scrub_schedule import ScrubSchedule
from store.base import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from migration.jobs import JobList
    from server.jobs.kinds import Kind
    from store.base import Clock
    from store.message_store import MessageStore


class StoreJobs:
    """The jobs of one store, and its scrubbing."""

    def __init__(
        self,
        store: MessageStore,
        *,
        scrub_period_hours: float,
        keep_latest_hours: float,
        scrub_bytes_per_s: int = BYTES_PER_S,
        others: Sequence[Kind] = (),
        migration: JobList | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`others`: kinds that need more than the store. `migration`: its jobs, if it has one."""
        clock = clock or SystemClock()
        scrub = ScrubKind(store, scrub_bytes_per_s)
        latest = KeepLatest(store)
        kinds: list[Kind] = [
            Compact(store),
            scrub,
            Rebuild(store),
            Expire(store),
            latest,
            *others,
        ]
        self.jobs = Jobs(kinds, store.notes, clock)
        if migration is not None:
            self.jobs.follow(migration)
        self.scrubbing = ScrubSchedule(
            store,
            self.jobs,
            scrub,
            clock,
            period_s=scrub_period_hours * 3600,
            bytes_per_s=scrub_bytes_per_s,
        )
        self._scrub = scrub
        self.latest = LatestSchedule(self.jobs, latest, clock, period_s=keep_latest_hours * 3600)

    def start(self) -> None:
        """Start scheduled jobs from now on."""
        self.scrubbing.start()
        self.latest.start()

    def statistics(self) -> dict[str, float]:
        """Metrics for operators, by name."""
        return {
            **self.jobs.statistics(),
            **self._scrub.statistics(),
            **self.scrubbing.statistics(),
        }

    def close(self) -> None:
        """Start no more, cancel running jobs, and wait for them, at most some seconds. Blocks."""
        self.scrubbing.close()
        self.latest.close()
        self.jobs.close()
