"""The migration's page, step by step, on a store that begins in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq.inspect import Finding, Kind
from kvcq_client.pb.v1 import kvcq_pb2, migration_pb2_grpc
from kvcq_client.pb.v1 import migration_pb2 as pb
from server.console.pages.migration import PHASES, STEPS
from server.console.visit import PAGE_ROWS
from tests.server.services.test_migration import STORE, end_of
from tests.support.consoles import console_of
from tests.support.migrating import make_on_files
from tests.support.serving import serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.consoles import Answer, ConsoleClient


async def _take(client: ConsoleClient, step: str) -> Answer:
    return await client.follow(await client.post("/migration/step", {"step": step}))


def _offered(page: Answer) -> set[str]:
    return {step for step in STEPS if f'name="step" value="{step}"' in page.html}


async def test_a_store_without_a_migration(admin: ConsoleClient) -> None:
    page = await admin.get("/migration")
    assert "This store has no migration" in page.text
    assert _offered(page) == set()
    answer = await admin.post("/migration/step", {"step": "start"})
    assert answer.status == 409
    assert "ILLEGAL_STEP" in answer.text


@pytest.mark.integration
async def test_all_steps(tmp_path: Path) -> None:
    make_on_files(tmp_path / "store")
    async with (
        serving(tmp_path / "store", store=STORE) as served,
        console_of(served, may_administer=True) as client,
        console_of(served) as reader,
    ):
        batch = [kvcq_pb2.Message(topic="orders", body=b"x", keys=["k"]) for _ in range(50)]
        await served.messages.PutBatch(kvcq_pb2.PutBatchRequest(messages=batch))
        page = await client.get("/migration")
        assert 'aria-current="step"><b>FILES' in page.html
        assert "kvcq migrate start" in page.text
        assert _offered(page) == {"start"}
        assert _offered(await reader.get("/migration")) == set()
        page = await _take(client, "start")
        assert "The step was started" in page.text
        stub = migration_pb2_grpc.MigrationServiceStub(served.channel)

        async def job_ends() -> None:
            status = await stub.GetMigrationStatus(pb.GetMigrationStatusRequest())
            if status.running_job_id:
                await end_of(stub, status.running_job_id)

        await job_ends()
        page = await client.get("/migration")
        assert 'aria-current="step"><b>DOUBLE_WRITE' in page.html
        assert "backfill done" in (await client.get("/jobs")).text
        await _take(client, "verify")
        await job_ends()
        page = await client.get("/migration")
        assert 'aria-current="step"><b>VERIFIED' in page.html
        assert "0 differences" in page.text
        assert "cutover" in _offered(page)
        page = await _take(client, "cutover")
        assert 'aria-current="step"><b>ROCKSDB' in page.html
        assert "reads come from RocksDB" in page.text
        page = await _take(client, "finish")
        assert 'aria-current="step"><b>FINISHED' in page.html
        assert _offered(page) == {"verify", "rollback", "finish"}


async def test_differences_stand_on_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_on_files(tmp_path / "store")
    async with serving(tmp_path / "store", store=STORE) as served, console_of(served) as client:
        stub = migration_pb2_grpc.MigrationServiceStub(served.channel)
        status = await stub.GetMigrationStatus(pb.GetMigrationStatusRequest())
        assert status.phase == pb.MIGRATION_PHASE_FILES
        found = [
            Finding(Kind.WRONG_UNIT, "field", "100", "<200>", "orders", 0, number)
            for number in range(PAGE_ROWS + 1)
        ]
        monkeypatch.setattr("migration.steps.live.LiveMigration.differences", found)
        page = await client.get("/migration")
        assert "orders 0 0 field rocksdb 100 <200>" in page.text
        assert "<200>" not in page.html
        assert page.text.count("orders 0") == PAGE_ROWS
        page = await client.get(page.link("Next page"))
        assert page.text.count("orders 0") == 1
        assert (await client.get("/migration?skip=99999999999")).status == 400


def test_the_phases_are_those_of_the_api() -> None:
    names = {name.removeprefix("MIGRATION_PHASE_") for name, _ in pb.MigrationPhase.items()}
    assert names - {"UNSPECIFIED"} == set(PHASES)


@pytest.mark.parametrize("form", [{}, {"step": "nothing"}, {"step": "start "}])
async def test_a_step_that_is_none(admin: ConsoleClient, form: dict[str, str]) -> None:
    answer = await admin.post("/migration/step", form)
    assert answer.status == 400
    assert "step" in answer.text
