"""kvcq stats: the numbers of a running server."""

from __future__ import annotations

import click

from proto.v1 import kvcq_pb2 as pb
from server.cli.connection import TIMEOUT_S, connect, server_option
from server.cli.output import json_option, print_json, print_table


@click.command()
@click.option("--prefix", default="", help="Names that begin with this.")
@server_option
@json_option
def stats(prefix: str, server: str, as_json: bool) -> None:  # noqa: FBT001 - click passes by name
    """Show counters and levels of the server, its store, and RocksDB."""
    with connect(server) as connection:
        answer = connection.admin.GetStatistics(pb.GetStatisticsRequest(), timeout=TIMEOUT_S)
    values = {
        name: answer.values[name] for name in sorted(answer.values) if name.startswith(prefix)
    }
    if as_json:
        print_json({"version": answer.version, "values": values})
        return
    print_table(f"kvcq {answer.version}", ("name", "value"), list(values.items()))
