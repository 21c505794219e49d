"""The data source `commitlog` on backups, in a directory and in a bucket; and a lost machine."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from kvcq.backup import choose_by_id, open_place, restore, take_backup
from migration.spark.jobs import rebuild
from migration.spark.source.commitlog_source import parse_options
from tests.support.backups import bodies, opened, put_some, queues_of
from tests.support.fake_clock import FakeClock
from tests.support.s3 import BUCKET, s3_server
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_backup_is_read_like_a_store_and_a_lost_machine_comes_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = FakeClock()
    url = str(tmp_path / "b")
    with open_small(tmp_path / "store", clock) as store:
        put_some(store, clock, 60)
        first = take_backup(store, queues_of(store), url, clock=clock).backup
        put_some(store, clock, 30)
        take_backup(store, queues_of(store), url, clock=clock)
        wanted = bodies(store)
    read = spark.read.format("commitlog").option("verifyCrc", "true")
    newest = read.load(url)
    # One record says that the topics were made.
    assert newest.count() == 361
    rows = newest.filter("topic = 'T0' and queue_id = 0").select("body").collect()
    assert sorted(bytes(row[0]) for row in rows) == sorted(body for _, body in wanted["T0", 0])
    assert read.option("backup", first.backup_id).load(url).count() == 241
    limited = parse_options({"path": url, "endingOffset": "70000"}).layout()
    assert limited.end == 70_000
    place = open_place(url)
    restore(place, choose_by_id(place, None), tmp_path / "again", segments_only=True)
    result = rebuild(spark, tmp_path / "again")
    assert result.units == 361 + 90
    assert opened(tmp_path / "again", clock) == wanted


@pytest.mark.timeout(400)  # a second session, with Java of its own
def test_a_backup_in_a_bucket_is_read(spark: SparkSession, tmp_path: Path) -> None:
    clock = FakeClock()
    assert spark.version, "Java is there"
    with s3_server(), open_small(tmp_path / "store", clock) as store:
        put_some(store, clock, 60)
        take_backup(store, queues_of(store), f"s3://{BUCKET}/spark", clock=clock)
        module = "tests.migration.spark.count_backup"
        counted = subprocess.run(
            [sys.executable, "-m", module, f"s3a://{BUCKET}/spark", str(tmp_path)],
            capture_output=True,
            check=False,
            text=True,
        )
    assert counted.stdout.split() == ["241", "120"], counted.stderr
