"""The newest messages of a topic; messages by offset, time, key or id; all details of one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from kvcq_client import Trace, TracedGroup, TraceGroupState
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.wire import from_wire
from server.console.addresses import address
from server.console.page import Page
from server.console.shown import body_of
from server.console.visit import INT32_MAX
from store.light_queue import is_light

if TYPE_CHECKING:
    from server.console.visit import Visit

_ROWS = 20
#: Bytes of records on one page; one message always fits.
_PAGE_BYTES = 2 << 20
#: Queues of a topic that are looked at for its newest messages.
MERGED_QUEUES = 256
#: Reads in the event loop before other calls get their turn.
_READS_A_TURN = 16
#: How often hidden messages are stepped over to find one; each step is twice as long, from 16 on.
_STEPS_BACK = 10
#: How messages are looked for.
WAYS = ("recent", "offset", "time", "key", "id")


async def _list(visit: Visit) -> web.StreamResponse:
    topic, message_id = visit.text("topic"), visit.text("id")
    usual = "offset" if visit.text("queue") or visit.text("offset") or is_light(topic) else "recent"
    by = visit.text("by") if visit.text("by") in WAYS else usual
    if by == "id" and message_id:
        raise web.HTTPSeeOther(address("/message", id=message_id))
    if not topic:
        return _page(visit, by, None)
    if by == "key":
        return await _by_key(visit, topic)
    if by == "recent" and not is_light(topic):
        return await _newest(visit, topic)
    queue_id = visit.whole("queue", most=INT32_MAX)
    if by == "time":
        if not visit.text("time"):
            return _page(visit, by, None)
        offset = await _offset_at(visit, topic, queue_id)
        raise web.HTTPSeeOther(
            address("/messages", by="offset", topic=topic, queue=queue_id, offset=offset)
        )
    return await _by_offset(visit, topic, queue_id)


async def _newest(visit: Visit, topic: str) -> web.StreamResponse:
    """The last messages of all queues together, newest first."""
    described = await visit.ask(
        "DescribeTopic",
        pb.DescribeTopicRequest(name=topic, page_size=MERGED_QUEUES),
        pb.DescribeTopicResponse,
    )
    queues = described.queues[:MERGED_QUEUES]
    #: By queue, its newest message that is not used yet.
    heads: dict[int, pb.StoredMessage] = {}
    found: list[pb.StoredMessage] = []
    reads = 0

    async def pull(queue_id: int, offset: int, most: int) -> pb.PullResponse:
        nonlocal reads
        reads += 1
        if reads % _READS_A_TURN == 0:
            await asyncio.sleep(0)
        request = pb.PullRequest(
            topic=topic,
            queue_id=queue_id,
            offset=offset,
            max_messages=most,
            max_bytes=_PAGE_BYTES,
            form=pb.RECORD_FORM_DECODED,
        )
        return await visit.ask("Pull", request, pb.PullResponse)

    async def step_back(queue_id: int, low: int, offset: int) -> None:
        """Find the last message up to the offset; later messages with their keys may hide some."""
        heads.pop(queue_id, None)
        begin = end = offset
        for step in range(_STEPS_BACK):
            at = begin
            while low <= at <= end:
                pulled = await pull(queue_id, at, end + 1 - at)
                for one in pulled.messages:
                    if one.queue_offset <= end:
                        heads[queue_id] = one
                if pulled.next_offset <= at:
                    break
                at = pulled.next_offset
            if queue_id in heads or begin <= low:
                return
            begin, end = max(low, begin - (16 << step)), begin - 1

    lows = {one.queue_id: one.min_offset for one in queues}
    for one in queues:
        await step_back(one.queue_id, one.min_offset, one.max_offset - 1)
    size = 0
    while heads and len(found) < _ROWS and size < _PAGE_BYTES:
        newest = max(heads.values(), key=lambda one: (one.store_time_ms, one.physical_offset))
        found.append(newest)
        size += len(newest.body)
        await step_back(newest.queue_id, lows[newest.queue_id], newest.queue_offset - 1)
    return _page(
        visit,
        "recent",
        found,
        only_first=len(queues) if described.topic.queue_count > len(queues) else 0,
    )


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
    """A cursor from an address; the store validates it."""
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
    blank["only_first"] = ""
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
    message_id = found.message.message_id
    request = pb.TraceRequest(message_id=message_id, page_token=visit.token("after"))
    trace = from_wire(Trace, await visit.ask("Trace", request, pb.TraceResponse))
    return await visit.long_html(
        "message.html",
        message=found.message,
        trace=trace,
        # If the message is done, the last event says how.
        outcomes=[(one, _outcome(trace, one)) for one in trace.groups],
        following=trace.next_page_token
        and address("/message", id=message_id, after=trace.next_page_token),
        properties=sorted(found.message.properties.items()),
        body=body,
    )


def _outcome(trace: Trace, one: TracedGroup) -> str:
    """The key of the text for the message's state in the group."""
    events = trace.events_of(one)
    if one.state is TraceGroupState.DONE and events:
        return f"traceEvent.{events[-1].what.name}"
    return f"traceGroup.{one.state.name}"


PAGE = Page("messages", "/messages", {"/messages": _list, "/message": _message})
