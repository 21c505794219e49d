"""One Spark session for all tests of this directory: starting one takes longer than most tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A warm local[2] session with our data sources."""
    pytest.importorskip("pyspark", reason="the spark extra is not installed")
    from migration.spark.errors import JavaNotFoundError
    from migration.spark.session import SparkSettings, start_session, stop_session

    settings = SparkSettings(
        master="local[2]",
        shuffle_partitions=4,
        scratch=tmp_path_factory.mktemp("spark"),
        # The quick compiler only: tests are short, and start sooner with it.
        jvm_options="-XX:TieredStopAtLevel=1",
    )
    try:
        session = start_session(settings)
    except JavaNotFoundError as error:
        pytest.skip(str(error))
    yield session
    stop_session(session)


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
