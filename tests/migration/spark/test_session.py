"""The session is silent, finds our packages in its workers, and is alone in its process."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from migration.spark.errors import PipelineError
from migration.spark.session import SparkSettings, session_conf, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_workers_import_our_packages_from_a_checkout(spark: SparkSession) -> None:
    def where(_: object) -> str:
        import migration

        return str(Path(migration.__file__).parent)

    found = spark.sparkContext.parallelize([0], 1).map(where).collect()
    import migration

    assert found == [str(Path(migration.__file__).parent)]


def test_workers_do_not_walk_their_imports_after_each_task(spark: SparkSession) -> None:
    def frozen(_: object) -> int:
        return gc.get_freeze_count()

    tasks = spark.sparkContext.parallelize(range(8), 8)
    found = [count for _ in range(2) for count in tasks.map(frozen).collect()]
    assert max(found) > 10_000


def test_a_second_session_in_one_process_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.range(3).count() == 3
    with (
        pytest.raises(PipelineError, match="runs a Spark session already"),
        spark_session(SparkSettings(scratch=tmp_path)),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_settings_of_the_caller_win(tmp_path: Path) -> None:
    settings = SparkSettings(
        master="local[1]", driver_memory="2g", conf={"spark.sql.shuffle.partitions": "3"}
    )
    conf = session_conf(settings, tmp_path)
    assert conf["spark.driver.memory"] == "2g"
    assert conf["spark.sql.shuffle.partitions"] == "3"
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"


def test_a_cluster_chooses_its_own_addresses_and_directories(tmp_path: Path) -> None:
    conf = session_conf(SparkSettings(master="spark://host:7077"), tmp_path)
    assert "spark.driver.bindAddress" not in conf
    assert "spark.local.dir" not in conf


def test_scratch_files_stay_in_the_scratch_directory(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    work = Path(spark.conf.get("spark.kvcq.work") or "")
    assert work.is_dir()
    assert tmp_path_factory.getbasetemp() in work.parents
    assert not os.path.lexists("spark-warehouse")
