"""What a running store and a stopped one have in common for `kvcq migrate`.

Both answer with the same messages, so that the commands need not know which it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq_client.pb.v1 import migration_pb2 as pb

    #: Told what is being done, how much of it, and a remark.
    Watch = Callable[[str, float, str], None]

#: Between two looks at a job that is waited for.
POLL_S = 0.2


def job_of(status: pb.MigrationStatus, job_id: str) -> pb.MigrationJob | None:
    """The job of that id, or None."""
    return next((job for job in status.jobs if job.job_id == job_id), None)


def progress_of(job: pb.MigrationJob) -> tuple[str, float, str]:
    """Step, share done, and a remark, for a progress bar."""
    remark = f"{job.rows_per_s:,.0f} rows/s"
    if job.HasField("remaining_s"):
        remark += f", {job.remaining_s:,.0f} s left"
    if job.differences:
        remark += f", {job.differences:,} differences"
    return job.step, job.percent / 100, remark
