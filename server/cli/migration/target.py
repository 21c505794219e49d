"""What `kvcq migrate` works on: a running store over gRPC, or the directory of a stopped one.

Both answer with the same messages, so that the commands need not know which it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq_client.pb.v1 import migration_pb2 as pb
    from migration.release import Home
    from migration.state import FileLayout, RoutingPolicy, SideName

    #: Told what is being done, how much of it, and a remark.
    Watch = Callable[[str, float, str], None]

#: Between two looks at a job that is waited for.
POLL_S = 0.2


class Target(Protocol):
    """Where the steps are taken. Each raises CommandError."""

    def plan(self, layout: FileLayout | None, watch: Watch) -> pb.MigrationPlan: ...

    def status(self) -> pb.MigrationStatus: ...

    def start(
        self,
        routing: RoutingPolicy | None,
        layout: FileLayout | None,
        watch: Watch,
        *,
        adopt_only: bool,
        reclaim_unexpired: bool | None = None,
    ) -> pb.MigrationStepResponse: ...

    def verify(self, key_every: int) -> pb.MigrationStepResponse: ...

    def differences(self, limit: int) -> list[pb.Difference]: ...

    def cutover(self) -> pb.MigrationStepResponse: ...

    def rollback(self) -> pb.MigrationStepResponse: ...

    def finish(self) -> pb.MigrationStepResponse: ...

    def set_routing(self, routing: RoutingPolicy) -> pb.MigrationStepResponse: ...

    def cancel(self, job_id: str) -> pb.MigrationStepResponse: ...

    def resume(self, rebuild: SideName | None) -> pb.MigrationStepResponse: ...

    def release(self, home: Home | None) -> list[str]: ...

    @property
    def notes(self) -> list[str]:
        """What the steps so far did besides, for people."""
        ...

    def again(self, step: str, *options: str) -> str:
        """A step on the same store, for a shell."""
        ...

    def wait(self, job_id: str, watch: Watch) -> pb.MigrationStatus:
        """Until the job ended; the status then."""
        ...


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
