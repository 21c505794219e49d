"""The pipeline on a real cluster whose executors are killed in the middle."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED
from kvcq.tables.keys import UNITS
from kvcq_client import Client, Message, Queue
from migration.spark.java import find_java, make_shim
from migration.spark.jobs.on_stores import rebuild, verify
from migration.spark.session import SparkSettings, spark_session
from store.config import StoreConfig
from store.message import Message as Stored
from tests.migration.spark.cluster import spark_cluster
from tests.support.migrating import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.migration.spark.cluster import Cluster
    from tests.migration.spark.conftest import RunningService

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ROWS = 400_000
PARTITIONS = 6
ROOT = __file__.rpartition("/tests/")[0]


class OnCluster(NamedTuple):
    """A session, and the processes that it runs on."""

    spark: SparkSession
    cluster: Cluster

    @contextmanager
    def killing(self, *when: Callable[[], bool]) -> Iterator[None]:
        """Kill an executor each time that the next of `when` holds; all must, within the block."""
        done = threading.Event()
        killed: list[int] = []

        def watch() -> None:
            for holds in when:
                while not holds():
                    if done.wait(0.05):
                        return
                victim = self.cluster.executors()[0]
                victim.kill()
                killed.append(victim.pid)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
        assert len(killed) == len(when), "the work ended before its executors were killed"

    def is_busy(self) -> bool:
        """Whether tasks run."""
        tracker = self.spark.sparkContext.statusTracker()
        stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
        return any(stage is not None and stage.numActiveTasks for stage in stages)


@pytest.fixture(scope="module")
def on_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnCluster]:
    """Before any client: starting the JVM forks, and gRPC does not take that."""
    directory = tmp_path_factory.mktemp("cluster")
    home = make_shim(find_java())
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.sql.adaptive.enabled": "false",
    }
    with spark_cluster(directory, {"JAVA_HOME": str(home), "PYTHONPATH": ROOT}) as cluster:
        settings = SparkSettings(
            master=cluster.master, shuffle_partitions=PARTITIONS, scratch=directory, conf=conf
        )
        with spark_session(settings) as spark:
            yield OnCluster(spark, cluster)


@pytest.fixture
def client(on_cluster: OnCluster, service: RunningService) -> Iterator[Client]:
    with Client(service.target) as connected:
        yield connected


def stored(client: Client, topic: str) -> int:
    bounds = client.offsets([Queue(topic, 0), Queue(topic, 1)])
    return sum(one.max_offset for one in bounds.values())


def test_rows_behind_a_shuffle_are_stored_once(
    on_cluster: OnCluster, service: RunningService, client: Client
) -> None:
    from pyspark.sql import functions as F

    topic = "behind-a-shuffle"
    client.create_topic(topic, 2)
    # Two rows of each key meet in a shuffle; which comes first is chance.
    rows = on_cluster.spark.range(ROWS).select((F.col("id") % (ROWS // 2)).alias("key"), "id")
    sums = rows.groupBy("key").agg(F.sum("id").alias("sum"))
    joined = rows.join(sums, "key").selectExpr(
        f"'{topic}' as topic", "concat_ws(',', id, sum) as body"
    )
    with on_cluster.killing(
        lambda: stored(client, topic) >= ROWS // 4, lambda: stored(client, topic) >= ROWS // 2
    ):
        joined.write.format("kvcq").mode("append").option("server", service.target).save()
    found = bytearray(ROWS)
    with client.consumer(topic) as consumer:
        for message in consumer.to_end():
            number = int(message.body.split(b",")[0])
            assert not found[number], f"row {number} is there twice"
            found[number] = 1
    assert found.count(0) == 0, f"{found.count(0)} rows are missing"


def test_a_stream_reads_each_message_once(
    on_cluster: OnCluster, service: RunningService, client: Client, tmp_path: Path
) -> None:
    topic = "to-parquet"
    client.create_topic(topic, 2)
    for begin in range(0, ROWS // 4, 5000):
        messages = [
            Message(topic, b"%d" % number, queue_id=number % 2)
            for number in range(begin, begin + 5000)
        ]
        client.put_numbered(messages, producer_id="fill", sequence=begin)
    reader = on_cluster.spark.readStream.format("kvcq").option("server", service.target)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    frame = reader.option("maxOffsetsPerTrigger", 20_000).option("minPartitions", 4).load()
    output = str(tmp_path / "parquet")
    with on_cluster.killing(on_cluster.is_busy):
        query = (
            frame.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "state"))
            .trigger(availableNow=True)
            .start(output)
        )
        query.awaitTermination()
    found = on_cluster.spark.read.parquet(output).selectExpr("cast(cast(body as string) as int) n")
    assert sorted(row.n for row in found.collect()) == list(range(ROWS // 4))

    batch = on_cluster.spark.read.format("kvcq").option("server", service.target)
    with on_cluster.killing(on_cluster.is_busy):
        read = batch.option("subscribe", topic).option("maxRecordsPerPartition", 2000).load()
        assert read.selectExpr("count(*)", "count(distinct body)").first() == (ROWS // 4,) * 2


def unit_rows(path: Path) -> list[tuple[bytes, bytes]]:
    engine = RocksEngine.open_read_only(path, DERIVED)
    try:
        return engine.scan(UNITS, b"", b"\xff")
    finally:
        engine.close()


def test_a_store_is_rebuilt_and_verified(on_cluster: OnCluster, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(StoreConfig(root=root, segment_bytes=16 << 20)) as store:
        for begin in range(0, ROWS, 5000):
            store.put(
                [
                    Stored(f"topic-{number % 7}", bytes(50), keys=(f"k{number}",))
                    for number in range(begin, begin + 5000)
                ]
            )
    before = unit_rows(root / "kvcq")
    assert len(before) == ROWS
    with on_cluster.killing(on_cluster.is_busy):
        assert rebuild(on_cluster.spark, root).units == ROWS
    assert unit_rows(root / "kvcq") == before
    with on_cluster.killing(on_cluster.is_busy):
        result = verify(on_cluster.spark, root)
    assert result.equal, result.summary()
    assert result.units == {"log": ROWS, "rocksdb": ROWS}
