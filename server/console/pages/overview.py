"""The state of the server: what operators look at first, with charts of the last ten minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aiohttp import web

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.console.page import Page
from server.errors import ForbiddenError, ServerDrainingError, ServerStartingError

if TYPE_CHECKING:
    from server.console.visit import Visit

#: Rows in the tables of topics and groups.
_ROWS = 5
#: Chart, unit, and its lines; see samples.py.
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
        activity=await _activity(visit),
        values=dict(values),
        is_ready=bool(values.get("server.ready")),
        refusals=refusals[::-1][:10],
        charts=CHARTS,
    )


class Activity(NamedTuple):
    """Current activity, for viewers who may see all topics and groups."""

    data_dir: str
    #: Traffic since the start, the busiest topics first.
    topics: list[pb.TopicTraffic]
    #: Group, and its lag over all topics; the largest lag first.
    groups: list[tuple[str, int]]


async def _activity(visit: Visit) -> Activity | None:
    """None while the store opens or closes, or if the viewer lacks the right."""
    try:
        found = await visit.ask("GetActivity", pb.GetActivityRequest(), pb.GetActivityResponse)
        settings = await visit.ask("GetSettings", pb.GetSettingsRequest(), pb.GetSettingsResponse)
    except (ForbiddenError, ServerStartingError, ServerDrainingError):
        return None
    behind: dict[str, int] = {}
    for one in found.groups:
        behind[one.group] = behind.get(one.group, 0) + one.messages
    named = [one for one in found.topics if one.topic]
    return Activity(
        next(one.value for one in settings.settings if one.name == "server.data_dir").strip('"'),
        sorted(named, key=lambda one: one.bytes_in + one.bytes_out, reverse=True)[:_ROWS],
        sorted(behind.items(), key=lambda item: item[1], reverse=True)[:_ROWS],
    )


async def _live(visit: Visit) -> web.StreamResponse:
    """The data of the charts: columns by name, `time` in seconds since 1970."""
    # With the viewer's rights: a viewer who may not see the numbers gets no charts.
    await visit.ask("GetStatistics", pb.GetStatisticsRequest(), pb.GetStatisticsResponse)
    return web.json_response(visit.backend.samples.columns())


PAGE = Page("overview", "/", {"/": _show, "/live": _live})
