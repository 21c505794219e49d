"""Jobs: long pieces of work on the server."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - `from_wire` reads the annotations
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kvcq_client.arguments import checked
from kvcq_client.errors import UnavailableError
from kvcq_client.pb.v1 import jobs_pb2 as pb
from kvcq_client.transport import Blocking, blocking, blocking_iterator
from kvcq_client.wire import from_wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from google.protobuf.message import Message

    from kvcq_client.transport import Connection


class JobStatus(Enum):
    """The state of a job. All but RUNNING are final."""

    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class JobFinding:
    """One fault that a job found."""

    fault: str  # such as "damaged record"
    place: str  # a file below the store's directory, or a column family
    topic: str | None  # a topic or light queue; None where the fault belongs to none
    queue_id: int  # of the topic; 0 without one
    queue_offset: int | None
    physical_offset: int | None  # byte position in the server's commit log
    detail: str
    remedy: str  # follows "would", as in "would be rebuilt"
    count: int  # how many faults like this one; above 1 in the last finding of a long list


@dataclass(frozen=True, slots=True)
class Job:
    """A job at one moment. Times are ms since 1970."""

    job_id: str
    kind: str  # "compact", "scrub", "rebuild", "expire", "backup", "keep_latest", "backfill", ...
    arguments: Mapping[str, str]  # the arguments of its start
    status: JobStatus
    step: str  # the current step
    done: int  # in `unit`
    total: int | None  # in `unit`; None while it is not known
    unit: str  # such as "bytes"
    percent: float  # 0 to 100
    elapsed_s: float
    remaining_s: float | None  # estimate; None if unknown, and once the job has ended
    started_ms: int
    ended_ms: int | None  # None while it runs
    scheduled: bool  # the server started it, not a caller
    summary: str | None  # the result in a sentence, once it is done
    numbers: Mapping[str, int]  # the result in numbers; units are in their names
    findings: tuple[JobFinding, ...]  # at most 1,000; `list` leaves them out
    error: str | None  # why it failed or was cancelled


@checked()
class AsyncJobs:
    """Starts, watches and cancels jobs on the server.

    A call that starts a job returns at once, with the job as it is then. One job of each kind runs
    at a time: starting another one raises NotPossibleError with reason JOB_RUNNING and the running
    job's id in `metadata["jobId"]`. A start is sent once: after UnavailableError or DeadlineError
    look in `list` whether the job was started.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stub = connection.jobs

    async def compact(
        self,
        *,
        family: str | None = None,
        topic: str | None = None,
        timeout_s: float | None = None,
    ) -> Job:
        """Rewrite rows of RocksDB, so that expired and deleted ones release their disk space.

        `family`: "default", "index" or "offset"; None for the first two. `topic`: only rows of this
        topic or light queue. Raises NotFoundError.
        """
        wanted = pb.CompactJob(family=family, topic=topic)
        return await self._start(pb.StartJobRequest(compact=wanted), timeout_s)

    async def scrub(
        self,
        *,
        bytes_per_s: int | None = None,
        log_only: bool = False,
        timeout_s: float | None = None,
    ) -> Job:
        """Verify every record by its CRC and, unless `log_only`, every unit by its record.

        `bytes_per_s` limits how fast the log is read; None for the server's own limit.
        """
        wanted = pb.ScrubJob(bytes_per_s=bytes_per_s, log_only=log_only)
        return await self._start(pb.StartJobRequest(scrub=wanted), timeout_s)

    async def rebuild(
        self, topic: str, queue_id: int | None = None, *, timeout_s: float | None = None
    ) -> Job:
        """Write the units of a topic or light queue again from the log: of all its queues, or one.

        Raises NotFoundError.
        """
        wanted = pb.RebuildJob(topic=topic, queue_id=queue_id)
        return await self._start(pb.StartJobRequest(rebuild=wanted), timeout_s)

    async def expire(self, *, timeout_s: float | None = None) -> Job:
        """Delete segments of the log whose messages have all expired, whatever the hour."""
        return await self._start(pb.StartJobRequest(expire=pb.ExpireJob()), timeout_s)

    async def backup(
        self,
        target: str | None = None,
        *,
        bytes_per_s: int | None = None,
        link: bool = False,
        timeout_s: float | None = None,
    ) -> Job:
        """Copy the store to one of the places in the server's `backup_to`, or below one.

        `target` None: the first of them. `bytes_per_s` limits how fast the store is read; None for
        the server's own limit. `link`: hard links instead of copies of files that never change,
        where the target is on the same file system.
        """
        wanted = pb.BackupJob(target=target, bytes_per_s=bytes_per_s, link=link)
        return await self._start(pb.StartJobRequest(backup=wanted), timeout_s)

    async def keep_latest(self, topic: str | None = None, *, timeout_s: float | None = None) -> Job:
        """Hide all but the latest message of each key.

        `topic`: a topic, a light queue, or a prefix of light queues and `*`; None for all topics
        with `Retention.latest`. Raises NotFoundError.
        """
        wanted = pb.KeepLatestJob(topic=topic)
        return await self._start(pb.StartJobRequest(keep_latest=wanted), timeout_s)

    async def get(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """The job now, with its findings. Raises NotFoundError."""
        request = pb.GetJobRequest(job_id=job_id)
        return await self._job(self._stub.GetJob, request, timeout_s)

    async def list(self, kind: str | None = None, *, timeout_s: float | None = None) -> list[Job]:
        """Jobs of that kind, or of all kinds, the newest first, without findings.

        The server remembers the last 100 of each kind, also over a restart.
        """
        request = pb.ListJobsRequest(kind=kind)
        answer = await self._connection.call(self._stub.ListJobs, request, timeout_s)
        return [from_wire(Job, job) for job in answer.jobs]

    async def cancel(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """Ask the job to stop; it ends soon after. Does nothing if the job has ended.

        Raises NotFoundError.
        """
        request = pb.CancelJobRequest(job_id=job_id)
        return await self._job(self._stub.CancelJob, request, timeout_s)

    async def watch(self, job_id: str) -> AsyncIterator[Job]:
        """Yield the job now, each time it has advanced, and last of all when it has ended.

        Reconnects if the connection is lost; raises UnavailableError if the server does not come
        back within the client's timeout. Raises NotFoundError.
        """
        request = pb.WatchJobRequest(job_id=job_id)
        while True:
            try:
                async for message in self._connection.stream(self._stub.WatchJob, request):
                    job = from_wire(Job, message)
                    yield job
                    if job.status is not JobStatus.RUNNING:
                        return
            except UnavailableError:
                pass
            job = await self.get(job_id)  # waits for the server
            yield job
            if job.status is not JobStatus.RUNNING:
                return

    async def _start(self, request: pb.StartJobRequest, timeout_s: float | None) -> Job:
        return await self._job(self._stub.StartJob, request, timeout_s, may_repeat=False)

    async def _job(
        self,
        method: Callable[..., Awaitable[pb.Job]],
        request: Message,
        timeout_s: float | None,
        *,
        may_repeat: bool = True,
    ) -> Job:
        call = self._connection.call
        return from_wire(Job, await call(method, request, timeout_s, may_repeat=may_repeat))


class Jobs(Blocking[AsyncJobs]):
    __doc__ = AsyncJobs.__doc__

    compact = blocking(AsyncJobs.compact)
    scrub = blocking(AsyncJobs.scrub)
    rebuild = blocking(AsyncJobs.rebuild)
    expire = blocking(AsyncJobs.expire)
    backup = blocking(AsyncJobs.backup)
    keep_latest = blocking(AsyncJobs.keep_latest)
    get = blocking(AsyncJobs.get)
    list = blocking(AsyncJobs.list)
    cancel = blocking(AsyncJobs.cancel)
    watch = blocking_iterator(AsyncJobs.watch, 1)
