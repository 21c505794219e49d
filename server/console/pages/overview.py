"""How the server is: what an operator looks at first, with ten minutes of it as charts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.console.page import Page

if TYPE_CHECKING:
    from server.console.visit import Visit

#: Chart, what it is measured in, and its lines, see samples.py.
CHARTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("messages", "number", ("put", "pulled")),
    ("bytes", "bytes", ("appendedBytes",)),
    ("behind", "bytes", ("dispatchBehind", "flushBehind")),
    ("calls", "number", ("calls", "refusals")),
)


async def _show(visit: Visit) -> web.StreamResponse:
    answer = await visit.ask("GetStatistics", pb.GetStatisticsRequest(), pb.GetStatisticsResponse)
    values = answer.values
    refusals = sorted(
        (count, *name.removeprefix("server.refusals.").split(".", 1))
        for name, count in values.items()
        if name.startswith("server.refusals.")
    )
    return visit.html(
        "overview.html",
        values=dict(values),
        is_ready=bool(values.get("server.ready")),
        refusals=refusals[::-1][:10],
        charts=CHARTS,
    )


async def _live(visit: Visit) -> web.StreamResponse:
    """What the charts draw: columns by name, `time` in seconds since 1970."""
    # Asked for as any viewer's call is: who may not see the numbers sees no charts of them.
    await visit.ask("GetStatistics", pb.GetStatisticsRequest(), pb.GetStatisticsResponse)
    return web.json_response(visit.backend.samples.columns())


PAGE = Page("overview", "/", {"/": _show, "/live": _live})
