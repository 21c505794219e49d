"""The console of a running server, with the clocks and threads of this process."""

from __future__ import annotations

from time import monotonic, time
from typing import TYPE_CHECKING

from server.console.app import console_app
from server.console.backend import Backend
from server.console.calls import Calls
from server.console.page_table import PAGES
from server.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

    from aiohttp import web

    from server.console.page import Page
    from server.console.viewers import Viewers
    from server.edge import Edge
    from server.metrics import CallMetrics
    from server.stage import Stage


def console(
    edge: Edge,
    stage: Stage,
    metrics: CallMetrics,
    read_numbers: Callable[[], Awaitable[Mapping[str, float]]],
    viewers: Viewers,
    version: str,
    *,
    names: Collection[str] = (),
    pages: Iterable[Page] = PAGES,
    now_ms: Callable[[], int] = lambda: round(time() * 1000),
    monotonic_s: Callable[[], float] = monotonic,
) -> web.Application:
    """To be served by a site of `server.http`.

    `read_numbers` gives those of GetStatistics, for the charts. `names`: host names that browsers
    reach it by, beside its addresses.
    """
    pages = tuple(pages)
    backend = Backend(
        calls=Calls(edge.methods, edge.gate, metrics, viewers.let_in),
        viewers=viewers,
        stage=stage,
        metrics=metrics,
        read_numbers=read_numbers,
        version=version,
        navigation=pages,
        workers=Workers(1, "console"),
        now_ms=now_ms,
        monotonic_s=monotonic_s,
    )
    return console_app(backend, pages, names=names)
