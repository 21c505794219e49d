"""The migration over real gRPC, and the command line on a running and on a stopped store."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from kvcq_client.pb.v1 import jobs_pb2, jobs_pb2_grpc, kvcq_pb2, migration_pb2_grpc
from kvcq_client.pb.v1 import migration_pb2 as pb
from migration.fill.pace import Pace
from migration.jobs import Job
from migration.state.phase import Phase
from migration.state.state import read_state
from migration.steps.verify import Verification
from tests.support.command_line import kvcq
from tests.support.golden_store import INDEX_ENTRIES, INDEX_SLOTS, UNITS_PER_FILE, extract_golden
from tests.support.migrating import SEGMENT_BYTES, make_on_files
from tests.support.rpc_errors import error_info
from tests.support.serving import serving

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from migration.steps.verify import Verified

SIZES = [
    f"--units-per-file={UNITS_PER_FILE}",
    f"--index-slots={INDEX_SLOTS}",
    f"--index-entries={INDEX_ENTRIES}",
]
STORE = {"segment_bytes": SEGMENT_BYTES}


def migrate(*arguments: str | Path) -> Result:
    return kvcq("migrate", *arguments)


def answer(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result.stdout or result.stderr.splitlines()[-1])
    return document


async def put(served: Any, count: int) -> None:  # noqa: ANN401 - Served
    batch = [kvcq_pb2.Message(topic="orders", body=b"x", keys=["k"]) for _ in range(count)]
    await served.messages.PutBatch(kvcq_pb2.PutBatchRequest(messages=batch))


async def end_of(stub: migration_pb2_grpc.MigrationServiceStub, job_id: str) -> pb.MigrationStatus:
    while True:
        status: pb.MigrationStatus = await stub.GetMigrationStatus(pb.GetMigrationStatusRequest())
        if status.running_job_id != job_id:
            return status
        await asyncio.sleep(0.01)


@pytest.mark.integration
async def test_every_step_over_grpc(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_on_files(root)
    async with serving(root, store=STORE) as served:
        stub = migration_pb2_grpc.MigrationServiceStub(served.channel)
        await put(served, 200)
        plan = await stub.PlanMigration(pb.PlanMigrationRequest())
        assert plan.phase == "FILES"
        assert plan.bytes_to_replay == plan.log_bytes > 0
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Cutover(pb.CutoverRequest())
        info = error_info(refused.value)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert info.reason == "ILLEGAL_STEP"
        assert info.metadata["nextCommand"] == "kvcq migrate start"
        started = await stub.StartMigration(pb.StartMigrationRequest())
        status = await end_of(stub, started.job_id)
        assert status.phase == pb.MIGRATION_PHASE_DOUBLE_WRITE
        verified = await stub.VerifyMigration(pb.VerifyMigrationRequest(key_every=1))
        status = await end_of(stub, verified.job_id)
        assert status.phase == pb.MIGRATION_PHASE_VERIFIED
        assert status.verified.difference_count == 0
        assert not (await stub.ListDifferences(pb.ListDifferencesRequest())).differences
        assert (await stub.Cutover(pb.CutoverRequest())).status.phase == pb.MIGRATION_PHASE_ROCKSDB
        back = await stub.Rollback(pb.RollbackRequest())
        if back.job_id:
            await end_of(stub, back.job_id)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.IngestFiles(
                pb.IngestFilesRequest(files=[{"path": "x", "family": "default"}])
            )
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        resumed = await stub.ResumeMigration(pb.ResumeRequest())
        assert resumed.status.phase == pb.MIGRATION_PHASE_DOUBLE_WRITE


@pytest.mark.integration
async def test_the_command_line_on_a_running_store(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_on_files(root)
    async with serving(root, store=STORE) as served:
        await put(served, 100)

        async def run(*arguments: str) -> Result:
            return await asyncio.to_thread(migrate, *arguments, "--server", served.target, "--json")

        assert (await run("plan")).exit_code == 0
        refused = await run("cutover")
        assert refused.exit_code == 1
        error = answer(refused)["error"]
        assert error["code"] == "ILLEGAL_STEP"
        assert error["nextCommand"] == f"kvcq migrate start --server {served.target}"
        assert answer(await run("start"))["phase"] == "DOUBLE_WRITE"
        verified = await run("verify")
        assert verified.exit_code == 0, verified.output
        assert answer(verified)["verified"]["differenceCount"] == 0
        assert answer(await run("cutover"))["phase"] == "ROCKSDB"
        assert answer(await run("finish", "--yes"))["phase"] == "FINISHED"
        told = answer(await run("status"))
        assert told["nextCommand"] is None
        assert "the migration is done" in told["hint"]
        back = await run("rollback")
        assert answer(back)["phase"] == "ROCKSDB"


@pytest.mark.slow
def test_the_command_line_on_a_stopped_store(tmp_path: Path) -> None:
    root = extract_golden(tmp_path)
    assert migrate("plan", root, *SIZES).exit_code == 0
    refused = migrate("status", root)
    assert refused.exit_code == 1
    assert f"kvcq migrate start {root}" in refused.stderr
    assert answer(migrate("start", root, *SIZES, "--adopt-only", "--json"))["phase"] == "FILES"
    assert answer(migrate("start", root, "--json"))["phase"] == "DOUBLE_WRITE"
    assert migrate("verify", root, "--key-every=1").exit_code == 0
    shown = migrate("cutover", root)
    assert shown.exit_code == 0
    assert "ROCKSDB" in shown.stdout
    assert migrate("finish", root, "--yes").exit_code == 0
    assert answer(migrate("rollback", root, "--json"))["phase"] == "ROCKSDB"


def test_differences_end_with_exit_code_1(tmp_path: Path) -> None:
    root = extract_golden(tmp_path)
    assert migrate("start", root, *SIZES).exit_code == 0
    queue = next(path for path in (root / "consumequeue").rglob("0" * 20))
    with queue.open("r+b") as file:
        file.seek(12)
        file.write(b"\x01" * 8)
    result = migrate("verify", root, "--json")
    assert result.exit_code == 1
    found = answer(result)["differences"]
    assert [(each["field"], each["side"]) for each in found] == [("tag_code", "files")]
    state = read_state(root)
    assert state is not None
    assert state.phase is Phase.DOUBLE_WRITE
    assert migrate("cutover", root).exit_code == 1


def test_faults_end_a_plan_with_exit_code_1(tmp_path: Path) -> None:
    root = extract_golden(tmp_path)
    next((root / "consumequeue").rglob("0" * 20)).unlink()
    result = migrate("plan", root, *SIZES, "--json")
    assert result.exit_code == 1
    assert answer(result)["findings"]


def test_a_store_made_in_rocksdb_gets_files_by_a_rollback(tmp_path: Path) -> None:
    from tests.support.migrating import check_messages, config, messages, open_store

    root = tmp_path / "store"
    with open_store(config(root)) as store:
        store.put(messages(0, 200))
    told = answer(migrate("status", root, "--json"))
    assert (told["phase"], told["nextCommand"]) == (None, None)
    assert not (root / "migration.json").exists()
    assert answer(migrate("rollback", root, "--to-files", "--json"))["phase"] == "ROCKSDB"
    assert answer(migrate("rollback", root, "--json"))["phase"] == "DOUBLE_WRITE"
    assert answer(migrate("rollback", root, "--json"))["phase"] == "FILES"
    with open_store(config(root)) as store:
        assert check_messages(store, 200) == 200


@pytest.mark.slow
def test_a_lost_index_file_is_named_by_each_command_with_what_mends_it(tmp_path: Path) -> None:
    root = extract_golden(tmp_path)
    looked = kvcq("check", root)
    assert looked.exit_code == 1
    assert f"kvcq migrate plan {root}" in looked.stderr
    sizes = ("--index-slots", str(INDEX_SLOTS))
    following = answer(migrate("plan", root, *sizes, "--json"))["nextCommand"]
    assert following == f"kvcq migrate start {root} --index-slots {INDEX_SLOTS}"
    answer(migrate("start", root, *sizes, "--json"))
    sorted((root / "index").iterdir())[2].unlink()
    looked = kvcq("check", root)
    assert looked.exit_code == 1
    mending = f"kvcq migrate resume {root} --rebuild files"
    assert f"next: {mending}" in looked.stdout
    found = migrate("verify", root, "--key-every", "1", "--limit", "1", "--json")
    assert found.exit_code == 1
    assert answer(found)["nextCommand"] == mending
    assert answer(found)["hint"] == "verify again afterwards"
    answer(migrate("resume", root, "--rebuild", "files", "--json"))
    assert migrate("verify", root, "--key-every", "1", "--json").exit_code == 0


def test_errors_are_one_json_object_on_standard_output(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_on_files(root)
    refused = migrate("cutover", root, "--json")
    assert refused.exit_code == 1
    error = answer(refused)["error"]
    assert (error["code"], error["field"]) == ("ILLEGAL_STEP", None)
    assert error["nextCommand"] == f"kvcq migrate start {root}"
    assert "verification" in error["reason"]
    for arguments, code, field, exit_code in (
        (("status", tmp_path / "none", "--json"), "USAGE", "directory", 2),
        (("status", "--server", "nohost", "--json"), "USAGE", "server", 2),
        (("status", "--server", "127.0.0.1:1", "--json"), "CANNOT_CONNECT", None, 3),
        (("finish", root, "--json"), "ILLEGAL_STEP", None, 1),
        (("release", root, "--bad", "--json"), "USAGE", None, 2),
    ):
        result = migrate(*arguments)
        assert result.exit_code == exit_code, result.output
        error = answer(result)["error"]
        assert (error["code"], error["field"]) == (code, field)


def test_finish_asks_only_when_it_is_possible(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_on_files(root)
    refused = migrate("finish", root)
    assert refused.exit_code == 1
    assert "finish is not possible in state FILES" in refused.stderr
    assert "Remove" not in refused.output
    for step in ("start", "verify", "cutover"):
        assert migrate(step, root).exit_code == 0
    asked = migrate("finish", root)
    assert asked.exit_code == 2
    assert "--yes" in asked.stderr
    state = read_state(root)
    assert state is not None
    assert state.phase is Phase.ROCKSDB
    back = migrate("rollback", root)
    assert "the verification is invalidated" in back.stderr


def test_ctrl_c_ends_with_130_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    make_on_files(root)

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("migration.jobs.Job.wait", interrupted)
    result = migrate("start", root, "--json")
    assert result.exit_code == 130
    error = answer(result)["error"]
    assert (error["code"], error["nextCommand"]) == ("INTERRUPTED", f"kvcq migrate resume {root}")


def test_a_plan_shows_the_same_findings_to_people_and_to_programs(tmp_path: Path) -> None:
    root = extract_golden(tmp_path)
    shown = migrate("plan", root, *SIZES)
    assert shown.exit_code == 0
    for finding in answer(migrate("plan", root, *SIZES, "--json"))["findings"]:
        assert finding["path"].rpartition("/")[2] in shown.stdout


@pytest.mark.integration
async def test_backfills_and_verifications_are_jobs_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One list, one cancel; what was cancelled goes on when somebody resumes. Remembered after a
    restart."""
    root = tmp_path / "store"
    make_on_files(root)
    held = threading.Event()

    def hold(_pace: Pace, job: Job, _lag: int) -> None:
        held.set()
        job.pause(60)

    async with serving(root, store=STORE) as served:
        stub = migration_pb2_grpc.MigrationServiceStub(served.channel)
        jobs = jobs_pb2_grpc.JobServiceStub(served.channel)
        await put(served, 200)
        with monkeypatch.context() as patched:
            patched.setattr(Pace, "after_batch", hold)
            patched.setattr("migration.fill.catch_up._REST_BYTES", 0)
            started = await stub.StartMigration(pb.StartMigrationRequest())
            assert await asyncio.to_thread(held.wait, 60)
            status = await stub.GetMigrationStatus(pb.GetMigrationStatusRequest())
            assert status.running_job_id == started.job_id
            [job] = (await jobs.ListJobs(jobs_pb2.ListJobsRequest(kind="backfill"))).jobs
            assert (job.job_id, job.status) == (started.job_id, jobs_pb2.JOB_STATUS_RUNNING)
            await jobs.CancelJob(jobs_pb2.CancelJobRequest(job_id=started.job_id))
            watched = jobs.WatchJob(jobs_pb2.WatchJobRequest(job_id=started.job_id))
            job = [each async for each in watched][-1]
        assert job.status == jobs_pb2.JOB_STATUS_CANCELLED
        status = await stub.GetMigrationStatus(pb.GetMigrationStatusRequest())
        assert "cancelled by an operator" in status.stopped
        resumed = await stub.ResumeMigration(pb.ResumeRequest())
        await end_of(stub, resumed.job_id)
        verified = await stub.VerifyMigration(pb.VerifyMigrationRequest())
        watched = jobs.WatchJob(jobs_pb2.WatchJobRequest(job_id=verified.job_id))
        job = [each async for each in watched][-1]
        assert (job.kind, job.status) == ("verify", jobs_pb2.JOB_STATUS_DONE)
        assert job.summary.endswith(": 0 differences")
        assert job.numbers["differences"] == 0
    async with serving(root, store=STORE) as served:
        jobs = jobs_pb2_grpc.JobServiceStub(served.channel)
        found = (await jobs.ListJobs(jobs_pb2.ListJobsRequest())).jobs
        assert [(each.kind, each.status) for each in found] == [
            ("verify", jobs_pb2.JOB_STATUS_DONE),
            ("backfill", jobs_pb2.JOB_STATUS_DONE),
            ("backfill", jobs_pb2.JOB_STATUS_CANCELLED),
        ]


def test_the_status_says_what_is_read_from_where(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_on_files(root)
    for step in ("start", "verify", "cutover"):
        assert migrate(step, root).exit_code == 0
    rows = [line.split() for line in migrate("status", root).stdout.splitlines()]
    assert ["ROCKSDB", "RocksDB", "files,", "RocksDB"] in rows
    assert migrate("finish", root, "--yes").exit_code == 0
    rows = [line.split() for line in migrate("status", root).stdout.splitlines()]
    assert ["FINISHED", "RocksDB", "RocksDB"] in rows


@pytest.mark.integration
async def test_two_stops_end_a_server_whose_rollback_meets_a_verification_that_is_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    make_on_files(root)
    compared, cancelled = threading.Event(), threading.Event()
    run, cancel = Verification.run, Job.stop_soon

    def run_until_cancelled(self: Verification) -> Verified:
        found = run(self)
        compared.set()
        assert cancelled.wait(60)
        return found

    def cancel_and_tell(self: Job) -> None:
        cancel(self)
        cancelled.set()

    async with serving(root, store=STORE) as served:
        stub = migration_pb2_grpc.MigrationServiceStub(served.channel)
        await put(served, 20)
        started = await stub.StartMigration(pb.StartMigrationRequest())
        await end_of(stub, started.job_id)
        monkeypatch.setattr(Verification, "run", run_until_cancelled)
        monkeypatch.setattr(Job, "stop_soon", cancel_and_tell)
        await stub.VerifyMigration(pb.VerifyMigrationRequest())
        assert await asyncio.to_thread(compared.wait, 60)
        rolling_back = asyncio.ensure_future(stub.Rollback(pb.RollbackRequest()))
        assert await asyncio.to_thread(cancelled.wait, 60)
        served.server.stop()
        served.server.stop()
        await asyncio.wait({rolling_back}, timeout=60)
    state = read_state(root)
    assert state is not None
    assert state.phase is Phase.FILES
