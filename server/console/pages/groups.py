"""Reader groups, and how far behind each is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.console.addresses import address
from server.console.page import Page
from server.console.pages.topics import confirmed
from server.console.visit import PAGE_ROWS
from server.errors import ForbiddenError
from server.moments import moment_ms
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from server.console.visit import Visit

#: Groups of one page; the lag of each is added up over this many queues.
_GROUPS = 20
SUMMED_QUEUES = 200


async def _list(visit: Visit) -> web.StreamResponse:
    request = pb.ListGroupsRequest(page_size=_GROUPS, page_token=visit.token("after"))
    try:
        found = await visit.ask("ListGroups", request, pb.ListGroupsResponse)
    except ForbiddenError as error:
        return visit.html(
            "groups.html", 403, refused=str(error), rows=(), is_first=True, following=""
        )
    rows = []
    for group in found.groups:
        offsets = await _offsets(visit, group, "", SUMMED_QUEUES)
        rows.append(
            (
                group,
                len({one.topic for one in offsets.offsets}),
                len(offsets.offsets),
                sum(one.lag for one in offsets.offsets),
                bool(offsets.next_page_token),
            )
        )
    return visit.html(
        "groups.html",
        refused="",
        rows=rows,
        summed=SUMMED_QUEUES,
        is_first=not visit.token("after"),
        following=found.next_page_token and address("/groups", after=found.next_page_token),
    )


async def _group(visit: Visit) -> web.StreamResponse:
    name = visit.text("name")
    found = await _offsets(visit, name, visit.token("after"), PAGE_ROWS)
    return visit.html(
        "group.html",
        name=name,
        offsets=found.offsets,
        is_first=not visit.token("after"),
        following=found.next_page_token
        and address("/group", name=name, after=found.next_page_token),
    )


async def _offsets(visit: Visit, group: str, after: str, rows: int) -> pb.ListGroupOffsetsResponse:
    return await visit.ask(
        "ListGroupOffsets",
        pb.ListGroupOffsetsRequest(group=group, page_size=rows, page_token=after),
        pb.ListGroupOffsetsResponse,
    )


async def _reset(visit: Visit, form: Mapping[str, str]) -> str:
    group, topic, to = (form.get(name, "").strip() for name in ("group", "topic", "to"))
    request = pb.ResetOffsetsRequest(group=group, topic=topic)
    match to:
        case "earliest":
            request.earliest = True
        case "latest":
            request.latest = True
        case _:
            time_ms = moment_ms(to, visit.backend.now_ms())
            if time_ms is None or not 0 <= time_ms < 1 << 63:
                raise InvalidArgumentError(
                    "to", "is not earliest, latest, or a time such as 2026-01-31T12:00 or -90m"
                )
            request.time_ms = time_ms
    await visit.ask("ResetOffsets", request, pb.ResetOffsetsResponse)
    return address("/group", name=group, notice="offsetsReset")


async def _delete(visit: Visit, form: Mapping[str, str]) -> str:
    name = confirmed(form)
    await visit.ask("DeleteGroup", pb.DeleteGroupRequest(group=name), pb.DeleteGroupResponse)
    return address("/groups", notice="groupDeleted")


PAGE = Page(
    "groups",
    "/groups",
    {"/groups": _list, "/group": _group},
    {"/groups/reset": _reset, "/groups/delete": _delete},
)
