"""The jobs on the directory of a store, as functions of a Spark session; `export` is beside them.

Any classic session will do: a notebook's, that of a program under spark-submit, or one made by
`session.spark_session`. `pyspark_kvcq` has them all. The executors need this package, and the
directory of the store under the same path: they map its log.
"""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from migration.columnar import ALL_LIVE, ReadOptions
from migration.spark.errors import PipelineError
from migration.spark.jobs import rebuilding as rebuilding
from migration.spark.jobs.messages import MessageChoice
from migration.spark.jobs.store_parts import (
    find_parts,
    locked,
    read_ends,
    read_liveness,
    uses_database,
)
from migration.spark.verify import VerifySettings
from migration.spark.verify import verify as compare
from store.base import Progress, no_progress
from store.state import STATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from pyspark.sql import SparkSession

    from migration.columnar import Liveness
    from migration.spark.jobs.rebuilding import RebuildResult
    from migration.spark.verify import VerifyResult


def verify(
    spark: SparkSession,
    store: Path,
    *,
    files: Path | None = None,
    database: Path | None = None,
    end: int | None = None,
    output: Path | None = None,
    verify_crc: bool = False,
    progress: Progress = no_progress,
) -> VerifyResult:
    """Compare the log with the file queues and the database, all that the store has.

    The store is stopped, or `database` names that of a restored backup. `files`: file queues that
    lie elsewhere. `end`: physical offset to stop at. `output`: a new directory for all differences,
    as Parquet. Changes nothing else. Raises StoreError.
    """
    parts = find_parts(store)
    _must_be_new(output)
    settings = VerifySettings(
        log=parts.log,
        files=files or parts.files,
        database=database or parts.database,
        end=end,
        output=output,
        liveness=read_liveness(parts),
        read=ReadOptions(verify_crc=verify_crc),
    )
    with locked(parts) if database is None else nullcontext():
        return compare(spark, settings, progress)


def rebuild(
    spark: SparkSession,
    store: Path,
    *,
    output: Path | None = None,
    begin: int | None = None,
    end: int | None = None,
    verify_crc: bool = False,
    progress: Progress = no_progress,
) -> RebuildResult:
    """The database is made from the log, and takes the place of the old one. Store stopped.

    With `output`, sorted files are written to that new directory instead, of the log from the
    record at `begin` (its start) to the physical offset `end` (its end); the store may run. A crash
    leaves the old database, or one without queues: then opening the store makes them. Raises
    StoreError.
    """
    parts = find_parts(store)
    if output is None and not uses_database(parts):
        raise PipelineError(f"{store} keeps no queues in RocksDB: name --output")
    _must_be_new(output)

    def work(target: Path) -> RebuildResult:
        liveness = read_liveness(parts)
        settings = rebuilding.RebuildSettings(
            log=parts.log,
            output=target,
            begin=begin,
            end=end,
            liveness=liveness,
            ends=read_ends(parts, liveness),
            read=ReadOptions(verify_crc=verify_crc),
        )
        return rebuilding.rebuild(spark, settings, progress)

    if output is not None:
        result = work(output)
        rebuilding.write_manifest(output, result)
        return result
    with locked(parts):
        scratch = store / "kvcq.sorted"
        shutil.rmtree(scratch, ignore_errors=True)  # of a run that was cut short
        try:
            result = work(scratch)
            rebuilding.replace_queues(store, result)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return result


def choose(
    store: Path,
    *,
    topics: Sequence[str] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    skip_damaged: bool = False,
    all_topics: bool = False,
) -> MessageChoice:
    """Messages of a store, for `export`. Times are inclusive; it may run.

    `all_topics`: also those of deleted topics, and of the system's own. `skip_damaged`: pass over
    what is no record.
    """
    parts = find_parts(store)
    return MessageChoice(
        log=parts.log,
        topics=tuple(topics),
        begin_ms=None if since is None else int(since.timestamp() * 1000),
        end_ms=None if until is None else int(until.timestamp() * 1000),
        liveness=ALL_LIVE if all_topics else _of_users(read_liveness(parts), topics),
        skip_damaged=skip_damaged,
    )


def _of_users(liveness: Liveness, named: Sequence[str]) -> Liveness:
    """Without what the system keeps in its own topic, unless that is named."""
    found = liveness.topics or {}
    kept = {name: at for name, at in found.items() if name != STATE_TOPIC or name in named}
    return replace(liveness, topics=kept)


def _must_be_new(output: Path | None) -> None:
    if output is not None and output.exists():
        raise PipelineError(f"{output} exists")
