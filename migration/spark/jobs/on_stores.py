"""Jobs on the directory of a store, as functions of a Spark session; `export` is beside them.

Any classic session works: of a notebook, of spark-submit, or from `session.spark_session`.
`pyspark_kvcq` exports these functions. The executors need this package, and the store's directory
under the same path, because they map its log.
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
    check_owns_queues,
    find_parts,
    locked,
    read_ends,
    read_liveness,
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
    """Compare the log with the file queues and the database of the store.

    The store must be stopped. If it runs, pass as `database` the `kvcq/` directory of a restored
    backup. `files`: the directory of file queues that are elsewhere. `end`: physical offset to stop
    at. `output`: a new directory for all differences, as Parquet. Changes nothing else. Raises
    StoreError.
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
    """Rebuild the database from the log, and replace the old one. The store must be stopped.

    With `output`, sorted files are written to that new directory instead, from the record at
    `begin` (default: the log's start) to the physical offset `end` (default: its end); the store
    may be running. A crash leaves the old database, or one without queues, which opening the store
    rebuilds. Raises StoreError.
    """
    parts = find_parts(store)
    if output is None:
        check_owns_queues(parts)
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
        shutil.rmtree(scratch, ignore_errors=True)  # left by an interrupted run
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
    """Select messages of a store, for `export`. Times are inclusive; the store may be running.

    `all_topics`: include deleted topics and system topics. `skip_damaged`: skip bytes that are not
    records.
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
    """The liveness without system topics, except those in `named`."""
    found = liveness.topics or {}
    kept = {name: at for name, at in found.items() if name != STATE_TOPIC or name in named}
    return replace(liveness, topics=kept)


def _must_be_new(output: Path | None) -> None:
    if output is not None and output.exists():
        raise PipelineError(f"{output} exists")
