"""Long pieces of work on the server. Values are messages of jobs.proto, in kvcq_client.pb.v1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.arguments import checked
from kvcq_client.errors import UnavailableError
from kvcq_client.pb.v1 import jobs_pb2 as pb
from kvcq_client.transport import Blocking, blocking, blocking_iterator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kvcq_client.transport import Connection


@checked()
class AsyncJobs:
    """Begins jobs of the server, and tells how they go.

    A call that begins one returns at once, with the job as it is then. One of a kind runs at a
    time: another one raises NotPossibleError with reason JOB_RUNNING, and its id in `metadata`.
    None is begun twice: after UnavailableError or DeadlineError look at `list`.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stub = connection.jobs

    async def compact(
        self, *, family: str = "", topic: str = "", timeout_s: float | None = None
    ) -> pb.Job:
        """Give back the space of what is expired or deleted in RocksDB."""
        wanted = pb.CompactJob(family=family, topic=topic)
        return await self.start(pb.StartJobRequest(compact=wanted), timeout_s=timeout_s)

    async def scrub(
        self, *, bytes_per_s: int = 0, log_only: bool = False, timeout_s: float | None = None
    ) -> pb.Job:
        """Verify each record by its CRC, and each unit by its record. 0: at the server's rate."""
        wanted = pb.ScrubJob(bytes_per_s=bytes_per_s, log_only=log_only)
        return await self.start(pb.StartJobRequest(scrub=wanted), timeout_s=timeout_s)

    async def rebuild(
        self, topic: str, queue_id: int | None = None, *, timeout_s: float | None = None
    ) -> pb.Job:
        """Write units of a topic or light queue again from the log; of all its queues, or one."""
        wanted = pb.RebuildJob(topic=topic, queue_id=queue_id)
        return await self.start(pb.StartJobRequest(rebuild=wanted), timeout_s=timeout_s)

    async def expire(self, *, timeout_s: float | None = None) -> pb.Job:
        """Drop segments of the log whose messages have all expired, whatever the hour."""
        request = pb.StartJobRequest(expire=pb.ExpireJob())
        return await self.start(request, timeout_s=timeout_s)

    async def backup(
        self,
        target: str = "",
        *,
        bytes_per_s: int = 0,
        link: bool = False,
        timeout_s: float | None = None,
    ) -> pb.Job:
        """Copy the store to where the server keeps backups, or below. 0: at the server's rate.

        `link`: hard links of what never changes, where that can be.
        """
        wanted = pb.BackupJob(target=target, bytes_per_s=bytes_per_s, link=link)
        return await self.start(pb.StartJobRequest(backup=wanted), timeout_s=timeout_s)

    async def keep_latest(self, topic: str = "", *, timeout_s: float | None = None) -> pb.Job:
        """Hide all but the latest message of each key: in a topic's queues, in a light queue, or in
        those whose names begin with what stands before a *. Without one: in all topics with
        `retention_latest`."""
        wanted = pb.KeepLatestJob(topic=topic)
        return await self.start(pb.StartJobRequest(keep_latest=wanted), timeout_s=timeout_s)

    async def start(self, request: pb.StartJobRequest, *, timeout_s: float | None = None) -> pb.Job:
        """Begin what the request says."""
        return await self._connection.call(
            self._stub.StartJob, request, timeout_s, may_repeat=False
        )

    async def get(self, job_id: str, *, timeout_s: float | None = None) -> pb.Job:
        """The job now, with what it found. Raises NotFoundError."""
        request = pb.GetJobRequest(job_id=job_id)
        return await self._connection.call(self._stub.GetJob, request, timeout_s)

    async def list(self, kind: str = "", *, timeout_s: float | None = None) -> list[pb.Job]:
        """Of a kind, or all that are remembered, newest first; without what they found."""
        request = pb.ListJobsRequest(kind=kind)
        answer = await self._connection.call(self._stub.ListJobs, request, timeout_s)
        return [*answer.jobs]

    async def cancel(self, job_id: str, *, timeout_s: float | None = None) -> pb.Job:
        """The job is to end soon; one that has ended stays as it is. Raises NotFoundError."""
        request = pb.CancelJobRequest(job_id=job_id)
        return await self._connection.call(self._stub.CancelJob, request, timeout_s)

    async def watch(self, job_id: str) -> AsyncIterator[pb.Job]:
        """The job now, then each time it has come further, and last of all when it has ended.

        A connection that is lost is made again; when the server is not back within the client's
        timeout, UnavailableError is raised. Raises NotFoundError.
        """
        request = pb.WatchJobRequest(job_id=job_id)
        while True:
            try:
                async for job in self._connection.stream(self._stub.WatchJob, request):
                    yield job
                    if job.status != pb.JOB_STATUS_RUNNING:
                        return
            except UnavailableError:
                pass
            job = await self.get(job_id)  # waits for the server
            yield job
            if job.status != pb.JOB_STATUS_RUNNING:
                return


class Jobs(Blocking[AsyncJobs]):
    __doc__ = AsyncJobs.__doc__

    compact = blocking(AsyncJobs.compact)
    scrub = blocking(AsyncJobs.scrub)
    rebuild = blocking(AsyncJobs.rebuild)
    expire = blocking(AsyncJobs.expire)
    backup = blocking(AsyncJobs.backup)
    keep_latest = blocking(AsyncJobs.keep_latest)
    start = blocking(AsyncJobs.start)
    get = blocking(AsyncJobs.get)
    list = blocking(AsyncJobs.list)
    cancel = blocking(AsyncJobs.cancel)
    watch = blocking_iterator(AsyncJobs.watch, 1)
