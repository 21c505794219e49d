"""`python -m tests.benchmarks`: run cases, print the table, write JSON."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kvcq_bench.machine import machine, versions
from kvcq_bench.report.numbers import number_text
from server.process import calm_collector
from tests.benchmarks import (
    beside_jobs,
    console,
    far_behind,
    fronts,
    in_process,
    metrics,
    migration,
    over_grpc,
    pipeline,
    security,
    start_up,
)
from tests.benchmarks.measure import Bench, Row

CASES = {
    "put-in-process": in_process.put_in_process,
    "light-queues": in_process.light_queues_in_process,
    "put-grpc": over_grpc.put_batches,
    "pull-grpc": over_grpc.pull,
    "single-put": over_grpc.single_put,
    "sync-put": over_grpc.sync_put,
    "security": security.secured_puts,
    "fronts": fronts.with_fronts,
    "query": in_process.query_by_key,
    "replay": start_up.replay,
    "many-queues": start_up.many_queues,
    "put-metrics": metrics.put_with_metrics,
    "backup": beside_jobs.put_beside_backup,
    "scrub": beside_jobs.put_beside_scrub,
    "far-behind": far_behind.put_beside_consumer,
    "console-topics": console.topic_page,
    "migration-backfill": migration.live_backfill,
    "migration-double-write": migration.double_write,
    "spark-scan": pipeline.spark_scan,
    "spark-rebuild": pipeline.spark_rebuild,
    "spark-verify": pipeline.spark_verify,
}


def main() -> int:
    """0 when every figure was met, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of: {', '.join(CASES)}")
    parser.add_argument("--json", type=Path, help="also write the table to this file")
    parser.add_argument("--scale", type=float, default=1.0, help="of the amounts; default 1")
    parser.add_argument("--rounds", type=int, default=3, help="the median counts; default 3")
    options = parser.parse_args()
    unknown = sorted(set(options.cases) - set(CASES))
    if unknown:
        parser.error(f"no case {unknown[0]!r}; there are {', '.join(CASES)}")
    notes = Console(stderr=True)
    before = machine()
    rows: list[Row] = []
    skipped: dict[str, str] = {}
    for name in options.cases or CASES:
        with (
            tempfile.TemporaryDirectory(prefix="kvcq-benchmark") as directory,
            notes.status(f"measuring {name}…"),
        ):
            bench = Bench(Path(directory), options.scale, options.rounds)
            CASES[name](bench)
            rows += bench.rows
        if bench.skipped:
            skipped[name] = bench.skipped
            notes.print(f"{name}: skipped: {bench.skipped}", markup=False, soft_wrap=True)
    if rows:
        _print(rows)
    if options.json is not None:
        document = {
            "machine": before,
            "versions": versions(),
            "scale": options.scale,
            "rounds": options.rounds,
            "skipped": skipped,
            "rows": [row.document() for row in rows],
        }
        options.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0 if all(row.met for row in rows) else 1


def _print(rows: list[Row]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("work", "measured", "", "wanted", "probe", "ratio", ""):
        is_number = name in ("measured", "probe", "ratio")
        table.add_column(name, justify="right" if is_number else "left")
    for row in rows:
        table.add_row(
            row.work,
            number_text(row.value),
            row.unit,
            row.wanted,
            number_text(row.probe) if row.probe is not None else "",
            f"{row.ratio:.2f}" if row.ratio is not None else "",
            "met" if row.met else "[bold red]missed[/]",
        )
    Console(width=160).print(table)


if __name__ == "__main__":
    calm_collector()  # as the server's own process does: some cases serve in this one
    sys.exit(main())
