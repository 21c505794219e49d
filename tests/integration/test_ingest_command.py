"""`kvcq migrate ingest` against a real server: what it hands over, and what it is told."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from server.cli.main import main
from tests.support.serving import serving

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

pytestmark = pytest.mark.integration


async def ingest(*arguments: object) -> Result:
    texts = [str(argument) for argument in arguments]
    return await asyncio.to_thread(CliRunner().invoke, main, ["migrate", "ingest", *texts])


async def test_a_store_without_a_migration_refuses_files(tmp_path: Path) -> None:
    directory = tmp_path / "sst"
    directory.mkdir()
    (directory / "units-0.sst").write_bytes(b"x")
    manifest = {
        "files": {"default": ["/made/elsewhere/units-0.sst"]},
        "log_start": 0,
        "log_end": 100,
        "deletions": 0,
    }
    (directory / "manifest.json").write_text(json.dumps(manifest))
    async with serving(tmp_path / "store") as served:
        result = await ingest(directory, "--target", served.target)
    assert result.exit_code in (1, 2)
    assert "migration" in result.output


@pytest.mark.parametrize("text", [None, "{", '{"files": []}', '{"files": {"default": [3]}}'])
async def test_a_directory_without_a_manifest_is_told(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    result = await ingest(tmp_path)
    assert result.exit_code == 1
    assert "does not say what the files are" in result.output
    assert "kvcq spark rebuild" in result.output


async def test_no_server_is_no_success(tmp_path: Path) -> None:
    manifest = {"files": {}, "log_start": 0, "log_end": 0, "deletions": 0}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    result = await ingest(tmp_path, "--target", "127.0.0.1:1")
    assert result.exit_code == 3
