"""Writes deploy/grafana/kvcq.json, the dashboard, from the table below: `python -m docs.dashboard`.

A panel is a line here and sixty there. Queries are held against a live server by
tests/deploy/test_grafana.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).parents[1] / "deploy" / "grafana" / "kvcq.json"
_WIDTH = 24
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
#: In every query: the servers that are chosen at the top of the page.
_ONE = 'instance=~"$instance"'
_QUANTILES = (0.5, 0.99)


class Panel(NamedTuple):
    """A chart; `queries` are PromQL and what a line is called."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    about: str = ""
    width: int = 8
    kind: str = "timeseries"


def _rate(metric: str, by: str, labels: str = "", function: str = "rate") -> str:
    inside = ", ".join(filter(None, (_ONE, labels)))
    return f"sum by ({by}) ({function}({metric}{{{inside}}}[$__rate_interval]))"


def _quantiles(metric: str, by: str = "", labels: str = "") -> tuple[tuple[str, str], ...]:
    grouped = f"le, {by}" if by else "le"
    name = f"{{{{{by}}}}} " if by else ""
    return tuple(
        (
            f"histogram_quantile({of}, {_rate(f'{metric}_bucket', grouped, labels)})",
            f"{name}{of:.0%}",
        )
        for of in _QUANTILES
    )


def _level(metric: str, legend: str = "{{instance}}", labels: str = "") -> tuple[str, str]:
    return f"{metric}{{{', '.join(filter(None, (_ONE, labels)))}}}", legend


_MESSAGES = 'request_code=~"Put|PutBatch|Pull"'
_STALLS = "kvcq_rocksdb_write_stalls_total"
_HITS = _rate("kvcq_rocksdb_block_cache_hits_total", "database")
_MISSES = _rate("kvcq_rocksdb_block_cache_misses_total", "database")
_RATIO, _ = _level("kvcq_job_progress_ratio")
_RUNNING, _ = _level("kvcq_jobs_running")
_BACKUP = 'kind="backup"'
_LAST_BACKUP, _ = _level("kvcq_job_last_done_timestamp_seconds", labels=_BACKUP)

ROWS: dict[str, tuple[Panel, ...]] = {
    "Overview": (
        Panel("Ready", "bool_yes_no", (_level("kvcq_ready"),), width=4, kind="stat"),
        Panel(
            "Takes puts",
            "none",
            (_level("rocketmq_broker_permission"),),
            "6: reads and puts; 4: reads.",
            4,
            "stat",
        ),
        Panel("Up", "s", (_level("kvcq_uptime_seconds"),), width=4, kind="stat"),
        Panel("Disk used", "percentunit", (_level("kvcq_disk_used_ratio"),), width=4, kind="gauge"),
        Panel("Topics", "short", (_level("rocketmq_topic_number"),), width=4, kind="stat"),
        Panel("Groups", "short", (_level("rocketmq_consumer_group_number"),), width=4, kind="stat"),
    ),
    "Traffic": (
        Panel(
            "Messages in",
            "cps",
            ((f"topk(15, {_rate('rocketmq_messages_in_total', 'topic')})", "{{topic}}"),),
            "By topic, those with most; without a name: all topics that have no series.",
        ),
        Panel(
            "Messages out",
            "cps",
            ((f"topk(15, {_rate('rocketmq_messages_out_total', 'topic')})", "{{topic}}"),),
            "Light queues are one topic, %LMQ%.",
        ),
        Panel(
            "Bytes",
            "Bps",
            (
                (_rate("rocketmq_throughput_in_total", "instance"), "in {{instance}}"),
                (_rate("rocketmq_throughput_out_total", "instance"), "out {{instance}}"),
            ),
        ),
        Panel(
            "Calls",
            "cps",
            ((_rate("rocketmq_rpc_latency_count", "request_code"), "{{request_code}}"),),
        ),
        Panel(
            "Time of a call",
            "ms",
            _quantiles("rocketmq_rpc_latency", "request_code", _MESSAGES),
            "A parked pull takes as long as it waits.",
        ),
        Panel(
            "Refusals",
            "cps",
            ((_rate("kvcq_refusals_total", "method, reason"), "{{method}} {{reason}}"),),
        ),
        Panel(
            "Message size",
            "bytes",
            _quantiles("rocketmq_message_size"),
            "Of a batch: the average of its messages.",
        ),
        Panel(
            "Calls under way", "short", (_level("kvcq_calls_under_way", "{{kind}} {{instance}}"),)
        ),
        Panel(
            "Waiting for a thread",
            "short",
            (_level("rocketmq_processor_watermark", "{{processor}} {{instance}}"),),
        ),
    ),
    "Groups": (
        Panel(
            "Messages behind",
            "short",
            (
                (
                    f"topk(15, rocketmq_consumer_lag_messages{{{_ONE}}})",
                    "{{consumer_group}} {{topic}}",
                ),
            ),
            width=12,
        ),
        Panel(
            "Time behind",
            "ms",
            (
                (
                    f"topk(15, rocketmq_consumer_lag_latency{{{_ONE}}})",
                    "{{consumer_group}} {{topic}}",
                ),
            ),
            "Age of the oldest message that the group has not committed.",
            12,
        ),
        Panel(
            "In flight",
            "short",
            (
                (
                    f"topk(15, rocketmq_consumer_inflight_messages{{{_ONE}}})",
                    "{{consumer_group}} {{topic}}",
                ),
            ),
            "Of shared groups: messages that receivers have.",
            12,
        ),
        Panel(
            "Dead letters",
            "short",
            ((f"topk(15, kvcq_dead_letters{{{_ONE}}})", "{{consumer_group}}"),),
            "Delivered as often as their group allows; neither redriven nor deleted.",
            12,
        ),
    ),
    "Log": (
        Panel("Flush", "s", _quantiles("kvcq_fsync_seconds")),
        Panel("Flushes", "cps", ((_rate("kvcq_fsync_seconds_count", "instance"), "{{instance}}"),)),
        Panel(
            "Behind the log",
            "bytes",
            (
                _level("rocketmq_storage_flush_behind_bytes", "not flushed {{instance}}"),
                _level("rocketmq_storage_dispatch_behind_bytes", "in no queue {{instance}}"),
            ),
        ),
        Panel("Size of the log", "bytes", (_level("rocketmq_storage_size"),)),
        Panel("Oldest message", "ms", (_level("rocketmq_storage_message_reserve_time"),)),
        Panel(
            "Damage",
            "short",
            (
                _level("kvcq_errors_total", "{{code}} {{instance}}"),
                _level("kvcq_poison_records_total", "records in no queue {{instance}}"),
                _level("kvcq_queue_repairs_total", "queues repaired {{instance}}"),
            ),
        ),
    ),
    "RocksDB": (
        Panel(
            "Files of level 0",
            "short",
            (_level("kvcq_rocksdb_level0_files", "{{database}} {{family}}"),),
            "Writes are refused from 24.",
        ),
        Panel(
            "Pending compaction",
            "bytes",
            (_level("kvcq_rocksdb_pending_compaction_bytes", "{{database}} {{family}}"),),
        ),
        Panel(
            "Behind",
            "short",
            (
                (
                    _rate(_STALLS, "database, family, cause", function="increase"),
                    "{{database}} {{family}} {{cause}}",
                ),
            ),
            "How often writes were to wait, by what there was too much of.",
        ),
        Panel(
            "Memtables",
            "bytes",
            (_level("kvcq_rocksdb_memtable_bytes", "{{database}} {{family}}"),),
        ),
        Panel("Files", "bytes", (_level("kvcq_rocksdb_sst_bytes", "{{database}} {{family}}"),)),
        Panel(
            "Cache",
            "percentunit",
            (
                (
                    f"{_HITS} / ({_HITS} + {_MISSES})",
                    "hits {{database}}",
                ),
            ),
        ),
        Panel(
            "At work",
            "short",
            (
                _level("kvcq_rocksdb_running_compactions", "compactions {{database}}"),
                _level("kvcq_rocksdb_running_flushes", "flushes {{database}}"),
            ),
        ),
        Panel("Rows", "short", (_level("kvcq_rocksdb_estimated_keys", "{{database}} {{family}}"),)),
        Panel(
            "Written",
            "Bps",
            (
                (
                    _rate("rocketmq_rocksdb_bytes_written", "database"),
                    "{{database}}",
                ),
            ),
        ),
    ),
    "Process": (
        Panel(
            "Event loop, late by",
            "s",
            _quantiles("kvcq_loop_lag_seconds"),
            "All calls wait for it.",
            6,
        ),
        Panel(
            "Memory",
            "bytes",
            (
                _level("kvcq_memory_private_bytes", "private {{instance}}"),
                _level(
                    "process_resident_memory_bytes", "resident, with the log's pages {{instance}}"
                ),
            ),
            width=6,
        ),
        Panel(
            "Processor",
            "percentunit",
            ((f"rate(process_cpu_seconds_total{{{_ONE}}}[$__rate_interval])", "{{instance}}"),),
            "1: one core.",
            6,
        ),
        Panel(
            "File descriptors",
            "short",
            (_level("process_open_fds"), _level("process_max_fds", "most {{instance}}")),
            width=6,
        ),
    ),
    "Jobs": (
        Panel(
            "Under way",
            "percentunit",
            ((f"{_RATIO} and on (instance, kind) {_RUNNING} > 0", "{{kind}} {{instance}}"),),
        ),
        Panel("Ended", "short", (_level("kvcq_jobs_total", "{{kind}} {{state}}"),)),
        Panel(
            "Verified by scrubbing",
            "Bps",
            ((_rate("kvcq_scrub_bytes_total", "instance"), "{{instance}}"),),
        ),
        Panel(
            "Since the last backup",
            "s",
            ((f"time() - ({_LAST_BACKUP} > 0)", "{{instance}}"),),
            "Since it was complete; nothing where none is known.",
        ),
        Panel(
            "Size of the last backup",
            "bytes",
            (_level("kvcq_job_last_done_bytes", labels=_BACKUP),),
            "Of all its files; those that were there already are not copied again.",
        ),
        Panel(
            "The last backup took",
            "s",
            (_level("kvcq_job_last_done_duration_seconds", labels=_BACKUP),),
        ),
    ),
}


def document() -> dict[str, Any]:
    """The dashboard as Grafana loads it, by its page for import or from a file."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": {"h": 1, "w": _WIDTH, "x": 0, "y": top},
                "panels": [],
            }
        )
        top += 1
        left = 0
        for panel in row:
            height = 8 if panel.kind == "timeseries" else 4
            panels.append(_panel(panel, len(panels) + 1, left, top, height))
            left += panel.width
            if left >= _WIDTH:
                left, top = 0, top + height
        assert left == 0, f"the row {title!r} does not end at the edge"
    return {
        "uid": "kvcq",
        "title": "kvcq",
        "tags": ["kvcq", "rocketmq"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": panels,
    }


def _variables() -> list[dict[str, Any]]:
    return [
        {
            "name": "datasource",
            "label": "Data source",
            "type": "datasource",
            "query": "prometheus",
        },
        {
            "name": "instance",
            "label": "Server",
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": "label_values(kvcq_build_info, instance)", "refId": "instance"},
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "current": {"text": "All", "value": "$__all"},
        },
    ]


def _panel(panel: Panel, number: int, left: int, top: int, height: int) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.kind == "gauge":
        steps = [("green", None), ("orange", 0.75), ("red", 0.9)]
        defaults["max"] = 1
        defaults["thresholds"] = {
            "mode": "absolute",
            "steps": [{"color": color, "value": value} for color, value in steps],
        }
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": {"h": height, "w": panel.width, "x": left, "y": top},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "list"}} if panel.kind == "timeseries" else {},
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": _SOURCE,
                "expr": query,
                "legendFormat": legend,
                "instant": panel.kind != "timeseries",
            }
            for at, (query, legend) in enumerate(panel.queries)
        ],
    }


def text() -> str:
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
