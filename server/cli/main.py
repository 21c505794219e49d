"""The command `kvcq`."""

from __future__ import annotations

import click

from migration.spark.cli import spark
from server.cli.bench import bench
from server.cli.check import check
from server.cli.ingest import ingest
from server.cli.messages import get, pull, put, query
from server.cli.migrate import migrate
from server.cli.repair import repair
from server.cli.serve import serve
from server.cli.stats import stats
from server.cli.topics import topic
from server.version import VERSION


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="kvcq")
def main() -> None:
    """A message store: RocketMQ's commit log, its consume queues in RocksDB, over gRPC.

    Exit codes: 0 well, 1 findings or a refusal, 2 wrong usage, 3 cannot connect.
    """


for command in (serve, put, pull, query, get, topic, stats, check, repair, bench, migrate, spark):
    main.add_command(command)
migrate.add_command(ingest)
