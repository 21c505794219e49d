"""`kvcq migrate ingest` against a real server: what it hands over, and what it is told."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import TYPE_CHECKING

import pytest

from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED
from kvcq.tables.keys import FAMILIES, UNITS
from migration.columnar.liveness import Liveness
from migration.steps.live import LiveMigration
from store.state import STATE_TOPIC
from tests.support.command_line import kvcq
from tests.support.migrating import (
    LIGHT,
    SEGMENT_BYTES,
    TOPICS,
    config,
    make_on_files,
    messages,
    open_store,
    sorter,
)
from tests.support.serving import serving

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result
    from pyspark.sql import SparkSession

    from kvcq.engine.protocol import Pair

pytestmark = pytest.mark.integration


async def migrate(*arguments: object) -> Result:
    texts = [str(argument) for argument in arguments]
    return await asyncio.to_thread(kvcq, "migrate", *texts)


async def ingest(*arguments: object) -> Result:
    return await migrate("ingest", *arguments)


def rows_of(database: Path) -> dict[str, list[Pair]]:
    """All rows of a closed database."""
    engine = RocksEngine.open_read_only(database, DERIVED)
    try:
        return {family: engine.scan(family, b"", b"\xff") for family in FAMILIES}
    finally:
        engine.close()


def dispatched_rows(root: Path, scratch: Path) -> dict[str, list[Pair]]:
    """What dispatch makes of the log of a closed store that has never heard of a migration."""
    shutil.copytree(root, scratch)
    for side in ("kvcq", "consumequeue", "index"):
        shutil.rmtree(scratch / side, ignore_errors=True)
    (scratch / "migration.json").unlink()
    open_store(config(scratch)).close()
    return rows_of(scratch / "kvcq")


def sort_plainly(root: Path, output: Path, end: int) -> None:
    """Files of the log up to `end`, and their manifest, as the pipeline writes them."""
    output.mkdir()
    made = sorter(root, output, Liveness(dict.fromkeys([*TOPICS, STATE_TOPIC], 0))).make(end)
    assert made["end"] == end
    manifest = {"files": made["files"], "log_start": 0, "log_end": end}
    (output / "manifest.json").write_text(json.dumps(manifest))


async def check_that_files_become_history(
    root: Path, make: Callable[[Path, Path, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store runs and takes messages while its history is sorted and handed over."""
    files = root.parent / "sorted"
    make_on_files(root)
    async with serving(
        root, store={"segment_bytes": SEGMENT_BYTES, "preallocate": False}
    ) as served:
        store = served.store
        target = ("--server", served.target)
        store.put(messages(0, 900))
        store.flush()
        # The server's own backfill would be done before the files are there.
        monkeypatch.setattr(LiveMigration, "_fill", lambda _: None)
        assert (await migrate("start", *target)).exit_code == 0
        end = store.flushed_offset
        store.put(messages(900, 60))
        await asyncio.to_thread(make, root, files, end)

        taken = await ingest(files, "--json", *target)
        assert taken.exit_code == 0, taken.output
        assert json.loads(taken.stdout) == {"ingested": True, "dispatchedOffset": end}
        again = await ingest(files, *target)
        assert again.exit_code == 0
        assert "not needed" in again.stderr

        monkeypatch.undo()
        assert (await migrate("resume", *target)).exit_code == 0
        verified = await migrate("verify", "--key-every=1", "--json", *target)
        assert verified.exit_code == 0, verified.output
        assert json.loads(verified.stdout)["verified"]["differenceCount"] == 0
        assert (await migrate("cutover", *target)).exit_code == 0
        # Reads come from RocksDB now: from the files that were handed over, and behind them.
        assert len(store.pull(LIGHT, 0, 0, max_messages=1000).records) == 960 // 5
    rows = rows_of(root / "kvcq")
    assert len(rows[UNITS]) == 1 + 960 + 960 // 5  # and the record that made the topics
    assert rows == dispatched_rows(root, root.parent / "dispatched")


async def test_a_running_store_takes_sorted_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await check_that_files_become_history(tmp_path / "store", sort_plainly, monkeypatch)


@pytest.mark.spark
async def test_a_running_store_takes_the_files_of_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from migration.spark.jobs.rebuilding import RebuildSettings, rebuild, write_manifest
    from migration.spark.jobs.store_parts import find_parts, read_liveness

    def sort_on_spark(root: Path, output: Path, end: int) -> None:
        parts = find_parts(root)
        settings = RebuildSettings(
            log=parts.log, output=output, end=end, liveness=read_liveness(parts)
        )
        write_manifest(output, rebuild(spark, settings))

    await check_that_files_become_history(tmp_path / "store", sort_on_spark, monkeypatch)


async def test_files_that_end_beyond_the_durable_log_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    make_on_files(root)
    # Damaged: nothing fills RocksDB.
    async with serving(
        root, store={"segment_bytes": SEGMENT_BYTES, "preallocate": False}, damaged=True
    ) as served:
        store = served.store
        store.put(messages(0, 100))
        store.flush()
        monkeypatch.setattr(LiveMigration, "_fill", lambda _: None)
        assert (await migrate("start", "--server", served.target)).exit_code == 0
        sort_plainly(root, tmp_path / "sorted", store.flushed_offset)
        path = tmp_path / "sorted" / "manifest.json"
        manifest = json.loads(path.read_text())
        path.write_text(json.dumps(manifest | {"log_end": store.flushed_offset + (1 << 20)}))
        result = await ingest(tmp_path / "sorted", "--server", served.target)
        monkeypatch.undo()
    assert result.exit_code == 2
    assert "beyond the durable log" in result.output


async def test_a_store_without_a_migration_refuses_files(tmp_path: Path) -> None:
    directory = tmp_path / "sst"
    directory.mkdir()
    (directory / "units-0.sst").write_bytes(b"x")
    manifest = {
        "files": {"default": ["/made/elsewhere/units-0.sst"]},
        "log_start": 0,
        "log_end": 100,
    }
    (directory / "manifest.json").write_text(json.dumps(manifest))
    async with serving(tmp_path / "store") as served:
        result = await ingest(directory, "--server", served.target)
    assert result.exit_code in (1, 2)
    assert "migration" in result.output


@pytest.mark.parametrize("text", [None, "{", '{"files": []}', '{"files": {"default": [3]}}'])
async def test_a_directory_without_a_manifest_is_told(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    result = await ingest(tmp_path)
    assert result.exit_code == 1
    assert "is not a valid manifest" in result.output
    assert "kvcq spark rebuild" in result.output


@pytest.mark.slow
async def test_no_server_is_no_success(tmp_path: Path) -> None:
    manifest = {"files": {}, "log_start": 0, "log_end": 0}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    result = await ingest(tmp_path, "--server", "127.0.0.1:1")
    assert result.exit_code == 3
