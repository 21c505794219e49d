"""Rebuilds everything derived from the log, as sorted files to ingest, with Spark.

The executors decode log ranges and pack their rows by key range, and each key range becomes one
file. The driver joins the bounds of all queues and writes them last, with the dispatch checkpoint,
so a database that has it also has the rest. The rows are byte for byte those of live dispatch.
"""

from __future__ import annotations

import json
import pickle
import shutil
import time
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kvcq.engine.rocks import DERIVED, RocksEngine, write_sst
from kvcq.inspect import state_records
from kvcq.state_store import KvStateStore
from kvcq.tables import BOUNDS, DISPATCHED_KEY, INDEX, UNITS, pack_i64, unit_prefix
from kvcq.without_queues import place_without_queues
from migration.columnar import (
    ALL_LIVE,
    DEFAULTS,
    FAMILIES,
    LastUnits,
    Liveness,
    LogLayoutError,
    ReadOptions,
    plan_cuts,
    read_layout,
    sample_log,
    split,
)
from migration.spark.columns import struct_of
from migration.spark.errors import PipelineError
from migration.spark.jobs.rebuild_tasks import (
    FILES,
    PACKS,
    RebuildTask,
    SortedFile,
    pack_ranges,
    write_files,
)
from migration.spark.progress import watched
from store.base import Progress, no_progress, write_file
from store.log import SegmentSet
from store.state import changes_of
from store.store_dir import StoreDir

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kvcq.engine import KvEngine
    from store.consume_queue import LastUnit

#: Name of the file that describes the sorted files, for `kvcq migrate ingest`.
MANIFEST = "manifest.json"
#: Bytes of a segment for one reading task.
PARTITION_BYTES = 64 << 20
#: Rows of one file. A writing task has all of them in memory, about 200 bytes each.
ROWS_PER_FILE = 1_000_000


@dataclass(frozen=True, kw_only=True)
class RebuildSettings:
    """What to read, and where to write files."""

    log: Path  # directory of the segments
    output: Path  # created if missing; on the database's file system, so that files can be moved
    begin: int | None = None  # beginning of a record; None: the log's start
    end: int | None = None  # physical offset to stop at; None: the log's end
    liveness: Liveness = ALL_LIVE
    ends: Sequence[LastUnit] = ()  # of queues whose records may all have left the log
    read: ReadOptions = DEFAULTS
    partition_bytes: int = PARTITION_BYTES
    rows_per_file: int = ROWS_PER_FILE


@dataclass(frozen=True)
class RebuildResult:
    """Files to ingest; `log_end` is the checkpoint in them."""

    files: tuple[SortedFile, ...]
    bounds: SortedFile
    queues: int
    units: int
    index_rows: int
    log_start: int
    log_end: int
    segment_bytes: int
    seconds: float

    def paths(self, family: str) -> list[Path]:
        return [file.sst.path for file in self.files if file.family == family]

    def as_json(self) -> dict[str, Any]:
        """The result for JSON: paths by family, in the order to ingest them."""
        return {
            "queues": self.queues,
            "units": self.units,
            "indexRows": self.index_rows,
            "logStart": self.log_start,
            "logEnd": self.log_end,
            "seconds": round(self.seconds, 3),
            "files": {
                UNITS: [str(path) for path in self.paths(UNITS)],
                INDEX: [str(path) for path in self.paths(INDEX)],
                BOUNDS: [str(self.bounds.sst.path)],
            },
        }


def rebuild(
    spark: SparkSession,
    settings: RebuildSettings,
    progress: Progress = no_progress,
) -> RebuildResult:
    """Write the files. Files of earlier or failed runs in `output` are not touched.

    Raises LogLayoutError, PipelineError; a failure in an executor as pyspark's PythonException.
    Durability: each listed file is on disk, except for its directory entry.
    """
    began = time.monotonic()
    layout = read_layout(settings.log, end=settings.end)
    settings.output.mkdir(parents=True, exist_ok=True)
    begin = layout.start if settings.begin is None else settings.begin
    if not layout.start <= begin <= layout.end:
        raise LogLayoutError(f"{begin} is outside the log, {layout.start} to {layout.end}")
    sample = sample_log(layout, begin, layout.end, settings.liveness)
    least = spark.sparkContext.defaultParallelism
    cuts = plan_cuts(sample, layout.end - begin, settings.rows_per_file, least)
    task = RebuildTask(settings.liveness, cuts, settings.read, str(settings.output))
    ranges = split(layout, begin, layout.end, settings.partition_bytes, exact=True)
    files: list[SortedFile] = []
    ends = LastUnits()
    if ranges:
        pickled = [(pickle.dumps(log_range),) for log_range in ranges]
        todo = spark.sparkContext.parallelize(pickled, len(pickled)).toDF("log_range binary")
        packs = todo.mapInArrow(partial(pack_ranges, task), struct_of(PACKS))
        apart = packs.repartitionById(cuts.ranges, packs["part"])
        with watched(spark, "rebuild", progress):
            found = apart.mapInArrow(partial(write_files, task), struct_of(FILES)).collect()
        files = [pickle.loads(row.file) for row in found]
        for file in files:
            ends.join(file.ends)  # a queue may be in several files
    # Queues whose last message has left the log continue at their last offsets.
    for topic, queue_id, queue_offset, physical_offset in settings.ends:
        if physical_offset < layout.start:
            ends.join([(unit_prefix(topic, queue_id), physical_offset, queue_offset)])
    files.sort(key=lambda file: (file.family, file.sst.first_key))
    check_disjoint(files)
    rows = [*ends.rows(), (DISPATCHED_KEY, pack_i64(layout.end))]
    path = settings.output / f"bounds-{time.time_ns()}.sst"
    written = write_sst(path, sorted(rows), FAMILIES[BOUNDS])
    assert written is not None
    return RebuildResult(
        files=tuple(files),
        bounds=SortedFile(BOUNDS, written, []),
        queues=len(ends.by_prefix),
        units=sum(file.sst.rows for file in files if file.family == UNITS),
        index_rows=sum(file.sst.rows for file in files if file.family == INDEX),
        log_start=begin,
        log_end=layout.end,
        segment_bytes=layout.segment_bytes,
        seconds=time.monotonic() - began,
    )


def write_manifest(directory: Path, result: RebuildResult) -> None:
    """Write `manifest.json`, which describes the files, after all of them exist."""
    document = {"log_start": result.log_start, "log_end": result.log_end} | {
        name: result.as_json()[name] for name in ("units", "queues", "files")
    }
    write_file(directory / MANIFEST, json.dumps(document, indent=1).encode())


def ingest(engine: KvEngine, result: RebuildResult, *, move: bool = True) -> None:
    """Ingest the files into a database without queues; the bounds, with the checkpoint, come last.

    Durable on return. A crash before that leaves a database without a checkpoint, which dispatch
    fills again.
    """
    for family in (UNITS, INDEX):
        if paths := result.paths(family):
            engine.ingest(family, paths, move=move)
    engine.ingest(BOUNDS, [result.bounds.sst.path], move=move)


def replace_queues(root: Path, result: RebuildResult) -> None:
    """Replace the queues of the stopped store in `root` by the files; its state is kept, and
    brought to where they end. The caller must hold the store's lock.

    The old database is removed last. A crash leaves the old database, or one without queues, which
    the next opening rebuilds from the log. Raises EngineFailedError, StoreFormatError.
    """
    directory = StoreDir(root)
    with closing(SegmentSet.load(directory.commitlog, result.segment_bytes)) as segments:
        aside = place_without_queues(directory, segments, "replaced")
        with closing(RocksEngine.open(directory.kvcq, DERIVED)) as engine:
            _catch_up(engine, segments, directory.base_offset, result.log_end)
            ingest(engine, result)
    if aside is not None:
        shutil.rmtree(aside, ignore_errors=True)


def _catch_up(engine: KvEngine, segments: SegmentSet, base_offset: int, end: int) -> None:
    """Apply the records of state below `end` that the rows lack, durably: after a kill, or if they
    are those of a snapshot. No opening does that once there are queues up to `end`."""
    state = KvStateStore(engine, flushes=lambda: True)
    start = max(base_offset, state.point)
    for at, behind, entries in state_records(engine, segments, start) if start < end else ():
        if behind <= end:
            state.apply(changes_of(entries, at, state), behind)
    state.flush()


def check_disjoint(files: list[SortedFile]) -> None:
    """Check that files in key order do not overlap. Raises PipelineError."""
    for one, other in pairwise(files):
        if one.family == other.family and one.sst.last_key >= other.sst.first_key:
            raise PipelineError(f"{one.sst.path.name} and {other.sst.path.name} overlap")
