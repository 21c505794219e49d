"""The common interface of a running and a stopped store for `kvcq migrate`.

Both return the client's types, so the commands need not distinguish them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq_client import Job

    #: Called with the current step, its progress from 0 to 1, and a remark.
    Watch = Callable[[str, float, str], None]

#: Interval between two calls for the state of a job.
POLL_S = 0.2


def progress_of(job: Job) -> tuple[str, float, str]:
    """Arguments for a Watch: step, progress from 0 to 1, remark."""
    rows_per_s = job.numbers.get("rows", 0) / job.elapsed_s if job.elapsed_s else 0.0
    remark = f"{rows_per_s:,.0f} rows/s"
    if job.remaining_s is not None:
        remark += f", {job.remaining_s:,.0f} s left"
    if differences := job.numbers.get("differences"):
        remark += f", {differences:,} differences"
    return job.step, job.percent / 100, remark
