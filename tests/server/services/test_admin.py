"""server/services/admin.py: settings of a running server, asked for and read again by call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq_client import AsyncClient, NotPossibleError
from server.settings import KNOWN, Sources
from tests.support.serving import serving

if TYPE_CHECKING:
    from pathlib import Path


def _sources(path: Path, text: str) -> Sources:
    path.write_text(text)
    flags = {"port": 0, "drain_grace_s": 5.0, "data_dir": path.parent / "s"}
    return Sources(path, flags, environment={"KVCQ_STORE__SEGMENT_BYTES": "1048576"})


_TEXT = "[server]\nmemory_limit_bytes = 100000000\n[store]\ndefault_queue_count = 4\n"


async def test_settings_are_told_with_their_origin_and_taken_by_call(tmp_path: Path) -> None:
    path = tmp_path / "kvcq.toml"
    sources = _sources(path, _TEXT)
    async with (
        serving(tmp_path / "s", sources=sources) as served,
        AsyncClient(served.target, timeout_s=10) as client,
    ):
        reloaded = await client.reload_settings()
        # What the test's configuration was made with stands for a start with the same sources.
        assert [one.name for one in reloaded.waiting] == []
        assert [one.name for one in reloaded.taken] == ["server.memory_limit_bytes"]
        found = {one.name: one for one in await client.settings()}
        assert list(found) == list(KNOWN)
        limit = found["server.memory_limit_bytes"]
        name, values = "server.memory_limit_bytes", (100_000_000, 512 << 20)
        assert limit[:7] == (name, *values, "file", str(path), True, "")
        assert found["store.segment_bytes"].where == "KVCQ_STORE__SEGMENT_BYTES"
        assert found["store.segment_bytes"].rocketmq == "mappedFileSizeCommitLog"
        assert found["server.data_dir"].origin == "flag"
        assert found["server.host"].origin == "default"
        assert found["store.reclaim_unexpired"].value is None

        path.write_text(_TEXT + "skip_damaged_records = true\nreserved_hours = 1\n")
        taken, waiting = await client.reload_settings()
        assert taken == [("store.reserved_hours", 72.0, 1.0)]
        assert waiting == [("store.skip_damaged_records", False, True)]
        assert served.store.config.reserved_hours == 1
        found = {one.name: one for one in await client.settings()}
        skips = found["store.skip_damaged_records"]
        assert skips[1:3] == (False, False)
        assert (skips.is_waiting, skips.waiting) == (True, True)
        assert not found["store.reserved_hours"].is_waiting


async def test_a_wrong_file_is_refused_by_name_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "kvcq.toml"
    sources = _sources(path, _TEXT)
    async with (
        serving(tmp_path / "s", sources=sources) as served,
        AsyncClient(served.target, timeout_s=10) as client,
    ):
        before = await client.settings()
        path.write_text(_TEXT + "reserved_hours = 0\n")
        with pytest.raises(NotPossibleError, match="the old ones remain in effect") as refused:
            await client.reload_settings()
        assert refused.value.reason == "SETTINGS_REFUSED"
        assert refused.value.metadata["field"] == "store.reserved_hours"
        assert await client.settings() == before
        assert [record.levelname for record in caplog.records].count("ERROR") == 1
