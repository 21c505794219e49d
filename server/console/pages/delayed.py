"""Delayed messages of one topic or of all, earliest due first; recall of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import timers_pb2 as pb
from server.console.addresses import address
from server.console.page import Page
from server.console.visit import PAGE_ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from server.console.visit import Visit


async def _list(visit: Visit) -> web.StreamResponse:
    topic, after = visit.text("topic"), visit.token("after")
    request = pb.ListDelayedRequest(topic=topic, page_size=PAGE_ROWS, page_token=after)
    found, refused, status = await visit.ask_if_allowed(
        "ListDelayed", request, pb.ListDelayedResponse
    )
    return visit.html(
        "delayed.html",
        status,
        refused=refused,
        topic=topic,
        pending=found.pending,
        now_ms=found.now_ms,
        messages=found.messages,
        is_first=not after,
        following=found.next_page_token
        and address("/delayed", topic=topic, after=found.next_page_token),
    )


async def _recall(visit: Visit, form: Mapping[str, str]) -> str:
    request = pb.RecallRequest(topic=form.get("topic", ""), handles=[form.get("handle", "")])
    [outcome] = (await visit.ask("Recall", request, pb.RecallResponse)).outcomes
    shown = form.get("shown", "")
    if outcome == pb.RECALL_OUTCOME_RECALLED:
        return address("/delayed", topic=shown, notice="recalled")
    return address("/delayed", topic=shown, notice="notWaiting")


PAGE = Page(
    "delayed", "/delayed", {"/delayed": _list}, {"/delayed/recall": _recall}, needs=("ListDelayed",)
)
