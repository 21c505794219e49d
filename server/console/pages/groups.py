"""Groups of both kinds, and their lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.console.addresses import address
from server.console.page import Page
from server.console.pages import shared_groups
from server.console.pages.topics import confirmed
from server.console.visit import PAGE_ROWS
from store.errors import UnknownGroupError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from server.console.visit import Visit

#: Groups of one page; the lag of each is added up over this many queues.
_GROUPS = 20
SUMMED_QUEUES = 200


class _Row(NamedTuple):
    name: str
    kind: str  # of its word
    topics: int
    queues: int
    lag: int
    dead_letters: int
    has_more: bool  # queues than were added up


async def _list(visit: Visit) -> web.StreamResponse:
    request = pb.ListGroupsRequest(page_size=_GROUPS, page_token=visit.token("after"))
    found, refused, status = await visit.ask_if_allowed(
        "ListGroups", request, pb.ListGroupsResponse
    )
    return visit.html(
        "groups.html",
        status,
        refused=refused,
        rows=[await _row(visit, group) for group in found.groups],
        summed=SUMMED_QUEUES,
        is_first=not visit.token("after"),
        following=found.next_page_token and address("/groups", after=found.next_page_token),
    )


async def _row(visit: Visit, group: str) -> _Row:
    try:
        state = await shared_groups.describe(visit, group, "", SUMMED_QUEUES)
    except UnknownGroupError:  # deleted just now
        return _Row(group, "reader", 0, 0, 0, 0, has_more=False)
    if state.shared:
        topics = {one.topic for one in state.queues}
        return _Row(
            group,
            "shared",
            len(topics),
            len(state.queues),
            sum(map(shared_groups.lag_of, state.queues)),
            state.dead_letters,
            bool(state.next_page_token),
        )
    offsets = await _offsets(visit, group, "", SUMMED_QUEUES)
    return _Row(
        group,
        "reader",
        len({one.topic for one in offsets.offsets}),
        len(offsets.offsets),
        sum(one.lag for one in offsets.offsets),
        0,
        bool(offsets.next_page_token),
    )


async def _group(visit: Visit) -> web.StreamResponse:
    name = visit.text("name")
    state = await shared_groups.describe(visit, name, visit.token("after"), PAGE_ROWS)
    if state.shared:
        return shared_groups.shared_group(visit, name, state)
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
    group, topic = (form.get(name, "").strip() for name in ("group", "topic"))
    request = pb.ResetOffsetsRequest(group=group, topic=topic)
    shared_groups.set_where(visit, form, request)
    await visit.ask("ResetOffsets", request, pb.ResetOffsetsResponse)
    return address("/group", name=group, notice="offsetsReset")


async def _delete(visit: Visit, form: Mapping[str, str]) -> str:
    name = confirmed(form)
    await visit.ask("DeleteGroup", pb.DeleteGroupRequest(group=name), pb.DeleteGroupResponse)
    return address("/groups", notice="groupDeleted")


PAGE = Page(
    "groups",
    "/groups",
    {"/groups": _list, "/group": _group, "/dead-letters": shared_groups.dead_letters},
    {
        "/groups/reset": _reset,
        "/groups/delete": _delete,
        "/groups/reset-shared": shared_groups.reset,
        "/groups/update": shared_groups.update,
        "/groups/pause": shared_groups.pause,
        "/groups/resume": shared_groups.resume,
        "/dead-letters/redrive": shared_groups.redrive,
    },
)
