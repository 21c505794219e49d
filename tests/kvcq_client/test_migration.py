"""The steps of a migration through the client, blocking and in an event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kvcq_client import AsyncClient, Client, MigrationPhase, NotPossibleError
from tests.support.migrating import SEGMENT_BYTES, make_on_files
from tests.support.serving import serving

if TYPE_CHECKING:
    from pathlib import Path

STORE = {"segment_bytes": SEGMENT_BYTES}


async def test_a_store_is_moved_step_by_step(tmp_path: Path) -> None:
    make_on_files(tmp_path / "store")
    async with (
        serving(tmp_path / "store", store=STORE) as served,
        AsyncClient(served.target, timeout_s=10) as client,
    ):
        migration = client.migration
        assert (await migration.status()).phase is MigrationPhase.FILES
        with pytest.raises(NotPossibleError) as refused:
            await migration.cutover()
        assert refused.value.reason == "ILLEGAL_STEP"
        assert refused.value.metadata["nextCommand"] == "kvcq migrate start"
        job_id = (await migration.start()).job_id
        while (status := await migration.status()).phase is not MigrationPhase.DOUBLE_WRITE:
            assert status.running_job_id == job_id
            await asyncio.sleep(0.01)
        assert await migration.differences(10) == []


async def test_the_blocking_face_does_the_same(tmp_path: Path) -> None:
    make_on_files(tmp_path / "store")

    def work(target: str) -> None:
        with Client(target, timeout_s=10) as client:
            assert client.migration.plan().kind
            assert client.migration.status().phase is MigrationPhase.FILES
            with pytest.raises(NotPossibleError):
                client.migration.finish()

    async with serving(tmp_path / "store", store=STORE) as served:
        await asyncio.to_thread(work, served.target)
