"""server/observe/families.py: names, types and labels."""

from __future__ import annotations

import re

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from server.observe import families
from server.observe.families import Gathered, Row, add_statistics
from store.base import Histogram
from tests.support.http import Samples


class _Collector:
    def __init__(self, gathered: Gathered) -> None:
        self.collect = gathered.families


def _text(gathered: Gathered) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(gathered))
    return generate_latest(registry).decode()


def test_statistics_become_metrics_with_types_and_labels() -> None:
    gathered = Gathered({"cluster": "c"})
    add_statistics(
        gathered,
        {
            "store.log_start_offset": 7,
            "store.queue_repairs": 2,
            "kvcq.default.l0_files": 3,
            "kvcq.index.stalls_l0_files": 4,
            "meta.running_flushes": 1,
            "kvcq.bytes_written": 9,
            "store.flush_behind_bytes": 5,
            "store.new_number": 11,
            "kvcq.migration_files_joined": 1,
            "server.other.position": 12,
            "server.scrub.completed_ms": 1_700_000_000_500,
            "server.jobs.compact.running": 1,
            "server.jobs.compact.percent": 50,
            "server.jobs.compact.failed": 3,
            "server.jobs.backup.last_done_ms": 1_700_000_000_250,
            "server.jobs.backup.last_done_seconds": 61.5,
            "server.jobs.backup.last_done_bytes": 1 << 30,
            "server.jobs.backup.failed_since": 2,
            "not a name": 13,
        },
    )
    text = _text(gathered)
    samples = Samples(text)
    assert samples.get("kvcq_log_start_offset") == 7
    assert samples.get("kvcq_queue_repairs_total") == 2
    assert samples.get("kvcq_rocksdb_level0_files", database="kvcq", family="default") == 3
    assert (
        samples.get(
            "kvcq_rocksdb_write_stalls_total", database="kvcq", family="index", cause="l0_files"
        )
        == 4
    )
    assert samples.get("kvcq_rocksdb_running_flushes", database="meta") == 1
    assert samples.get("rocketmq_rocksdb_bytes_written", database="kvcq") == 9
    assert samples.get("kvcq_store_new_number") == 11
    assert samples.get("kvcq_migration_files_joined") == 1
    assert samples.get("kvcq_server_other_position") == 12
    assert samples.get("kvcq_scrub_completed_timestamp_seconds") == 1_700_000_000.5
    assert samples.get("kvcq_jobs_running", kind="compact") == 1
    assert samples.get("kvcq_job_progress_ratio", kind="compact") == 0.5
    assert samples.get("kvcq_jobs_total", kind="compact", state="failed") == 3
    assert samples.get("kvcq_jobs_total", kind="compact", state="done") == 0
    assert samples.get("kvcq_job_last_done_timestamp_seconds", kind="backup") == 1_700_000_000.25
    assert samples.get("kvcq_job_last_done_duration_seconds", kind="backup") == 61.5
    assert samples.get("kvcq_job_last_done_bytes", kind="backup") == 1 << 30
    assert samples.get("kvcq_job_failed_since_done", kind="backup") == 2
    assert len(samples.names) == 17
    assert "# TYPE kvcq_queue_repairs_total counter" in text
    assert "# TYPE kvcq_log_start_offset gauge" in text
    assert "# TYPE kvcq_store_new_number untyped" in text
    assert 'rocketmq_rocksdb_bytes_written{cluster="c"' in text


def test_histograms_are_cumulative_in_the_unit_of_the_metric() -> None:
    histogram = Histogram((0.001, 1048.576))
    for value in (0.0005, 0.5, 2000):
        histogram.add(value)
    gathered = Gathered({})
    gathered.add_histogram(Row("h", "Help."), histogram.read(), {"a": 'b"\n'}, 1000)
    text = _text(gathered)
    found = re.findall(r'h_bucket\{a="b\\"\\n",le="(.*)"\} (.*)', text)
    assert found == [("1", "1.0"), ("1048576", "2.0"), ("+Inf", "3.0")]
    assert "h_count" in text
    assert 'h_sum{a="b\\"\\n"} 2.0005005e+06' in text


def test_every_name_is_one_that_prometheus_takes() -> None:
    tables = (
        families._PLAIN,
        families._FAMILY,
        families._DATABASE,
        families._ROCKETMQ_DATABASE,
        families._LAST_DONE,
    )
    rows = [row for table in tables for row in table.values()]
    assert len({row.metric for row in rows}) == len(rows)
    for row in rows:
        assert re.fullmatch(r"(kvcq|rocketmq)_[a-z0-9_]+", row.metric)
        assert row.help.endswith(".")
