"""The jobs of a store that no server serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from server.jobs import StoreJobs
from tests.support.fake_clock import FakeClock

if TYPE_CHECKING:
    from migration.jobs import JobView
    from server.jobs import Jobs
    from store.base import Clock
    from store.message_store import MessageStore

#: Faster than any test: nothing waits.
FAST = 1 << 40


def store_jobs_of(
    store: MessageStore, clock: Clock | None = None, period_hours: float = 168.0
) -> StoreJobs:
    return StoreJobs(
        store,
        scrub_period_hours=period_hours,
        scrub_bytes_per_s=FAST,
        keep_latest_hours=24.0,
        clock=clock or FakeClock(),
    )


def jobs_of(store: MessageStore) -> Jobs:
    return store_jobs_of(store).jobs


def run(jobs: Jobs, name: str, wanted: Any) -> JobView:  # noqa: ANN401 - the kind's message
    """The job when it has ended."""
    return jobs.wait(jobs.start(name, wanted, {}).job_id, 60)
