"""server/services/jobs.py over real gRPC, and the client's calls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from kvcq_client import (
    AsyncClient,
    Client,
    DeadlineError,
    InvalidArgumentError,
    Job,
    JobStatus,
    NotFoundError,
    NotPossibleError,
    UnavailableError,
)
from kvcq_client.pb.v1 import jobs_pb2 as pb
from kvcq_client.pb.v1 import jobs_pb2_grpc
from tests.support.held_jobs import HeldKind
from tests.support.rpc_errors import error_info
from tests.support.serving import serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.serving import Served


def hold(served: Served) -> HeldKind:
    """From now on compactions of this server wait for the test."""
    kind = HeldKind()
    served.serving.jobs.jobs._kinds["compact"] = kind
    return kind


async def test_a_job_is_started_watched_and_found_again(served: Served) -> None:
    async with AsyncClient(served.target, timeout_s=10) as client:
        await client.create_topic("orders")
        began = await client.jobs.compact(family="index", topic="orders")
        assert (began.kind, dict(began.arguments)) == (
            "compact",
            {"family": "index", "topic": "orders"},
        )
        watched = [job async for job in client.jobs.watch(began.job_id)]
        assert watched[-1].status is JobStatus.DONE
        assert set(watched[-1].numbers) == {"bytes_before", "bytes_after"}
        assert await client.jobs.get(began.job_id) == watched[-1]
        assert await client.jobs.list() == await client.jobs.list("compact") == [watched[-1]]
        numbers = await client.statistics()
        assert numbers["server.jobs.compact.done"] == 1


async def test_a_watcher_is_told_of_each_step_and_of_the_end(served: Served) -> None:
    kind = hold(served)
    async with AsyncClient(served.target, timeout_s=10) as client:
        job_id = (await client.jobs.compact()).job_id
        seen: list[Job] = []
        async for job in client.jobs.watch(job_id):
            seen.append(job)
            if job.step == "half":
                kind.end.set()
        assert [job.status for job in seen[-2:]] == [JobStatus.RUNNING, JobStatus.DONE]
        assert (seen[-2].done, seen[-2].total, seen[-1].done) == (5, 10, 10)


async def test_a_second_one_is_told_of_the_first(served: Served) -> None:
    kind = hold(served)
    async with AsyncClient(served.target, timeout_s=10) as client:
        job_id = (await client.jobs.compact()).job_id
        with pytest.raises(NotPossibleError) as refused:
            await client.jobs.compact()
        assert refused.value.reason == "JOB_RUNNING"
        assert refused.value.metadata["jobId"] == job_id
        cancelled = await client.jobs.cancel(job_id)
        assert cancelled.job_id == job_id
        watched = [job async for job in client.jobs.watch(job_id)]
        assert watched[-1].status is JobStatus.CANCELLED
        assert not kind.end.is_set()


async def test_a_server_that_ends_cancels_its_jobs_and_remembers_them(tmp_path: Path) -> None:
    async with serving(tmp_path / "store") as served:
        hold(served)
        stub = jobs_pb2_grpc.JobServiceStub(served.channel)
        job = await stub.StartJob(pb.StartJobRequest(compact=pb.CompactJob()))
        watch: Any = stub.WatchJob(pb.WatchJobRequest(job_id=job.job_id))
        assert (await watch.read()).job_id == job.job_id
        served.server.stop()

        async def rest() -> None:
            while await watch.read() is not grpc.aio.EOF:  # type: ignore[attr-defined]
                pass
            await watch

        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await rest()
        assert error_info(ended.value).reason == "DRAINING"
    async with (
        serving(tmp_path / "store") as served,
        AsyncClient(served.target, timeout_s=10) as client,
    ):
        found = await client.jobs.get(job.job_id)
        assert found.status is JobStatus.CANCELLED
        assert [each async for each in client.jobs.watch(job.job_id)] == [found]


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda jobs: jobs._start(pb.StartJobRequest(), None), "kind"),
        (lambda jobs: jobs.compact(family="none"), "family"),
        (lambda jobs: jobs.list("none"), "kind"),
    ],
)
async def test_what_makes_no_sense_is_refused_with_its_field(
    served: Served,
    call: Any,  # noqa: ANN401 - a call of AsyncJobs
    field: str,
) -> None:
    async with AsyncClient(served.target, timeout_s=10) as client:
        with pytest.raises(InvalidArgumentError) as refused:
            await call(client.jobs)
        assert refused.value.field == field
        assert await client.jobs.list() == []


async def test_no_such_job_and_no_such_topic(served: Served) -> None:
    async with AsyncClient(served.target, timeout_s=10) as client:
        for call in (client.jobs.get, client.jobs.cancel):
            with pytest.raises(NotFoundError) as refused:
                await call("none")
            assert refused.value.reason == "UNKNOWN_JOB"
        with pytest.raises(NotFoundError):
            _ = [job async for job in client.jobs.watch("none")]
        with pytest.raises(NotFoundError) as refused:
            await client.jobs.compact(topic="none")
        assert refused.value.reason == "UNKNOWN_TOPIC"


async def test_the_blocking_client_does_the_same(served: Served) -> None:
    def work() -> None:
        with Client(served.target, timeout_s=10) as client:
            began = client.jobs.compact()
            last = list(client.jobs.watch(began.job_id))[-1]
            assert last.status is JobStatus.DONE
            assert [job.job_id for job in client.jobs.list()] == [began.job_id]

    await asyncio.to_thread(work)


async def test_a_watch_ends_when_the_server_does_not_come_back(tmp_path: Path) -> None:
    async with serving(tmp_path / "store") as served:
        hold(served)
        async with AsyncClient(served.target, timeout_s=2.0) as client:
            job_id = (await client.jobs.compact()).job_id

            async def watch() -> None:
                async for _ in client.jobs.watch(job_id):
                    served.server.stop()

            with pytest.raises((UnavailableError, DeadlineError)):
                await watch()
