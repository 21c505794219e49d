"""The pipeline on Spark: a scan of the log, a rebuild, a verification of all sides.

Each case starts a session, `local[2]`, and runs once without being measured: Spark is slow until
its JVM and its workers are warm. Then work and probe take turns. Without PySpark or a Java the case
is skipped, and says so.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import wraps
from itertools import count
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from migration.spark.errors import JavaNotFoundError, SparkMissingError
from migration.spark.java import find_java
from migration.spark.session import SparkSettings, require_packages, spark_session
from store.message import Message
from tests.benchmarks.measure import BATCH, Bench, Row
from tests.benchmarks.migration import on_files, store_config, worker_alone
from tests.benchmarks.start_up import scan
from tests.support.migrating import live, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from store.message_store import MessageStore

_MESSAGES = 2_000_000
_TOPICS = 10
_QUEUES = 8
_RECORD_BYTES = 200
#: What a record of these topics, tags and keys has besides its body.
_OTHER_BYTES = 146
_WAIT_S = 900.0
_COLUMNS = (
    "topic string, queue_id int, queue_offset bigint, physical_offset bigint, record_size int,"
    " store_time_ms bigint"
)
_SCANNED = "one plain process that reads sizes and CRCs of the same log"


def _needs_spark(case: Callable[[Bench], None]) -> Callable[[Bench], None]:
    @wraps(case)
    def run(bench: Bench) -> None:
        try:
            require_packages()
            find_java(None)
        except (SparkMissingError, JavaNotFoundError) as error:
            bench.skipped = f"{error}. All of it: make setup-spark"
            return
        case(bench)

    return run


@_needs_spark
def spark_scan(bench: Bench) -> None:
    """Six columns of the log into an aggregate."""
    root = bench.fresh("scan")
    with open_store(store_config(root)) as store:
        filled = _fill(store, bench.amount(_MESSAGES, 10 * BATCH))
    with _session(bench) as spark:

        def aggregate() -> None:
            records = spark.read.format("commitlog").schema(_COLUMNS)
            found = records.load(str(root / "commitlog")).selectExpr(
                "count(*)",
                "sum(record_size)",
                "count(distinct topic)",
                "max(physical_offset)",
                "max(queue_offset)",
                "max(store_time_ms - queue_id)",
            )
            records_found, size, topics, *_ = found.collect()[0]
            assert (records_found, size, topics) == (filled.messages, filled.record_bytes, _TOPICS)

        seconds = _in_turn(bench, aggregate, lambda: _scan_log(root, filled))
    what = "Spark: log into an aggregate, records of 200 B"
    bench.rows.append(_rate_row(what, "records/s", 1_000_000, filled, seconds, _SCANNED))


@_needs_spark
def spark_rebuild(bench: Bench) -> None:
    """The database from the log: sorted files, and a new database made of them."""
    root = bench.fresh("rebuild")
    with open_store(store_config(root)) as store:
        filled = _fill(store, bench.amount(_MESSAGES, 10 * BATCH))
    with _session(bench) as spark:
        from migration.spark.jobs.rebuilding import RebuildSettings, rebuild, replace_database
        from migration.spark.jobs.store_parts import find_parts, read_liveness

        parts = find_parts(root)

        def make() -> None:
            settings = RebuildSettings(
                log=parts.log, output=root / "sorted", liveness=read_liveness(parts)
            )
            result = rebuild(spark, settings)
            assert (result.units, result.index_rows) == (filled.messages, filled.messages)
            replace_database(root / "kvcq", result)

        def plain() -> None:
            made = worker_alone(root, filled.end, bench.directory / f"plain-{next(turns)}")
            assert made == filled.messages

        turns = count()
        seconds = _in_turn(bench, make, plain)
    what = "Spark: rebuild, units and keys, into a database"
    probe_of = "one plain process that makes sorted files of the same log"
    bench.rows.append(_rate_row(what, "units/s", 350_000, filled, seconds, probe_of))


@_needs_spark
def spark_verify(bench: Bench) -> None:
    """Log, file queues and RocksDB, all equal."""
    root = bench.fresh("verify")
    with on_files(root) as store:
        # Both sides are written from here on.
        assert live(store).start().wait(_WAIT_S)
        filled = _fill(store, bench.amount(_MESSAGES, 10 * BATCH))
    with _session(bench) as spark:
        from migration.spark.jobs.store_parts import find_parts, read_liveness
        from migration.spark.verify.compare import VerifySettings, verify

        parts = find_parts(root)
        assert parts.files is not None
        assert parts.database is not None
        settings = VerifySettings(
            log=parts.log,
            files=parts.files,
            database=parts.database,
            liveness=read_liveness(parts),
        )

        def compare() -> None:
            result = verify(spark, settings)
            assert result.equal, result.summary()
            assert set(result.units.values()) == {filled.messages}

        work, probe = _in_turn(bench, compare, lambda: _scan_log(root, filled))
    limit_s = 15.0 * filled.messages / _MESSAGES
    bench.rows.append(
        Row(
            f"Spark: verify {filled.messages:,} messages{_runs(work)} {min(work):.1f} s",
            median(work),
            "s",
            f"under {limit_s:g} s",
            median(work) < limit_s,
            median(probe),
            _SCANNED,
        )
    )


class _Filled(NamedTuple):
    messages: int
    record_bytes: int
    end: int  # of the log


def _fill(store: MessageStore, wanted: int) -> _Filled:
    """So many records of _RECORD_BYTES, each with a tag and a key, over 80 queues."""
    body = bytes(_RECORD_BYTES - _OTHER_BYTES)
    batches = [
        [
            Message(
                f"bench-{number % _TOPICS}",
                body,
                number // _TOPICS % _QUEUES,
                tag=f"tag{number % 5}",
                keys=(f"key-{number:08d}",),
            )
            for number in range(first, first + BATCH)
        ]
        for first in range(0, _TOPICS * _QUEUES * BATCH, BATCH)
    ]
    size = 0
    made = wanted // BATCH
    for number in range(made):
        appended = store.put(batches[number % len(batches)])
        size += sum(request.record_size for request in appended.requests)
    assert size == made * BATCH * _RECORD_BYTES
    return _Filled(made * BATCH, size, store.log.appended_offset)


@contextmanager
def _session(bench: Bench) -> Iterator[SparkSession]:
    """A new one, or the one that this process runs already: there can be one only."""
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    settings = SparkSettings(master="local[2]", shuffle_partitions=4, scratch=bench.directory)
    with spark_session(settings) as spark:
        yield spark


class _Seconds(NamedTuple):
    """Of each run that counts."""

    work: list[float]
    probe: list[float]


def _in_turn(bench: Bench, work: Callable[[], None], probe: Callable[[], None]) -> _Seconds:
    """Both, in turns; the work once before that."""
    work()
    seconds = _Seconds([], [])
    for _ in range(bench.rounds):
        for found, run in zip(seconds, (work, probe), strict=True):
            began_s = perf_counter()
            run()
            found.append(perf_counter() - began_s)
    return seconds


def _scan_log(root: Path, filled: _Filled) -> None:
    assert scan(root) == filled.messages


def _rate_row(
    what: str, unit: str, wanted: int, filled: _Filled, seconds: _Seconds, probe_of: str
) -> Row:
    value, best, probe = (
        filled.messages / of
        for of in (median(seconds.work), min(seconds.work), median(seconds.probe))
    )
    return Row(
        f"{what}{_runs(seconds.work)} {best:,.0f}/s",
        value,
        unit,
        f"{wanted:,}/s",
        value >= wanted,
        probe,
        probe_of,
    )


def _runs(seconds: list[float]) -> str:
    return f"; median of {len(seconds)} warm runs, best"
