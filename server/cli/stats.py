"""kvcq stats: the numbers of a running server."""

from __future__ import annotations

import click

from server.cli.connection import connect, server_option
from server.cli.output import json_option, print_json, print_table


@click.command()
@click.option("--prefix", default="", help="Names that begin with this.")
@server_option
@json_option
def stats(prefix: str, server: str, as_json: bool) -> None:  # noqa: FBT001 - click passes by name
    """Show counters and levels of the server, its store, and RocksDB."""
    with connect(server) as client:
        values = client.statistics()
    shown = {name: values[name] for name in sorted(values) if name.startswith(prefix)}
    if as_json:
        print_json(shown)
        return
    print_table("", ("name", "value"), list(shown.items()))
