"""The pipeline on Spark, `local[2]`: a scan of the log, a rebuild, a verification of all sides.

Each runs once without being measured: Spark is slow until its JVM and its workers are warm. Beside
each stands what one plain process does with the same log.
"""

from __future__ import annotations

import shutil
from itertools import count as numbers
from time import perf_counter
from typing import TYPE_CHECKING, Any

from kvcq_bench.report import Goal
from tests.benchmarks.timing import Timed
from tests.benchmarks.work import Work
from tests.benchmarks.works.h_migration import filled, sorted_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.benchmarks.systems.in_process import StoreClient

_SCAN, _REBUILD, _VERIFY = "Spark: scan", "Spark: rebuild", "Spark: verify"
_COUNT = {"count": 2_000_000}
_SYSTEM = "kvcq-spark"
#: A record says that the topics were made.
_MESSAGES = "topic != 'rmq_sys_kvcq_state'"
_COLUMNS = (
    "topic string, queue_id int, queue_offset bigint, physical_offset bigint, record_size int,"
    " store_time_ms bigint"
)

SCAN = Work(
    _SCAN,
    "records/s",
    "scan",
    _COUNT,
    [Goal(_SCAN, 1_000_000, "a billion records within 17 minutes on two cores", system=_SYSTEM)],
    warm_up=False,
)
REBUILD = Work(
    _REBUILD,
    "units/s",
    "rebuild",
    _COUNT,
    [Goal(_REBUILD, 350_000, "a billion units within 50 minutes on two cores", system=_SYSTEM)],
    warm_up=False,
)
VERIFY = Work(
    _VERIFY,
    "messages/s",
    "verify",
    _COUNT,
    [Goal(_VERIFY, 133_000, "two million messages within 15 s", system=_SYSTEM)],
    warm_up=False,
)


def _spark(client: StoreClient) -> Any:  # noqa: ANN401 - of PySpark, which is an extra
    """The one session of this process."""
    from pyspark.sql import SparkSession

    from migration.spark.session import SparkSettings, spark_session

    running = SparkSession.getActiveSession()
    if running is None:
        settings = SparkSettings(master="local[2]", shuffle_partitions=4, scratch=client.root)
        running = client.kept.enter_context(spark_session(settings))
    return running


def _timed(count: int, work: Callable[[], None], plain: Callable[[], object], unit: str) -> Timed:
    """The work, warm, and the same by a plain process."""
    work()
    seconds = []
    for run in (work, plain):
        began_s = perf_counter()
        run()
        seconds.append(perf_counter() - began_s)
    return Timed(count, seconds[0], more={"by one plain process": (count / seconds[1], unit)})


@SCAN.of(_SYSTEM)
def _(client: StoreClient, count: int) -> Timed:
    """Six columns of the log into an aggregate."""
    root = client.root / "scan"
    made, size, end = filled(root, count)

    def aggregate() -> None:
        records = _spark(client).read.format("commitlog").schema(_COLUMNS)
        found = (
            records.load(str(root / "commitlog"))
            .where(_MESSAGES)
            .selectExpr(
                *("count(*)", "sum(record_size)", "count(distinct topic)", "max(physical_offset)"),
                *("max(queue_offset)", "max(store_time_ms - queue_id)"),
            )
        )
        records_found, size_found, *_ = found.collect()[0]
        assert (records_found, size_found) == (made, size)

    timed = _timed(made, aggregate, lambda: _sorted(root, end), "records/s")
    shutil.rmtree(root)
    return timed


@REBUILD.of(_SYSTEM)
def _(client: StoreClient, count: int) -> Timed:
    """The database from the log: sorted files, and a new database made of them."""
    from migration.spark.jobs.rebuilding import RebuildSettings, rebuild, replace_queues
    from migration.spark.jobs.store_parts import find_parts, read_liveness

    root = client.root / "rebuild"
    made, _, end = filled(root, count)
    parts = find_parts(root)

    def make() -> None:
        settings = RebuildSettings(
            log=parts.log, output=root / "sorted", liveness=read_liveness(parts)
        )
        result = rebuild(_spark(client), settings)
        replace_queues(root, result)

    timed = _timed(made, make, lambda: _sorted(root, end), "units/s")
    shutil.rmtree(root)
    return timed


@VERIFY.of(_SYSTEM)
def _(client: StoreClient, count: int) -> Timed:
    """Log, file queues and RocksDB, all equal."""
    from migration.spark.jobs.store_parts import find_parts, read_liveness
    from migration.spark.verify.compare import VerifySettings, verify

    root = client.root / "verify"
    made, _, end = filled(root, count, both_sides=True)
    parts = find_parts(root)
    assert parts.files is not None
    assert parts.database is not None
    settings = VerifySettings(
        log=parts.log, files=parts.files, database=parts.database, liveness=read_liveness(parts)
    )

    def compare() -> None:
        result = verify(_spark(client), settings)
        assert result.equal, result.summary()
        assert min(result.units.values()) > made  # with those of the state

    timed = _timed(made, compare, lambda: _sorted(root, end), "messages/s")
    shutil.rmtree(root)
    return timed


_OUTPUTS = numbers()


def _sorted(root: Path, end: int) -> None:
    sorted_files(root, end, root / f"plain-{next(_OUTPUTS)}")
