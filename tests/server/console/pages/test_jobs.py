"""Jobs: started with what their kind takes, looked at, cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq_client.pb.v1 import jobs_pb2 as pb
from kvcq_client.pb.v1 import jobs_pb2_grpc
from server.console.pages.jobs import Argument, kinds
from tests.support.held_jobs import WAIT_S, HeldKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.consoles import ConsoleClient
    from tests.support.serving import Served


@pytest.fixture
def held(served: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldKind]:
    """Compaction that goes on until the test lets it end."""
    kind = HeldKind()
    monkeypatch.setitem(served.serving.jobs.jobs._kinds, "compact", kind)
    yield kind
    kind.end.set()


def test_each_kind_of_the_api_has_a_form() -> None:
    field = pb.StartJobRequest.DESCRIPTOR.oneofs_by_name["kind"].fields
    assert set(kinds()) == {one.name for one in field}
    assert kinds()["compact"] == [Argument("family", "text"), Argument("topic", "text")]


async def test_no_jobs_yet(console: ConsoleClient) -> None:
    page = await console.get("/jobs")
    assert "No jobs." in page.text
    assert "/jobs/start" not in page.html


async def test_a_job_is_started_and_looked_at(served: Served, admin: ConsoleClient) -> None:
    form = {"kind": "compact", "compact.family": "default", "compact.topic": ""}
    page = await admin.follow(await admin.post("/jobs/start", form))
    assert "The job was started." in page.text
    assert "family default" in page.text
    stub = jobs_pb2_grpc.JobServiceStub(served.channel)
    [job] = (await stub.ListJobs(pb.ListJobsRequest())).jobs
    watched = [one async for one in stub.WatchJob(pb.WatchJobRequest(job_id=job.job_id))]
    job = watched[-1]
    page = await admin.get(f"/job?id={job.job_id}")
    assert "done" in page.text
    assert job.summary in page.text
    page = await admin.get("/jobs")
    assert f"/job?id={job.job_id}" in page.links


async def test_a_job_that_runs_is_cancelled(
    served: Served, admin: ConsoleClient, held: HeldKind
) -> None:
    answer = await admin.post("/jobs/start", {"kind": "compact"})
    assert held.half_way.wait(WAIT_S)
    page = await admin.follow(answer)
    assert "running" in page.text
    assert "5 / 10 steps" in page.text
    assert "50 %" in (await admin.get("/jobs")).text
    answer = await admin.post("/jobs/start", {"kind": "compact"})
    assert answer.status == 409
    assert "JOB_RUNNING" in answer.text
    job_id = page.html.partition('name="job" value="')[2].partition('"')[0]
    page = await admin.follow(await admin.post("/jobs/cancel", {"job": job_id}))
    assert "The job is being cancelled." in page.text
    stub = jobs_pb2_grpc.JobServiceStub(served.channel)
    async for _ in stub.WatchJob(pb.WatchJobRequest(job_id=job_id)):
        pass
    assert "cancelled" in (await admin.get(f"/job?id={job_id}")).text


async def test_a_job_that_failed_says_why(
    served: Served, admin: ConsoleClient, held: HeldKind
) -> None:
    held.error = OSError("the disk <is> gone")
    held.end.set()
    page = await admin.follow(await admin.post("/jobs/start", {"kind": "compact"}))
    stub = jobs_pb2_grpc.JobServiceStub(served.channel)
    [job] = (await stub.ListJobs(pb.ListJobsRequest())).jobs
    async for _ in stub.WatchJob(pb.WatchJobRequest(job_id=job.job_id)):
        pass
    for path in ("/jobs", f"/job?id={job.job_id}"):
        page = await admin.get(path)
        assert "failed" in page.text
        assert "the disk <is> gone" in page.text


async def test_a_job_that_cannot_be_started(served: Served, admin: ConsoleClient) -> None:
    for form, status, text in [
        ({"kind": "nothing"}, 400, "kind"),
        ({}, 400, "kind"),
        ({"kind": "compact", "compact.family": "none"}, 400, "family"),
        ({"kind": "compact", "compact.topic": "none"}, 404, "UNKNOWN_TOPIC"),
    ]:
        answer = await admin.post("/jobs/start", form)
        assert answer.status == status
        assert text in answer.text
        assert "No jobs." in (await admin.get("/jobs")).text


async def test_an_unknown_job(admin: ConsoleClient) -> None:
    assert (await admin.get("/job?id=none")).status == 404
    assert (await admin.post("/jobs/cancel", {"job": "none"})).status == 404
