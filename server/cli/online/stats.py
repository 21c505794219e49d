"""kvcq stats: the numbers of a running server."""

from __future__ import annotations

from itertools import groupby

import click

from server.cli.online.connection import connect, server_options
from server.cli.terminal import console, duration, print_json, print_table, say, text

#: Of the numbers whose names begin so.
_HEADINGS = {"kvcq": "kvcq/, in RocksDB", "meta": "meta/, in RocksDB"}
UPTIME = "server.uptime_s"


@click.command()
@click.option("--prefix", type=text, default="", help="Names that begin with this.")
@server_options
def stats(prefix: str, server: str, as_json: bool) -> None:
    """Show counters and levels: server.…, store.…, and kvcq.… and meta.… of RocksDB.

    Counters count from the start of the server. Units are in the names.
    """
    with connect(server) as client:
        values = client.statistics()
        version = client.server_version()
    shown = {
        name: int(value) if value.is_integer() else value
        for name, value in sorted(values.items(), key=_order)
        if name.startswith(prefix)
    }
    if as_json:
        named = {"server.version": version} if "server.version".startswith(prefix) else {}
        print_json(named | shown)
        return
    console.print(f"kvcq {version} at {server}, up {duration(values.get(UPTIME, 0))}")
    if not shown:
        say(f"no name begins with {prefix!r}; see all of them: kvcq stats")
    for group, items in groupby(shown.items(), key=lambda item: _group(item[0])):
        console.print()
        print_table(_HEADINGS.get(group, group), ("name", "value"), list(items))


def _group(name: str) -> str:
    return name.partition(".")[0]


def _order(item: tuple[str, float]) -> tuple[bool, str]:
    """The server's own first."""
    return not item[0].startswith("server."), item[0]
