"""A Spark session of its own: `python -m tests.migration.spark.count_backup URL SCRATCH`.

Prints how many records `commitlog` reads there. What the environment says of the bucket is known to
the session's workers alone when it is there before they are.
"""

from __future__ import annotations

import sys
from pathlib import Path

from migration.spark.session import SparkSettings, spark_session


def main() -> None:
    url, scratch = sys.argv[1:]
    settings = SparkSettings(
        master="local[2]",
        shuffle_partitions=2,
        scratch=Path(scratch),
        jvm_options="-XX:TieredStopAtLevel=1",
    )
    with spark_session(settings) as session:
        frame = session.read.format("commitlog").option("verifyCrc", "true").load(url)
        print(frame.count(), frame.filter("topic = 'T0'").count())  # noqa: T201


if __name__ == "__main__":
    main()
