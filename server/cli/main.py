"""The command `kvcq`."""

from __future__ import annotations

from typing import Any

import click

from migration.spark.cli import spark
from server.cli.bench import bench
from server.cli.check import check
from server.cli.dump import dump
from server.cli.ingest import ingest
from server.cli.messages import get, pull, query
from server.cli.migrate import migrate
from server.cli.output import (
    EXIT_INTERRUPTED,
    InterruptedCommandError,
    error_document,
    print_json,
)
from server.cli.put import put
from server.cli.repair import repair
from server.cli.serve import serve
from server.cli.stats import stats
from server.cli.topics import topic
from server.version import VERSION

_AS_JSON = "kvcq.as_json"


class Commands(click.Group):
    """The commands. Ctrl-C ends each of them quietly, with an exit code of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Looked for before anything is parsed: wrong usage is told as JSON as well.
        ctx.meta[_AS_JSON] = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as click has it
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            if ctx.meta[_AS_JSON]:
                print_json(error_document(error))
            raise
        except KeyboardInterrupt:
            if ctx.meta[_AS_JSON]:
                print_json(error_document(InterruptedCommandError("interrupted")))
            ctx.exit(EXIT_INTERRUPTED)
        except click.Abort as abort:  # click makes this of Ctrl-C at a question
            if isinstance(abort.__context__, KeyboardInterrupt):
                ctx.exit(EXIT_INTERRUPTED)
            raise


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(VERSION, prog_name="kvcq")
def main() -> None:
    """A message store: RocketMQ's commit log, its consume queues in RocksDB, over gRPC.

    Exit codes: 0 well, 1 findings or a refusal, 2 wrong usage, 3 cannot connect, 130 Ctrl-C.
    """


for command in (
    serve,
    put,
    pull,
    query,
    get,
    topic,
    stats,
    check,
    dump,
    repair,
    bench,
    migrate,
    spark,
):
    main.add_command(command)
migrate.add_command(ingest)
