"""Messages by offset, time, key or id, and one message with all it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.console.addresses import address
from server.console.page import Page
from server.console.shown import body_of
from server.console.visit import INT32_MAX

if TYPE_CHECKING:
    from server.console.visit import Visit

_ROWS = 20
#: Of records on one page; one message always fits.
_PAGE_BYTES = 2 << 20
#: How messages are looked for.
WAYS = ("offset", "time", "key", "id")


async def _list(visit: Visit) -> web.StreamResponse:
    by = visit.text("by") if visit.text("by") in WAYS else WAYS[0]
    topic, message_id = visit.text("topic"), visit.text("id")
    if by == "id" and message_id:
        raise web.HTTPSeeOther(address("/message", id=message_id))
    if not topic:
        return _page(visit, by, None)
    if by == "key":
        return await _by_key(visit, topic)
    queue_id = visit.whole("queue", most=INT32_MAX)
    if by == "time":
        if not visit.text("time"):
            return _page(visit, by, None)
        offset = await _offset_at(visit, topic, queue_id)
        raise web.HTTPSeeOther(
            address("/messages", by="offset", topic=topic, queue=queue_id, offset=offset)
        )
    return await _by_offset(visit, topic, queue_id)


async def _by_offset(visit: Visit, topic: str, queue_id: int) -> web.StreamResponse:
    """From an offset on; without one, the newest."""
    bounds = await visit.ask(
        "GetOffsets",
        pb.GetOffsetsRequest(queues=[pb.Queue(topic=topic, queue_id=queue_id)]),
        pb.GetOffsetsResponse,
    )
    low, high = bounds.queues[0].min_offset, bounds.queues[0].max_offset
    newest = max(low, high - _ROWS)
    offset = min(max(visit.whole("offset", newest), low), high)
    found = await visit.ask(
        "Pull",
        pb.PullRequest(
            topic=topic,
            queue_id=queue_id,
            offset=offset,
            max_messages=_ROWS,
            max_bytes=_PAGE_BYTES,
            form=pb.RECORD_FORM_DECODED,
        ),
        pb.PullResponse,
    )

    def at(there: int) -> str:
        return address("/messages", by="offset", topic=topic, queue=queue_id, offset=there)

    return _page(
        visit,
        "offset",
        found.messages,
        low=low,
        high=high,
        offset=offset,
        earlier=at(max(low, offset - _ROWS)) if offset > low else "",
        later=at(found.next_offset) if found.next_offset < high else "",
        oldest=at(low),
        newest=at(newest),
    )


async def _offset_at(visit: Visit, topic: str, queue_id: int) -> int:
    found = await visit.ask(
        "SearchTime",
        pb.SearchTimeRequest(
            topic=topic,
            queue_id=queue_id,
            time_ms=visit.moment("time"),
            boundary=pb.TIME_BOUNDARY_LOWER,
        ),
        pb.SearchTimeResponse,
    )
    return found.offset


async def _by_key(visit: Visit, topic: str) -> web.StreamResponse:
    key, cursor = visit.text("key"), visit.token("after")
    if not key:
        return _page(visit, "key", None)
    found = await visit.ask(
        "Query",
        pb.QueryRequest(
            topic=topic,
            key=key,
            max_messages=_ROWS,
            cursor=_cursor_in(cursor),
            form=pb.RECORD_FORM_DECODED,
        ),
        pb.QueryResponse,
    )
    more = not found.complete
    return _page(
        visit,
        "key",
        found.messages,
        later=address("/messages", by="key", topic=topic, key=key, after=found.cursor.hex())
        if more
        else "",
    )


def _cursor_in(text: str) -> bytes:
    """A cursor as it stands in an address; the store says what it thinks of one that is none."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return text.encode(errors="replace")


def _page(
    visit: Visit,
    by: str,
    messages: object,
    **found: object,
) -> web.Response:
    blank = dict.fromkeys(("low", "high", "offset", "earlier", "later", "oldest", "newest"), "")
    names = ("topic", "queue", "key", "time", "id")
    return visit.html(
        "messages.html",
        by=by,
        ways=WAYS,
        messages=messages,
        asked={name: visit.text(name) for name in names},
        **{**blank, **found},
    )


async def _message(visit: Visit) -> web.StreamResponse:
    found = await visit.ask("Get", pb.GetRequest(message_id=visit.text("id")), pb.GetResponse)
    body = await visit.backend.workers.run(body_of, found.message)
    return await visit.long_html(
        "message.html",
        message=found.message,
        properties=sorted(found.message.properties.items()),
        body=body,
    )


PAGE = Page("messages", "/messages", {"/messages": _list, "/message": _message})
