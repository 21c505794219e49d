"""Topics by prefix, page by page, and one topic with its queues.

A page is a range of the store's names in order, so its cost does not grow with their number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.console.addresses import address
from server.console.page import Page
from server.console.shown import number
from server.console.visit import INT32_MAX, INT64_MAX, PAGE_ROWS, whole_of
from server.errors import ForbiddenError
from server.texts import byte_count, duration, size_bytes, size_text, span_ms, span_text
from store.errors import InvalidArgumentError
from store.light_queue import is_light

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aiohttp import web

    from server.console.visit import Visit
    from server.console.words import Words

#: Queues whose bounds a page of topics looks up; a page with more shows no counts.
MAX_COUNTED_QUEUES = 1000


async def _list(visit: Visit) -> web.StreamResponse:
    prefix = visit.text("prefix")
    try:
        found = await listed(visit, prefix)
    except ForbiddenError as error:
        return narrower(visit, "topics.html", prefix, error)
    return visit.html(
        "topics.html",
        refused="",
        prefix=prefix,
        topics=found.topics,
        counts=await _counts(visit, found.topics),
        is_first=not visit.token("after"),
        following=found.next_page_token
        and address("/topics", prefix=prefix, after=found.next_page_token),
    )


async def listed(visit: Visit, prefix: str, *, light_queues: bool = False) -> pb.ListTopicsResponse:
    """The page of names that the visit requests. Raises ForbiddenError."""
    request = pb.ListTopicsRequest(
        prefix=prefix,
        page_size=PAGE_ROWS,
        page_token=visit.token("after"),
        light_queues=light_queues,
    )
    return await visit.ask("ListTopics", request, pb.ListTopicsResponse)


def narrower(visit: Visit, template: str, prefix: str, error: ForbiddenError) -> web.StreamResponse:
    """Instead of a list: what the user may not see, and a field for a narrower prefix."""
    return visit.html(
        template,
        403,
        refused=str(error),
        prefix=prefix,
        topics=(),
        names=(),
        counts={},
        is_first=True,
        following="",
    )


async def _counts(visit: Visit, topics: Iterable[pb.Topic]) -> dict[str, int]:
    """Messages of each topic. Empty if there are too many queues, or one was just deleted."""
    queues = [
        pb.Queue(topic=topic.name, queue_id=queue_id)
        for topic in topics
        for queue_id in range(min(topic.queue_count, MAX_COUNTED_QUEUES + 1))
    ]
    return await message_counts(visit, queues) if len(queues) <= MAX_COUNTED_QUEUES else {}


async def message_counts(visit: Visit, queues: list[pb.Queue]) -> dict[str, int]:
    """Messages of each topic or light queue, over the given queues."""
    counts: dict[str, int] = {}
    if queues:
        found = await visit.ask(
            "GetOffsets", pb.GetOffsetsRequest(queues=queues), pb.GetOffsetsResponse
        )
        for one in found.queues:
            counts[one.topic] = counts.get(one.topic, 0) + one.max_offset - one.min_offset
    return counts


async def _topic(visit: Visit) -> web.StreamResponse:
    name = visit.text("name")
    found = await visit.ask(
        "DescribeTopic",
        pb.DescribeTopicRequest(name=name, page_size=PAGE_ROWS, page_token=visit.token("after")),
        pb.DescribeTopicResponse,
    )
    retention = found.topic.retention
    return visit.html(
        "topic.html",
        topic=found.topic,
        kept=_kept(retention, visit.words),
        lite_ends=lite_ends(found.topic.lite, visit.words),
        # As the fields of the form take it; empty: no limit.
        keep={
            "time": span_text(retention.time_ms) if retention.time_ms else "",
            "bytes": size_text(retention.bytes) if retention.bytes else "",
            "messages": retention.messages or "",
            "latest": retention.latest,
        },
        groups=await _groups_of(visit, name),
        queues=found.queues,
        # Messages that are hidden, and free their space later.
        hides=any(one.log_min_offset < one.min_offset for one in found.queues),
        supersedes=any(one.superseded_messages for one in found.queues),
        is_first=not visit.token("after"),
        following=found.next_page_token
        and address("/topic", name=name, after=found.next_page_token),
    )


def _kept(retention: pb.Retention, words: Words) -> list[str]:
    """The topic's limits, in words; none for an unlimited one."""
    limits = (
        (retention.time_ms, duration(retention.time_ms / 1000)),
        (retention.bytes, byte_count(retention.bytes)),
        (retention.messages, words("topics.keepsMessages", count=number(retention.messages))),
        (retention.latest, words("topics.keepsLatest")),
    )
    return [text for limit, text in limits if limit]


def lite_ends(parent: pb.LiteParent, words: Words) -> str:
    """When an idle lite topic of the parent is deleted, in words."""
    return duration(parent.expiry_ms / 1000) if parent.expiry_ms else words("lite.never")


async def _groups_of(visit: Visit, topic: str) -> list[pb.GroupLag] | None:
    """Lag of groups on the topic, largest first, of the groups with the largest lag. None if the
    viewer lacks the right."""
    try:
        found = await visit.ask("GetActivity", pb.GetActivityRequest(), pb.GetActivityResponse)
    except ForbiddenError:
        return None
    mine = [one for one in found.groups if one.topic == topic]
    return sorted(mine, key=lambda one: one.messages, reverse=True)


async def _create(visit: Visit, form: Mapping[str, str]) -> str:
    name, count = form.get("name", "").strip(), form.get("queues", "").strip()
    queues = whole_of("queues", count or "0", INT32_MAX)
    wanted = pb.CreateTopicRequest(name=name, queue_count=queues)
    await visit.ask(
        "CreateTopics", pb.CreateTopicsRequest(topics=[wanted]), pb.CreateTopicsResponse
    )
    return address("/topic", name=name, notice="topicCreated")


async def _keep(visit: Visit, form: Mapping[str, str]) -> str:
    name = form.get("name", "")
    request = pb.UpdateTopicRequest(
        name=name,
        retention_time_ms=amount(form, "time", span_ms, "a time such as 90m, 36h or 7d"),
        retention_bytes=amount(form, "bytes", size_bytes, "a size such as 500MB or 10GiB"),
        retention_messages=whole_of("messages", form.get("messages", "").strip() or "0", INT64_MAX),
        retention_latest=form.get("latest") == "true",
    )
    await visit.ask("UpdateTopic", request, pb.UpdateTopicResponse)
    return address("/topic", name=name, notice="topicChanged")


def amount(
    form: Mapping[str, str], name: str, read: Callable[[str], int | None], example: str
) -> int:
    """A field of the form; 0 if it is empty. Raises InvalidArgumentError."""
    text = form.get(name, "").strip()
    amount = read(text) if text else 0
    if amount is None or amount > INT64_MAX:
        raise InvalidArgumentError(name, f"{text[:40]!r} is not 0 or {example}")
    return amount


async def _delete(visit: Visit, form: Mapping[str, str]) -> str:
    name = confirmed(form)
    await visit.ask("DeleteTopic", pb.DeleteTopicRequest(name=name), pb.DeleteTopicResponse)
    return address("/light-queues" if is_light(name) else "/topics", notice="topicDeleted")


def confirmed(form: Mapping[str, str]) -> str:
    """The name of what is to be deleted, typed a second time. Raises InvalidArgumentError."""
    name = form.get("name", "")
    if form.get("typed", "").strip() != name:
        raise InvalidArgumentError("typed", f"does not match {name!r}: type the name to confirm")
    return name


PAGE = Page(
    "topics",
    "/topics",
    {"/topics": _list, "/topic": _topic},
    {"/topics/create": _create, "/topics/keep": _keep, "/topics/delete": _delete},
)
