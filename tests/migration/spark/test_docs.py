"""The pages that lead to Spark: their code is run, in order, on a service and a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from kvcq.backup import take_backup
from kvcq_client import Client, Message
from tests.docs.pages import blocks, read
from tests.support.backups import put_some, queues_of
from tests.support.fake_clock import FakeClock
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.migration.spark.conftest import RunningService

pytestmark = pytest.mark.spark


def _run(page: str, **stands_for: str) -> None:
    """All the Python of the page, one block behind the other. What is to be replaced is there."""
    text = "\n".join(blocks(read(page), "python"))
    for name, value in stands_for.items():
        assert name in text, name
        text = text.replace(name, value)
    exec(compile(text, page, "exec"), {})


@pytest.mark.slow
def test_the_code_of_spark_md(
    spark: SparkSession, service: RunningService, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Client(service.target) as client:
        client.create_topic("orders", 2)
        for index in range(10):
            client.put(Message("orders", b"%d" % index))
    clock = FakeClock()
    with open_small(tmp_path / "store", clock) as store:
        put_some(store, clock, 10)
    _run(
        "migration/docs/spark.md",
        **{
            "kvcq.example:8081": service.target,
            "s3a://lake": str(tmp_path / "lake"),
            'processingTime="1 minute"': "availableNow=True",
            "/data/store": str(tmp_path / "store"),
            '"/lake': f'"{tmp_path}/lake',
            '["orders"]': '["T0"]',
        },
    )
    assert "equal" in capfd.readouterr().out
    assert spark.read.parquet(str(tmp_path / "lake/orders")).count() == 10
    copy = spark.read.format("kvcq").option("server", service.target).option("subscribe", "copy")
    assert copy.load().count() == 10
    assert spark.read.parquet(str(tmp_path / "lake/export")).count() > 0


def test_the_code_of_backup_md(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert spark.version
    clock, place = FakeClock(), str(tmp_path / "place")
    with open_small(tmp_path / "store", clock) as store:
        put_some(store, clock, 10)
        taken = take_backup(store, queues_of(store), place, clock=clock).backup
    _run(
        "docs/backup.md",
        **{
            "/srv/backups/kvcq": place,
            "s3a://bucket/kvcq": place,
            "20261122T020000.000Z": taken.backup_id,
        },
    )
    newest, chosen = capfd.readouterr().out.split()
    assert int(newest) == int(chosen) > 0
