"""kvcq stats: metrics of a running server."""

from __future__ import annotations

from itertools import groupby

import click

from server.cli.online.connection import connect, server_options
from server.cli.terminal import (
    byte_count,
    console,
    duration,
    print_json,
    print_table,
    say,
    text,
    time_text,
)

UPTIME = "server.uptime_s"
#: Prefix of names to heading, in the order of the output.
_SECTIONS = {
    "server.": "server",
    "server.calls.": "calls, by method",
    "server.refusals.": "refused calls, by method and reason",
    "server.seconds.": "time spent on calls, by method",
    "server.jobs.": "jobs",
    "server.scrub.": "verification of the log",
    "store.": "store",
    "kvcq.": "RocksDB kvcq/: queues, keys and state",
}


@click.command()
@click.option("--prefix", type=text, default="", help="Only names with this prefix.")
@click.option("--all", "every", is_flag=True, help="Also show zeros, and print plain numbers.")
@server_options
def stats(prefix: str, every: bool, server: str, as_json: bool) -> None:
    """Show the counters and levels of a running server that are not 0.

    Counters start at 0 when the server starts. --all and --json print plain numbers; each name ends
    in its unit.
    """
    with connect(server) as client:
        values = client.statistics()
        version = client.server_version()
    chosen = {
        name: int(value) if value.is_integer() else value
        for name, value in sorted(values.items(), key=lambda item: (_place(item[0]), item[0]))
        if name.startswith(prefix)
    }
    if as_json:
        named = {"server.version": version} if "server.version".startswith(prefix) else {}
        print_json(named | chosen)
        return
    console.print(f"kvcq {version} at {server}, up {duration(values.get(UPTIME, 0))}")
    if not chosen:
        say(f"no name begins with {prefix!r}; `kvcq stats --all` shows all names")
    shown = [(name, value) for name, value in chosen.items() if every or value]
    for section, items in groupby(shown, key=lambda item: _section(item[0])):
        console.print()
        rows = [(name, value if every else _readable(name, value)) for name, value in items]
        print_table(_SECTIONS.get(section, section.rstrip(".")), ("name", "value"), rows)
    if len(shown) < len(chosen):
        say(f"\n{len(chosen) - len(shown)} more are 0; show them with --all")


def _section(name: str) -> str:
    known = [beginning for beginning in _SECTIONS if name.startswith(beginning)]
    return max(known, key=len) if known else name.partition(".")[0] + "."


def _place(name: str) -> int:
    known = list(_SECTIONS)
    section = _section(name)
    return known.index(section) if section in known else len(known)


def _readable(name: str, value: float) -> str:
    """The value for people, with its unit, which is the end of its name."""
    if name.endswith("_bytes"):
        return byte_count(value)
    if name.endswith("_bytes_per_s"):
        return f"{byte_count(value)}/s"
    if name.endswith("_ms"):
        return time_text(int(value))
    if name.endswith("_ratio"):
        return f"{value:.1%}"
    if name.endswith((".ready", ".failed", ".running", "_stopped")):
        return "yes"
    if name.endswith(("_s", "_seconds")) or name.startswith("server.seconds."):
        return f"{value:,.3g} s" if value < 1000 else duration(value)
    return f"{value:,}"
