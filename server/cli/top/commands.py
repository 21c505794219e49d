"""kvcq top: the command."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click
from rich.live import Live

from kvcq_client import KvcqError
from server.cli.online import command_error, connect, server_options
from server.cli.terminal import COUNT, console, print_json
from server.cli.top.figures import Figures, figures_of
from server.cli.top.sample import Sample, take
from server.cli.top.shown import document, screen

if TYPE_CHECKING:
    from kvcq_client import Client

#: Timeout of a call: a server that does not answer by then is shown as unreachable.
_TIMEOUT_S = 10.0


@click.command()
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.1, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two samples.",
)
@click.option(
    "--topics", type=COUNT, default=10, show_default=True, help="Maximum number of topics."
)
@click.option(
    "--groups", type=COUNT, default=10, show_default=True, help="Maximum number of groups."
)
@click.option("--once", is_flag=True, help="Print one sample and exit.")
@server_options
def top(
    interval_s: float, topics: int, groups: int, once: bool, server: str, as_json: bool
) -> None:
    """Show the activity of a running server until Ctrl-C.

    Shows rates, the busiest topics, lagging groups, memory, RocksDB and jobs. With --json, prints
    one object per line. If the output is not a terminal, --once is implied.
    """

    def figures(before: Sample, now: Sample) -> Figures:
        return figures_of(before, now, _now_ms(), topics, groups)

    with connect(server, _TIMEOUT_S) as client:
        before = take(client, time.monotonic())
        time.sleep(interval_s)
        now = take(client, time.monotonic(), denied=before.denied)
        shown = figures(before, now)
        if as_json:
            print_json(document(shown, server, _now_ms()))
            while not once:
                before = now
                time.sleep(interval_s)
                now = take(client, time.monotonic(), denied=before.denied)
                print_json(document(figures(before, now), server, _now_ms()))
            return
        if once or not console.is_terminal:
            console.print(screen(shown, server))
            return
        with Live(screen(shown, server), console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.refresh()
                time.sleep(interval_s)
                found, note = _look(client, server, denied=now.denied)
                if found is not None:
                    before, now = now, found
                    shown = figures(before, now)
                live.update(screen(shown, server, note))


def _look(client: Client, server: str, *, denied: bool) -> tuple[Sample | None, str]:
    """Take a sample. Returns None and a note while the server is unreachable: it may be restarting,
    so the last figures stay on the screen."""
    try:
        return take(client, time.monotonic(), denied=denied), ""
    except KvcqError as error:
        return None, f"no answer; these are the last figures: {command_error(error, server)}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
