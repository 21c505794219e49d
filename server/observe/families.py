"""Maps the server's statistics to metrics.

A statistic that RocketMQ has too gets RocketMQ's name and unit (5.1 and newer), with its labels
cluster, node_type and node_id; the others begin with kvcq_, in seconds and bytes. Statistics that
are in no table are exported as well: `store.some_number` as kvcq_store_some_number, without a type.
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
    """One statistic as a metric. A name that ends with _total is a counter."""

    metric: str
    help: str
    scale: float = 1.0  # factor from the number's unit to the metric's unit


_PLAIN = {
    "server.uptime_s": Row("kvcq_uptime_seconds", "Time since the process started to serve."),
    "server.ready": Row("kvcq_ready", "1 if calls are accepted and puts can be stored."),
    "server.draining": Row("kvcq_draining", "1 while the server is shutting down."),
    "server.opening_progress": Row(
        "kvcq_opening_ratio", "Progress of the current step of opening the store, 0 to 1."
    ),
    "server.producers": Row("kvcq_producers", "Producers whose latest batches are in memory."),
    "server.watched_queues": Row("kvcq_watched_queues", "Queues with a waiting reader."),
    "server.waiting_receives": Row(
        "kvcq_waiting_receives", "Receives of shared groups that wait for a message."
    ),
    "server.cold_readers": Row(
        "kvcq_cold_readers", "Running processes that read far behind the end of the log."
    ),
    "server.cold_reads": Row("kvcq_cold_reads_total", "Pulls answered by these processes."),
    "server.memory_bytes": Row(
        "kvcq_memory_private_bytes", "Private memory of the process, without mapped files."
    ),
    "server.max_receive_bytes": Row("kvcq_max_receive_bytes", "Largest request accepted."),
    "server.fronts.running": Row("kvcq_fronts", "Running front-end processes."),
    "server.fronts.restarts": Row("kvcq_front_restarts_total", "Restarts of front-end processes."),
    "server.fronts.memory_bytes": Row(
        "kvcq_fronts_memory_private_bytes", "Private memory of all front-end processes."
    ),
    "server.backup_places": Row("kvcq_backup_places", "Number of places in server.backup_to."),
    "store.log_start_offset": Row(
        "kvcq_log_start_offset", "Physical offset of the start of the log, bytes."
    ),
    "store.log_appended_offset": Row(
        "kvcq_log_appended_offset", "Physical offset of the end of the log, bytes."
    ),
    "store.log_flushed_offset": Row(
        "kvcq_log_flushed_offset", "Physical offset up to which the log is durable, bytes."
    ),
    "store.log_dispatched_offset": Row(
        "kvcq_log_dispatched_offset", "Physical offset up to which the log is dispatched, bytes."
    ),
    "store.flush_count": Row("kvcq_flushes_total", "Flushes of the log that wrote something."),
    "store.failed": Row("kvcq_store_failed", "1 if writes are rejected until a restart."),
    "store.hot_queues": Row("kvcq_hot_queues", "Queues whose next offset is in memory."),
    "store.poison_records": Row(
        "kvcq_poison_records_total",
        "Records that could not be dispatched since the store was opened.",
    ),
    "store.disk_used_ratio": Row(
        "kvcq_disk_used_ratio", "Used part of the log's file system, 0 to 1."
    ),
    "store.disk_free_bytes": Row("kvcq_disk_free_bytes", "Free bytes on the log's file system."),
    "store.puts_refused_for_space": Row(
        "kvcq_puts_refused_for_space", "1 if puts are rejected because the disk is too full."
    ),
    "store.dropped_segments": Row("kvcq_dropped_segments_total", "Segments dropped by retention."),
    "store.retention_read_errors": Row(
        "kvcq_retention_read_errors_total",
        "Runs of retention that stopped at an unreadable segment.",
    ),
    "store.clock_jumped_s": Row(
        "kvcq_clock_jumped_seconds", "How far the wall clock is ahead of elapsed time."
    ),
    "store.clock_behind_s": Row(
        "kvcq_clock_behind_seconds", "How far the wall clock is behind the newest message."
    ),
    "store.time_falls": Row(
        "kvcq_store_time_falls", "Places in the log where store times go back."
    ),
    "store.snapshots.kept": Row("kvcq_snapshots", "Snapshots of the state that are kept."),
    "store.snapshots.newest_point": Row(
        "kvcq_snapshot_offset", "Where in the log the newest snapshot is, bytes."
    ),
    "store.snapshots.newest_age_s": Row(
        "kvcq_snapshot_age_seconds", "Since the newest snapshot was taken; 0: there is none."
    ),
    "store.snapshots.sealed_bytes": Row("kvcq_snapshot_bytes", "Size of all sealed files."),
    "store.snapshots.replay_bytes": Row(
        "kvcq_snapshot_replay_bytes", "Log behind the newest snapshot."
    ),
    "store.snapshots.replay_s": Row(
        "kvcq_snapshot_replay_seconds", "How long its replay would take, about."
    ),
    "store.filter_errors": Row(
        "kvcq_filter_errors_total", "Messages that an SQL filter could not judge: no match."
    ),
    "store.dead_letters_moved": Row(
        "kvcq_dead_letters_moved_total", "Dead letters appended again before their segment went."
    ),
    "store.dead_letters_expired": Row(
        "kvcq_dead_letters_expired_total", "Dead letters kept as long as their group says."
    ),
    "store.dead_letters_given_up": Row(
        "kvcq_dead_letters_given_up_total",
        "Dead letters lost before their time to a full disk, or damaged.",
    ),
    "store.transactions_open": Row(
        "kvcq_transactions_open", "Transactions that were neither committed nor rolled back."
    ),
    "store.transactions_given_up": Row(
        "kvcq_transactions_given_up", "Open transactions that nobody is asked about any more."
    ),
    "store.transactions_oldest_s": Row(
        "kvcq_transactions_oldest_seconds", "Age of the oldest open transaction."
    ),
    "store.transactions_begun": Row("kvcq_transactions_begun_total", "Transactions begun."),
    "store.transactions_committed": Row(
        "kvcq_transactions_committed_total", "Transactions committed."
    ),
    "store.transactions_rolled_back": Row(
        "kvcq_transactions_rolled_back_total", "Transactions rolled back."
    ),
    "store.transactions_lost": Row(
        "kvcq_transactions_lost_total",
        "Transactions that ended because their topic, or their record, was gone.",
    ),
    "store.transaction_checks_sent": Row(
        "kvcq_transaction_checks_total", "Producers asked what became of a transaction."
    ),
    "server.transaction_listeners": Row(
        "kvcq_transaction_listeners", "Producers that answer checks of transactions."
    ),
    "store.timers_pending": Row(
        "kvcq_timers_pending", "Delayed messages that wait for their time."
    ),
    "store.timers_late_s": Row(
        "kvcq_timers_late_seconds", "How late the delayed message is that is put next."
    ),
    "store.timers_fired": Row(
        "kvcq_timers_fired_total", "Delayed messages that were put at their time."
    ),
    "store.timers_recalled": Row("kvcq_timers_recalled_total", "Delayed messages recalled."),
    "store.timers_gone": Row(
        "kvcq_timers_gone_total", "Delayed messages whose topic was deleted before their time."
    ),
    "store.timers_lost": Row(
        "kvcq_timers_lost_total", "Delayed messages that could not be read at their time."
    ),
    "store.timers_moved": Row(
        "kvcq_timers_moved_total", "Delayed messages appended again before their segment went."
    ),
    "store.timers_given_up": Row(
        "kvcq_timers_given_up_total", "Delayed messages lost before their time to a full disk."
    ),
    "store.shared_expired": Row(
        "kvcq_shared_expired_total", "Messages that topics dropped before a shared group got them."
    ),
    "store.shared_gone": Row(
        "kvcq_shared_gone_total", "Messages that topics dropped while a group had to retry them."
    ),
    "store.shared_damaged_met": Row(
        "kvcq_shared_damaged_met_total", "Damaged messages that held a shared group's queue up."
    ),
    "store.shared_damaged_skipped": Row(
        "kvcq_shared_damaged_skipped_total", "Damaged messages that receivers asked to skip."
    ),
    "store.queue_repairs": Row(
        "kvcq_queue_repairs_total", "Queues rebuilt from the log after a reader hit damage."
    ),
}
_PLAIN |= {
    "server.scrub.records": Row("kvcq_scrub_records_total", "Records verified by scrubbing."),
    "server.scrub.bytes": Row("kvcq_scrub_bytes_total", "Bytes of the log verified by scrubbing."),
    "server.scrub.units": Row("kvcq_scrub_units_total", "Units verified by scrubbing."),
    "server.scrub.faults": Row(
        "kvcq_scrub_faults_total", "Records and units that failed verification."
    ),
    "server.scrub.pass_position": Row(
        "kvcq_scrub_position", "Physical offset of the current pass of scrubbing."
    ),
    "server.scrub.pass_end": Row("kvcq_scrub_end", "Physical offset where the current pass ends."),
    "server.scrub.pass_faults": Row("kvcq_scrub_pass_faults", "Faults found by the current pass."),
    "server.scrub.pass_began_ms": Row(
        "kvcq_scrub_began_timestamp_seconds",
        "Start of the current pass, seconds since 1970.",
        0.001,
    ),
    "server.scrub.completed_ms": Row(
        "kvcq_scrub_completed_timestamp_seconds",
        "End of the last complete pass, seconds since 1970; 0: none.",
        0.001,
    ),
    "server.scrub.completed_faults": Row(
        "kvcq_scrub_completed_faults", "Faults found by the last complete pass."
    ),
}
#: Exported elsewhere: as a histogram, or under RocketMQ's name.
_ELSEWHERE = frozenset(
    {"store.flush_seconds", "store.flush_behind_bytes", "store.dispatch_behind_bytes"}
)
#: Metrics of a column family of kvcq/.
_FAMILY = {
    "estimated_keys": Row("kvcq_rocksdb_estimated_keys", "Rows, estimated by RocksDB."),
    "sst_bytes": Row("kvcq_rocksdb_sst_bytes", "Size of the SST files."),
    "memtable_bytes": Row("kvcq_rocksdb_memtable_bytes", "Size of the memtables."),
    "l0_files": Row("kvcq_rocksdb_level0_files", "Level-0 files; writes stop at 24."),
    "pending_compaction_bytes": Row(
        "kvcq_rocksdb_pending_compaction_bytes", "Bytes pending compaction."
    ),
    "immutable_memtables": Row(
        "kvcq_rocksdb_immutable_memtables", "Memtables waiting to be flushed."
    ),
}
_STALLS = Row(
    "kvcq_rocksdb_write_stalls_total",
    "Write stalls of RocksDB, by cause.",
)
_STALL_PREFIX = "stalls_"
#: Metrics of the database.
_DATABASE = {
    "running_flushes": Row("kvcq_rocksdb_running_flushes", "Running flushes of memtables."),
    "running_compactions": Row("kvcq_rocksdb_running_compactions", "Running compactions."),
    "write_stopped": Row("kvcq_rocksdb_write_stopped", "1 while RocksDB rejects writes."),
    "delayed_write_bytes_per_s": Row(
        "kvcq_rocksdb_delayed_write_bytes_per_second",
        "Above 0: the rate that RocksDB limits writes to.",
    ),
    "background_errors": Row(
        "kvcq_rocksdb_background_errors_total", "Failed flushes and compactions."
    ),
    "block_cache_bytes": Row("kvcq_rocksdb_block_cache_bytes", "Size of the block cache."),
    "block_cache_pinned_bytes": Row(
        "kvcq_rocksdb_block_cache_pinned_bytes", "Part of the block cache that is pinned."
    ),
    "block_cache_hits": Row("kvcq_rocksdb_block_cache_hits_total", "Blocks found in the cache."),
    "block_cache_misses": Row("kvcq_rocksdb_block_cache_misses_total", "Blocks read from files."),
    "range_deletions_in_memory": Row(
        "kvcq_rocksdb_range_deletions", "Range deletions in memtables, estimated."
    ),
    "filter_armed": Row("kvcq_rocksdb_filter_armed", "1 if compaction drops expired units."),
}
#: Metrics of the database under RocketMQ's names.
_ROCKETMQ_DATABASE = {
    "bytes_written": Row("rocketmq_rocksdb_bytes_written", "Bytes written to RocksDB."),
    "bytes_read": Row("rocketmq_rocksdb_bytes_read", "Bytes read from RocksDB by key."),
    "keys_read": Row("rocketmq_rocksdb_times_read", "Keys read."),
    "writes_self": Row(
        "rocketmq_rocksdb_times_written_self", "Batches written by their own thread."
    ),
    "writes_other": Row(
        "rocketmq_rocksdb_times_written_other", "Batches written by another thread."
    ),
    "blocks_compressed": Row("rocketmq_rocksdb_times_compressed", "Blocks compressed."),
}
_DATABASES = ("kvcq", "meta")
_NAME = re.compile(r"[a-z][a-z0-9_.]*")

_FRONT_PREFIX = "server.front."
_FRONT_CALLS = Row("kvcq_front_calls_total", "Calls received by a front-end process.")
_JOB_PREFIX = "server.jobs."
_RUNNING = ".running"
_JOB_ENDS = ("done", "failed", "cancelled")
_JOBS_RUNNING = Row("kvcq_jobs_running", "Running jobs.")
_JOB_RATIO = Row("kvcq_job_progress_ratio", "Progress of the running job, 0 to 1.")
_JOBS_ENDED = Row("kvcq_jobs_total", "Jobs that ended since the server started, by outcome.")
#: Metrics of the latest successful job of each kind.
_LAST_DONE = {
    "last_done_ms": Row(
        "kvcq_job_last_done_timestamp_seconds",
        "End of the last successful job, seconds since 1970; 0: none.",
        0.001,
    ),
    "last_done_seconds": Row(
        "kvcq_job_last_done_duration_seconds", "Duration of the last successful job."
    ),
    "last_done_bytes": Row(
        "kvcq_job_last_done_bytes", "Bytes read by the last successful job; for a backup, its size."
    ),
    "failed_since": Row(
        "kvcq_job_failed_since_done", "Jobs that failed since the last successful one."
    ),
}

Labels = dict[str, str]


class Gathered:
    """Collects samples in their families."""

    def __init__(self, node: Labels) -> None:
        """`node`: the labels for metrics with RocketMQ's names."""
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
        """`scale`: factor from the values to the metric's unit."""
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
    """Add all of `statistics`, by the tables above."""
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
    """Whether it is one of RocksDB's statistics."""
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
    """Zeros for results that no job had yet, so that monitoring sees the first one rise."""
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
