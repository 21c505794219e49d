"""Jobs over gRPC. Starting one may access the disk, so a worker does it; the rest is in memory."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import jobs_pb2 as pb
from kvcq_client.pb.v1 import jobs_pb2_grpc
from server.errors import ServerDrainingError
from server.wire import job_out
from server.workers import call_soon

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from google.protobuf.message import Message

    from server.edge import Context
    from server.jobs import Jobs
    from server.stage import Stage
    from server.workers import Pools

#: Interval at which a watcher gets the job's progress.
WATCH_S = 0.5


class JobService(jobs_pb2_grpc.JobServiceServicer):
    """The jobs of the served store."""

    def __init__(self, jobs: Jobs, pools: Pools, stage: Stage) -> None:
        self._jobs = jobs
        self._pools = pools
        self._stage = stage

    async def StartJob(self, request: pb.StartJobRequest, context: Context) -> pb.Job:
        name = request.WhichOneof("kind") or ""
        wanted = getattr(request, name) if name else None
        arguments = {} if wanted is None else _arguments_of(wanted)
        return job_out(await self._pools.steps.run(self._jobs.start, name, wanted, arguments))

    async def GetJob(self, request: pb.GetJobRequest, context: Context) -> pb.Job:
        return job_out(self._jobs.get(request.job_id))

    async def ListJobs(self, request: pb.ListJobsRequest, context: Context) -> pb.ListJobsResponse:
        found = self._jobs.views(request.kind)
        return pb.ListJobsResponse(jobs=[job_out(each, findings=False) for each in found])

    async def CancelJob(self, request: pb.CancelJobRequest, context: Context) -> pb.Job:
        return job_out(self._jobs.cancel(request.job_id))

    async def WatchJob(
        self, request: pb.WatchJobRequest, context: Context
    ) -> AsyncGenerator[pb.Job, None]:
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def ended(job_id: str) -> None:
            if job_id == request.job_id:
                call_soon(loop, changed.set)

        stop_listening = self._jobs.on_end(ended)
        stop_watching_stage = self._stage.on_change(changed.set)
        try:
            last: pb.Job | None = None
            while True:
                changed.clear()
                view = self._jobs.get(request.job_id)
                told = job_out(view)
                if last is None or _differ(told, last):
                    yield told
                    last = told
                if not view.is_running:
                    return
                if self._stage.is_draining:
                    raise ServerDrainingError
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), WATCH_S)
        finally:
            stop_listening()
            stop_watching_stage()


def _arguments_of(wanted: Message) -> dict[str, str]:
    """The fields that were set, as text."""
    return {field.name: str(value) for field, value in wanted.ListFields()}


def _differ(one: pb.Job, other: pb.Job) -> bool:
    """Whether they differ in more than the time."""
    return (one.status, one.step, one.done, one.total) != (
        other.status,
        other.step,
        other.done,
        other.total,
    )
