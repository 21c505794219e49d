"""One server for all tests of this directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


class RunningService(NamedTuple):
    """A real server, in a process of its own."""

    target: str


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """One server for all tests that need one; each takes topics of its own."""
    directory = str(tmp_path_factory.mktemp("service"))
    with subprocess.Popen(
        [sys.executable, "-m", "tests.migration.spark.serve_process", directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield RunningService(process.stdout.readline().strip())
        process.stdin.close()
        assert process.wait(30) == 0
