"""Topics with lite topics, and the lite topics of one with their positions, page by page, since
there may be millions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2
from kvcq_client.pb.v1 import lite_topics_pb2 as pb
from server.console.addresses import address
from server.console.page import Page
from server.console.pages.topics import amount, confirmed, lite_ends
from server.console.visit import PAGE_ROWS
from server.texts import span_ms, span_text
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from server.console.visit import Visit

#: Parents of one page: the lite topics of each are counted.
_PARENTS = 20


async def _parents(visit: Visit) -> web.StreamResponse:
    prefix, after = visit.text("prefix"), visit.token("after")
    request = pb.ListLiteParentsRequest(prefix=prefix, page_size=_PARENTS, page_token=after)
    found, refused, status = await visit.ask_if_allowed(
        "ListLiteParents", request, pb.ListLiteParentsResponse
    )
    return visit.html(
        "lite_parents.html",
        status,
        refused=refused,
        prefix=prefix,
        rows=[(one.topic, one.lite, lite_ends(one.lite, visit.words)) for one in found.parents],
        is_first=not after,
        following=found.next_page_token
        and address("/lite-topics", prefix=prefix, after=found.next_page_token),
    )


async def _parent(visit: Visit) -> web.StreamResponse:
    name, prefix, after = visit.text("name"), visit.text("prefix"), visit.token("after")
    described = await visit.ask(
        "DescribeTopic",
        kvcq_pb2.DescribeTopicRequest(name=name, page_size=1),
        kvcq_pb2.DescribeTopicResponse,
    )
    if not described.topic.HasField("lite"):
        raise InvalidArgumentError("name", f"{name!r} is not made for lite topics")
    found = await visit.ask(
        "ListLiteTopics",
        pb.ListLiteTopicsRequest(
            topic=name, prefix=prefix, page_size=PAGE_ROWS, page_token=after, with_states=True
        ),
        pb.ListLiteTopicsResponse,
    )
    lite = described.topic.lite
    return visit.html(
        "lite_parent.html",
        name=name,
        lite=lite,
        ends=lite_ends(lite, visit.words),
        expiry=span_text(lite.expiry_ms) if lite.expiry_ms else "",
        prefix=prefix,
        rows=[
            (one, f"%LMQ%${name}${one}", state)
            for one, state in zip(found.lite_topics, found.states, strict=True)
        ],
        is_first=not after,
        following=found.next_page_token
        and address("/lite-parent", name=name, prefix=prefix, after=found.next_page_token),
    )


async def _make(visit: Visit, form: Mapping[str, str]) -> str:
    topic = form.get("topic", "").strip()
    request = pb.CreateLiteParentRequest(
        topic=topic, expiry_ms=amount(form, "expiry", span_ms, "a time such as 90m, 36h or 7d")
    )
    await visit.ask("CreateLiteParent", request, pb.CreateLiteParentResponse)
    return address("/lite-parent", name=topic, notice="liteMade")


async def _delete(visit: Visit, form: Mapping[str, str]) -> str:
    parent, prefix = form.get("parent", ""), form.get("prefix", "")
    request = pb.DeleteLiteTopicsRequest(topic=parent, lite_topics=[confirmed(form)])
    done = await visit.ask("DeleteLiteTopics", request, pb.DeleteLiteTopicsResponse)
    if done.deleted:
        return address("/lite-parent", name=parent, prefix=prefix, notice="liteDeleted")
    return address("/lite-parent", name=parent, prefix=prefix, notice="liteGone")


PAGE = Page(
    "liteTopics",
    "/lite-topics",
    {"/lite-topics": _parents, "/lite-parent": _parent},
    {"/lite-topics/make": _make, "/lite-topics/delete": _delete},
    needs=("ListLiteParents",),
)
