"""Which of the server's numbers is which metric.

A number that RocketMQ has too bears RocketMQ's name and unit (5.1 and newer), with its labels
cluster, node_type and node_id; the others begin with kvcq_, in seconds and bytes. What is named in
no table is told all the same: `store.some_number` as kvcq_store_some_number, without a type.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    UntypedMetricFamily,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from store.base import Counted


class Row(NamedTuple):
    """One statistic as a metric. A name that ends with _total is a counter's."""

    metric: str
    help: str
    scale: float = 1.0  # what one unit of the number is in the metric's unit


_PLAIN = {
    "server.uptime_s": Row("kvcq_uptime_seconds", "Since the process began to serve."),
    "server.ready": Row("kvcq_ready", "1: calls are taken, and puts can be stored."),
    "server.draining": Row("kvcq_draining", "1: the server is shutting down."),
    "server.opening_progress": Row("kvcq_opening_ratio", "Of the step of the opening, 0 to 1."),
    "server.producers": Row("kvcq_producers", "Producers whose latest batches are remembered."),
    "server.watched_queues": Row("kvcq_watched_queues", "Queues that somebody waits for."),
    "server.cold_readers": Row(
        "kvcq_cold_readers", "Processes that read far behind the end of the log, now."
    ),
    "server.cold_reads": Row("kvcq_cold_reads_total", "Pulls that these processes answered."),
    "server.memory_bytes": Row("kvcq_memory_private_bytes", "Memory of the process, no files."),
    "server.max_receive_bytes": Row("kvcq_max_receive_bytes", "Largest request that is taken."),
    "server.fronts.running": Row("kvcq_fronts", "Processes that speak gRPC for this one."),
    "server.fronts.restarts": Row("kvcq_front_restarts_total", "Of them, started again."),
    "server.fronts.memory_bytes": Row(
        "kvcq_fronts_memory_private_bytes", "Memory of all of them, no files."
    ),
    "server.backup_places": Row("kvcq_backup_places", "Where backups may go; 0: there are none."),
    "store.log_start_offset": Row("kvcq_log_start_offset", "Where the log begins, bytes."),
    "store.log_appended_offset": Row("kvcq_log_appended_offset", "Where the log ends, bytes."),
    "store.log_flushed_offset": Row("kvcq_log_flushed_offset", "Durable up to there, bytes."),
    "store.log_dispatched_offset": Row("kvcq_log_dispatched_offset", "In queues up to there."),
    "store.flush_count": Row("kvcq_flushes_total", "Flushes of the log that wrote something."),
    "store.failed": Row("kvcq_store_failed", "1: no more writes are taken before a restart."),
    "store.hot_queues": Row("kvcq_hot_queues", "Queues whose next offset is in memory."),
    "store.poison_records": Row(
        "kvcq_poison_records_total", "Records that stand in no queue, since the opening."
    ),
    "store.disk_used_ratio": Row("kvcq_disk_used_ratio", "Of the log's file system, 0 to 1."),
    "store.disk_free_bytes": Row("kvcq_disk_free_bytes", "Left on the log's file system."),
    "store.puts_refused_for_space": Row(
        "kvcq_puts_refused_for_space", "1: puts are refused, the disk is too full."
    ),
    "store.dropped_segments": Row("kvcq_dropped_segments_total", "Segments that retention took."),
    "store.retention_read_errors": Row(
        "kvcq_retention_read_errors_total", "Runs that ended at a segment they could not read."
    ),
    "store.clock_jumped_s": Row(
        "kvcq_clock_jumped_seconds", "How far the clock is ahead of the time that passed."
    ),
    "store.clock_behind_s": Row(
        "kvcq_clock_behind_seconds", "How far the clock is behind the last message."
    ),
    "store.time_falls": Row(
        "kvcq_store_time_falls", "Places in the log where the clock was set back."
    ),
    "store.queue_repairs": Row(
        "kvcq_queue_repairs_total", "Queues rebuilt from the log, after damage that a reader met."
    ),
}
_PLAIN |= {
    "server.scrub.records": Row("kvcq_scrub_records_total", "Records that scrubbing verified."),
    "server.scrub.bytes": Row("kvcq_scrub_bytes_total", "Bytes of the log that it verified."),
    "server.scrub.units": Row("kvcq_scrub_units_total", "Units of queues that it verified."),
    "server.scrub.faults": Row("kvcq_scrub_faults_total", "Records and units that do not verify."),
    "server.scrub.pass_position": Row("kvcq_scrub_position", "How far the pass is, in the log."),
    "server.scrub.pass_end": Row("kvcq_scrub_end", "Where the pass will end."),
    "server.scrub.pass_faults": Row("kvcq_scrub_pass_faults", "Found in it so far."),
    "server.scrub.pass_began_ms": Row(
        "kvcq_scrub_began_timestamp_seconds", "When the pass began, since 1970.", 0.001
    ),
    "server.scrub.completed_ms": Row(
        "kvcq_scrub_completed_timestamp_seconds", "When the last pass ended; 0: none has.", 0.001
    ),
    "server.scrub.completed_faults": Row("kvcq_scrub_completed_faults", "Found by that one."),
}
#: Told otherwise: as a histogram, or by RocketMQ's name.
_ELSEWHERE = frozenset(
    {"store.flush_seconds", "store.flush_behind_bytes", "store.dispatch_behind_bytes"}
)
#: Of a family of kvcq/ or meta/.
_FAMILY = {
    "estimated_keys": Row("kvcq_rocksdb_estimated_keys", "Rows, as RocksDB estimates them."),
    "sst_bytes": Row("kvcq_rocksdb_sst_bytes", "Size of the files."),
    "memtable_bytes": Row("kvcq_rocksdb_memtable_bytes", "Size of the memtables."),
    "l0_files": Row("kvcq_rocksdb_level0_files", "Files of level 0; writes are refused from 24."),
    "pending_compaction_bytes": Row(
        "kvcq_rocksdb_pending_compaction_bytes", "What compaction has yet to rewrite."
    ),
    "immutable_memtables": Row(
        "kvcq_rocksdb_immutable_memtables", "Memtables that wait for their flush."
    ),
}
_STALLS = Row(
    "kvcq_rocksdb_write_stalls_total",
    "How often RocksDB was behind, by what there was too much of.",
)
_STALL_PREFIX = "stalls_"
#: Of a database: kvcq/ or meta/.
_DATABASE = {
    "running_flushes": Row("kvcq_rocksdb_running_flushes", "Memtables being written to files."),
    "running_compactions": Row("kvcq_rocksdb_running_compactions", "Compactions under way."),
    "write_stopped": Row("kvcq_rocksdb_write_stopped", "1: RocksDB takes no writes for now."),
    "delayed_write_bytes_per_s": Row(
        "kvcq_rocksdb_delayed_write_bytes_per_second", "Above 0: RocksDB slows writes to that."
    ),
    "background_errors": Row(
        "kvcq_rocksdb_background_errors_total", "Failed flushes, compactions."
    ),
    "block_cache_bytes": Row("kvcq_rocksdb_block_cache_bytes", "Blocks in the cache."),
    "block_cache_pinned_bytes": Row("kvcq_rocksdb_block_cache_pinned_bytes", "Of these, in use."),
    "block_cache_hits": Row("kvcq_rocksdb_block_cache_hits_total", "Blocks found in the cache."),
    "block_cache_misses": Row("kvcq_rocksdb_block_cache_misses_total", "Blocks read from files."),
    "range_deletions_in_memory": Row("kvcq_rocksdb_range_deletions", "Not yet in files, about."),
    "filter_armed": Row("kvcq_rocksdb_filter_armed", "1: compaction drops expired units."),
}
#: Of a database as well; RocketMQ's names.
_ROCKETMQ_DATABASE = {
    "bytes_written": Row("rocketmq_rocksdb_bytes_written", "Bytes written to RocksDB."),
    "bytes_read": Row("rocketmq_rocksdb_bytes_read", "Bytes read from RocksDB by key."),
    "keys_read": Row("rocketmq_rocksdb_times_read", "Keys read."),
    "writes_self": Row("rocketmq_rocksdb_times_written_self", "Batches written by their thread."),
    "writes_other": Row("rocketmq_rocksdb_times_written_other", "By the thread of another one."),
    "blocks_compressed": Row("rocketmq_rocksdb_times_compressed", "Blocks compressed."),
}
_DATABASES = ("kvcq", "meta")
_NAME = re.compile(r"[a-z][a-z0-9_.]*")

_FRONT_PREFIX = "server.front."
_FRONT_CALLS = Row("kvcq_front_calls_total", "Calls that came in at a front.")
_JOB_PREFIX = "server.jobs."
_RUNNING = ".running"
_JOB_ENDS = ("done", "failed", "cancelled")
_JOBS_RUNNING = Row("kvcq_jobs_running", "Jobs under way.")
_JOB_RATIO = Row("kvcq_job_progress_ratio", "Of the job under way, 0 to 1.")
_JOBS_ENDED = Row("kvcq_jobs_total", "Jobs that ended since the start, by how.")
#: Of the job of a kind that ended well most lately.
_LAST_DONE = {
    "last_done_ms": Row(
        "kvcq_job_last_done_timestamp_seconds", "When one was last done; 0: none is known.", 0.001
    ),
    "last_done_seconds": Row("kvcq_job_last_done_duration_seconds", "How long that one took."),
    "last_done_bytes": Row("kvcq_job_last_done_bytes", "What it read; of a backup, its size."),
    "failed_since": Row("kvcq_job_failed_since_done", "Jobs that failed since then."),
}

Labels = dict[str, str]


class Gathered:
    """Samples put into the families that they belong to."""

    def __init__(self, node: Labels) -> None:
        """`node`: the labels of what bears RocketMQ's name."""
        self._node = node
        self._plain: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        self._histograms: dict[str, HistogramMetricFamily] = {}
        self._untyped: dict[str, UntypedMetricFamily] = {}

    def add(self, row: Row, value: float, labels: Labels | None = None) -> None:
        name, labels = row.metric, self._labels(row, labels)
        family = self._plain.get(name)
        if family is None:
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = self._plain[name] = kind(name, row.help, labels=list(labels))
        family.add_metric(list(labels.values()), value * row.scale)

    def add_histogram(self, row: Row, counted: Counted, labels: Labels, scale: float = 1.0) -> None:
        """`scale`: what one unit of the numbers is in the metric's unit."""
        labels = self._labels(row, labels)
        family = self._histograms.get(row.metric)
        if family is None:
            family = HistogramMetricFamily(row.metric, row.help, labels=list(labels))
            self._histograms[row.metric] = family
        below, buckets = 0, []
        for bound, count in zip(counted.bounds, counted.counts, strict=False):
            below += count
            buckets.append((f"{bound * scale:.12g}", below))
        buckets.append(("+Inf", counted.times))
        family.add_metric(list(labels.values()), buckets, counted.total * scale)

    def add_untyped(self, name: str, value: float) -> None:
        family = UntypedMetricFamily(name, "See `kvcq stats`.")
        family.add_metric([], value)
        self._untyped[name] = family

    def families(self) -> Iterable[Metric]:
        return [*self._plain.values(), *self._histograms.values(), *self._untyped.values()]

    def _labels(self, row: Row, labels: Labels | None) -> Labels:
        own = labels or {}
        return {**self._node, **own} if row.metric.startswith("rocketmq_") else own


def add_statistics(gathered: Gathered, statistics: Mapping[str, float]) -> None:
    """All of `statistics`, by the tables above."""
    for name, value in (_no_jobs_yet(statistics) | dict(statistics)).items():
        prefix, _, rest = name.partition(".")
        if name in _PLAIN:
            gathered.add(_PLAIN[name], value)
        elif name in _ELSEWHERE or _add_of_database(gathered, prefix, rest, value):
            continue
        elif name.startswith(_FRONT_PREFIX):
            number = name.removeprefix(_FRONT_PREFIX).partition(".")[0]
            gathered.add(_FRONT_CALLS, value, {"front": number})
        elif name.startswith(_JOB_PREFIX):
            _add_of_jobs(gathered, name.removeprefix(_JOB_PREFIX), value)
        elif _NAME.fullmatch(name):
            gathered.add_untyped("kvcq_" + name.removeprefix("kvcq.").replace(".", "_"), value)


def _add_of_database(gathered: Gathered, database: str, name: str, value: float) -> bool:
    """Whether the number is one that RocksDB keeps."""
    if database not in _DATABASES:
        return False
    labels = {"database": database}
    family, _, of_family = name.partition(".")
    if name in _DATABASE:
        gathered.add(_DATABASE[name], value, labels)
    elif name in _ROCKETMQ_DATABASE:
        gathered.add(_ROCKETMQ_DATABASE[name], value, labels)
    elif of_family in _FAMILY:
        gathered.add(_FAMILY[of_family], value, {**labels, "family": family})
    elif of_family.startswith(_STALL_PREFIX):
        cause = of_family.removeprefix(_STALL_PREFIX)
        gathered.add(_STALLS, value, {**labels, "family": family, "cause": cause})
    else:
        return False
    return True


def _no_jobs_yet(statistics: Mapping[str, float]) -> dict[str, float]:
    """Zeros for ends that no job had yet: whoever watches sees the first one rise."""
    kinds = [
        name for name in statistics if name.startswith(_JOB_PREFIX) and name.endswith(_RUNNING)
    ]
    return {name.removesuffix(_RUNNING) + f".{end}": 0.0 for name in kinds for end in _JOB_ENDS}


def _add_of_jobs(gathered: Gathered, name: str, value: float) -> None:
    kind, _, what = name.partition(".")
    match what:
        case "running":
            gathered.add(_JOBS_RUNNING, value, {"kind": kind})
        case "percent":
            gathered.add(_JOB_RATIO, value / 100, {"kind": kind})
        case _ if what in _LAST_DONE:
            gathered.add(_LAST_DONE[what], value, {"kind": kind})
        case _:
            gathered.add(_JOBS_ENDED, value, {"kind": kind, "state": what})
