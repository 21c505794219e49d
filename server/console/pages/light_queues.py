"""Light queues with messages, by prefix, page by page, since there may be millions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.console.addresses import address
from server.console.page import Page
from server.console.pages.topics import listed, message_counts, narrower
from server.errors import ForbiddenError

if TYPE_CHECKING:
    from aiohttp import web

    from server.console.visit import Visit


async def _list(visit: Visit) -> web.StreamResponse:
    prefix = visit.text("prefix")
    try:
        found = await listed(visit, prefix, light_queues=True)
    except ForbiddenError as error:
        return narrower(visit, "light_queues.html", prefix, error)
    names = [one.name for one in found.topics]
    return visit.html(
        "light_queues.html",
        refused="",
        prefix=prefix,
        names=names,
        counts=await message_counts(visit, [pb.Queue(topic=name) for name in names]),
        is_first=not visit.token("after"),
        following=found.next_page_token
        and address("/light-queues", prefix=prefix, after=found.next_page_token),
    )


PAGE = Page("lightQueues", "/light-queues", {"/light-queues": _list})
