"""The benchmarks run, small, and say what they measured. Their figures mean nothing here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from migration.spark.errors import SparkMissingError
from tests.benchmarks import pipeline
from tests.benchmarks.__main__ import CASES, main
from tests.benchmarks.measure import Bench, Row

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "name",
    [
        "put-in-process",
        "light-queues",
        "put-grpc",
        "put-metrics",
        "backup",
        "scrub",
        "far-behind",
        "security",
        "fronts",
        "query",
        "replay",
        "many-queues",
        "console-topics",
        "migration-backfill",
    ],
)
def test_case_gives_rows(tmp_path: Path, name: str) -> None:
    bench = Bench(tmp_path, scale=0.001, rounds=1)
    CASES[name](bench)
    assert bench.rows
    for row in bench.rows:
        assert row.value > 0 or row.unit == "MB"
        assert json.loads(json.dumps(row.document())) == row.document()


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", ["spark-scan", "spark-rebuild", "spark-verify"])
def test_case_on_spark_gives_one_row_with_its_probe(tmp_path: Path, name: str) -> None:
    bench = Bench(tmp_path, scale=0.001, rounds=1)
    CASES[name](bench)
    (row,) = bench.rows
    assert row.value > 0
    assert row.probe
    assert "median of 1 warm runs" in row.work
    assert not bench.skipped


def test_case_that_needs_spark_is_skipped_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> None:
        raise SparkMissingError("pyspark")

    monkeypatch.setattr(pipeline, "require_packages", missing)
    document = tmp_path / "table.json"
    monkeypatch.setattr("sys.argv", ["benchmarks", "spark-scan", "--json", str(document)])
    assert main() == 0
    assert "spark-scan: skipped: pyspark is not installed" in capsys.readouterr().err
    written = json.loads(document.read_text())
    assert written["rows"] == []
    assert "make setup-spark" in written["skipped"]["spark-scan"]


def test_ratio_is_that_of_value_and_probe() -> None:
    assert Row("w", 3.0, "u", "more", met=True, probe=4.0).ratio == 0.75
    assert Row("w", 3.0, "u", "more", met=True).ratio is None
