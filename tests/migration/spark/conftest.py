"""One Spark session for all tests of this directory: starting one takes longer than most tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
