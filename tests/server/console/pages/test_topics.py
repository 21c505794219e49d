"""Topics and light queues: by prefix, page by page, created and deleted."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.console.pages.topics import MAX_COUNTED_QUEUES
from server.console.visit import PAGE_ROWS

if TYPE_CHECKING:
    from tests.support.consoles import ConsoleClient
    from tests.support.serving import Served


async def _create(served: Served, *names: str, queues: int = 1) -> None:
    await served.topics.CreateTopics(
        pb.CreateTopicsRequest(
            topics=[pb.CreateTopicRequest(name=name, queue_count=queues) for name in names]
        )
    )


async def _put(served: Served, topic: str, count: int, *light: str) -> None:
    for _ in range(count):
        message = pb.Message(topic=topic, queue_id=0, body=b"x", light_queues=light)
        await served.messages.Put(pb.PutRequest(message=message))


async def _all_pages(client: ConsoleClient, path: str, begin: str) -> list[str]:
    """The links of all pages that begin so, in order."""
    found: list[str] = []
    while True:
        page = await client.get(path)
        assert page.status == 200
        rows = [link for link in page.links if link.startswith(begin)]
        assert len(rows) <= PAGE_ROWS
        found += rows
        if "Next page" not in page.text:
            return found
        path = page.link("Next page")


async def test_all_topics_stand_on_pages_in_order(served: Served, console: ConsoleClient) -> None:
    names = [f"t{number:03}" for number in range(2 * PAGE_ROWS + 1)]
    await _create(served, *names)
    found = await _all_pages(console, "/topics", "/topic?")
    assert found == [f"/topic?name={name}" for name in names]


async def test_topics_by_prefix(served: Served, console: ConsoleClient) -> None:
    await _create(served, "apple", "apricot", "banana", "%RETRY%ap", "a_p|x-9")
    found = await _all_pages(console, "/topics?prefix=ap", "/topic?")
    assert found == ["/topic?name=apple", "/topic?name=apricot"]
    found = await _all_pages(console, "/topics?prefix=%25RETRY", "/topic?")
    assert found == ["/topic?name=%25RETRY%25ap"]
    assert (await console.get(found[0])).status == 200
    page = await console.get("/topics?prefix=none")
    assert "No topic matches." in page.text
    page = await console.get("/topics?prefix=<script>alert(1)</script>")
    assert "<script>alert" not in page.html


async def test_a_prefix_stays_on_the_next_page(served: Served, console: ConsoleClient) -> None:
    await _create(served, "b", *(f"a{number:03}" for number in range(PAGE_ROWS + 5)))
    page = await console.get("/topics?prefix=a")
    page = await console.get(page.link("Next page"))
    assert 'value="a"' in page.html
    assert sum(link.startswith("/topic?") for link in page.links) == 5
    assert page.link("First page") == "/topics?prefix=a"


async def test_messages_are_counted(served: Served, console: ConsoleClient) -> None:
    await _create(served, "orders", queues=2)
    await _put(served, "orders", 3)
    assert "orders 2 3" in (await console.get("/topics")).text


async def test_topics_with_very_many_queues_have_no_count(
    served: Served, console: ConsoleClient
) -> None:
    await _create(served, "wide", queues=MAX_COUNTED_QUEUES + 1)
    page = await console.get("/topics")
    assert re.search(rf"wide {MAX_COUNTED_QUEUES + 1:,} \D ", page.text)


async def test_a_topic_with_its_queues(served: Served, console: ConsoleClient) -> None:
    await _create(served, "orders", queues=PAGE_ROWS + 2)
    await _put(served, "orders", 3)
    page = await console.get("/topic?name=orders")
    assert "0 0 3 3 Messages" in page.text
    assert "Delete" not in page.text
    assert "Change the limits" not in page.text
    found = await _all_pages(console, "/topic?name=orders", "/messages?by=offset")
    assert len(found) == PAGE_ROWS + 2
    assert found[-1] == f"/messages?by=offset&topic=orders&queue={PAGE_ROWS + 1}"


async def test_light_queues_by_prefix(served: Served, console: ConsoleClient) -> None:
    await _create(served, "orders")
    await _put(served, "orders", 2, "%LMQ%user-1", "%LMQ%user-2", "%LMQ%$p$q")
    await _put(served, "orders", 1, "%LMQ%user-2")
    page = await console.get("/light-queues")
    assert "%LMQ%$p$q 2" in page.text
    page = await console.get("/light-queues?prefix=user")
    assert "%LMQ%user-1 2 %LMQ%user-2 3" in page.text
    assert "$p$q" not in page.text
    links = [link for link in page.links if "LMQ" in link]
    page = await console.get(links[0])
    assert page.status == 200
    assert "from 0 up to, but not including, 2" in page.text
    page = await console.get("/light-queues?prefix=%25LMQ%25user-2")
    assert "%LMQ%user-2 3" in page.text
    assert "matches" in (await console.get("/light-queues?prefix=none")).text


async def test_many_light_queues_stand_on_pages(served: Served, console: ConsoleClient) -> None:
    await _create(served, "orders")
    names = [f"%LMQ%q{number:03}" for number in range(PAGE_ROWS + 3)]
    await _put(served, "orders", 1, *names)
    found = await _all_pages(console, "/light-queues?prefix=q", "/messages?")
    assert len(found) == len(set(found)) == PAGE_ROWS + 3


async def test_a_topic_that_cannot_be_created(served: Served, admin: ConsoleClient) -> None:
    for form, status, text in [
        ({"name": "a b", "queues": "1"}, 400, "a b"),
        ({"name": "../x"}, 400, "topic"),
        ({"name": ""}, 400, "topic"),
        ({"name": "new", "queues": "-1"}, 400, "queues"),
        ({"name": "new", "queues": "9" * 30}, 400, "queues"),
        ({"name": "new", "queues": "one"}, 400, "queues"),
        ({"name": "orders", "queues": "7"}, 409, "TOPIC_EXISTS"),
        ({}, 400, "topic"),
    ]:
        await _create(served, "orders", queues=2)
        answer = await admin.post("/topics/create", form)
        assert answer.status == status
        assert text in answer.text
        found = await served.topics.ListTopics(pb.ListTopicsRequest())
        assert [topic.name for topic in found.topics] == ["orders"]


async def test_a_topic_is_deleted_when_its_name_is_typed_again(
    served: Served, admin: ConsoleClient
) -> None:
    await _create(served, "orders", "others")
    for typed in ("", "order", "others"):
        answer = await admin.post("/topics/delete", {"name": "orders", "typed": typed})
        assert answer.status == 400
        assert "type the name to confirm" in answer.text
    assert "orders" in (await admin.get("/topics")).text
    answer = await admin.post("/topics/delete", {"name": "orders", "typed": "orders"})
    page = await admin.follow(answer)
    assert "Deleted." in page.text
    assert "orders" not in page.text
    assert "others" in page.text


async def test_a_notice_is_one_of_ours(console: ConsoleClient) -> None:
    for notice in ("nothing", "<b>x</b>", "__class__", "a.b"):
        page = await console.get(f"/topics?notice={notice}")
        assert page.status == 200
        assert 'class="notice"' not in page.html


async def test_names_that_are_none(console: ConsoleClient) -> None:
    for path in ["/topics?prefix=a%0ab", "/topic?name=a%00b", "/topic", "/topic?name="]:
        assert (await console.get(path)).status in (400, 404)


async def test_a_token_of_somebody_else(console: ConsoleClient) -> None:
    assert (await console.get("/topic?name=x&after=%ff")).status in (400, 404)
    assert (await console.get("/groups?after=" + "x" * 3000)).status in (200, 400)


async def test_what_a_topic_keeps(served: Served, console: ConsoleClient) -> None:
    await _create(served, "kept", "other")
    await served.topics.UpdateTopic(
        pb.UpdateTopicRequest(
            name="kept", retention_time_ms=7_200_000, retention_bytes=1 << 30, retention_messages=5
        )
    )
    assert (
        "Keeps at most: 2 h · 1.0 GiB · 5 messages" in (await console.get("/topic?name=kept")).text
    )
    assert "Keeps" not in (await console.get("/topic?name=other")).text


async def test_what_is_hidden_and_still_in_the_log(
    served: Served, console: ConsoleClient, admin: ConsoleClient
) -> None:
    await _create(served, "kept")
    await _put(served, "kept", 5)
    await asyncio.to_thread(served.store.wait_visible)
    assert "Hidden" not in (await console.get("/topic?name=kept")).text
    await served.topics.UpdateTopic(
        pb.UpdateTopicRequest(name="kept", retention_messages=2, retention_latest=True)
    )
    page = await admin.get("/topic?name=kept")
    assert "2 messages · the latest message of each key" in page.text
    assert "Hidden, still in the log" in page.text
    assert "0 3 5 2 3 Messages" in page.text


async def test_what_a_topic_keeps_is_changed_by_a_form(
    served: Served, admin: ConsoleClient
) -> None:
    await _create(served, "kept")
    form = {"name": "kept", "time": "36h", "bytes": "10GiB", "messages": "5", "latest": "true"}
    page = await admin.follow(await admin.post("/topics/keep", form))
    assert "1 d 12 h · 10.0 GiB · 5 messages · the latest message of each key" in page.text
    for value in ('value="36h"', 'value="10GiB"', 'value="5"', "checked"):
        assert value in page.html, "the form has what holds now"
    found = await served.topics.DescribeTopic(pb.DescribeTopicRequest(name="kept"))
    assert found.topic.retention.time_ms == 36 * 3_600_000
    page = await admin.follow(await admin.post("/topics/keep", {"name": "kept", "messages": "7"}))
    assert "Keeps at most: 7 messages" in page.text, "what is empty sets no limit"
    page = await admin.follow(await admin.post("/topics/keep", {"name": "kept"}))
    assert "Keeps at most" not in page.text


async def test_what_a_topic_cannot_keep(served: Served, admin: ConsoleClient) -> None:
    await _create(served, "kept")
    for form, status, text in (
        ({"time": "soon"}, 400, "'soon' is not 0 or a time such as 90m, 36h or 7d"),
        ({"time": "36"}, 400, "time"),
        ({"bytes": "-1"}, 400, "bytes"),
        ({"bytes": "9" * 15 + "TiB"}, 400, "bytes"),
        ({"messages": "many"}, 400, "messages"),
        ({"time": "7d"}, 400, "reserved_hours"),
        ({"name": "none", "time": "1h"}, 404, "none"),
    ):
        answer = await admin.post("/topics/keep", {"name": "kept", **form})
        assert answer.status == status, form
        assert text in answer.text
    found = await served.topics.DescribeTopic(pb.DescribeTopicRequest(name="kept"))
    assert not found.topic.HasField("retention")


async def test_the_groups_of_a_topic_with_what_is_before_them(
    served: Served, console: ConsoleClient
) -> None:
    await _create(served, "orders", "others")
    await _put(served, "orders", 5)
    await asyncio.to_thread(served.store.wait_visible)
    for group, topic, offset in (("far", "orders", 1), ("near", "orders", 4), ("no", "others", 0)):
        position = pb.QueuePosition(topic=topic, queue_id=0, offset=offset)
        await served.groups.CommitOffsets(pb.CommitOffsetsRequest(group=group, offsets=[position]))
    page = await console.get("/topic?name=orders")
    assert re.search(r"Groups of this topic .* far 4 20.* near 1 20", page.text)
    assert "/group?name=no" not in page.links
