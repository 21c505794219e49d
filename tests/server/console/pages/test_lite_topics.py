"""Topics with lite topics, and lite topics: listed, searched, made, deleted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kvcq_client.pb.v1 import kvcq_pb2
from server.console.visit import PAGE_ROWS
from store.lite import Action
from store.metadata import LiteGroup, SharedGroup

if TYPE_CHECKING:
    from tests.support.consoles import ConsoleClient
    from tests.support.serving import Served


async def _fill(served: Served, names: list[str], expiry_ms: int = 604_800_000) -> None:
    await asyncio.to_thread(served.store.lite.make, "chats", expiry_ms)
    light = [f"%LMQ%$chats${name}" for name in names]
    message = kvcq_pb2.Message(topic="chats", queue_id=0, body=b"x", light_queues=light)
    await served.messages.Put(kvcq_pb2.PutRequest(message=message))


async def _subscribe(served: Served, name: str) -> None:
    settings = SharedGroup(lite=LiteGroup("chats"))
    await asyncio.to_thread(served.store.groups.create, "bots", settings)
    await asyncio.to_thread(served.store.lite.sync, "bots", "c", Action.ADD, [name])


async def test_parents_are_listed_with_what_they_have(
    served: Served, console: ConsoleClient
) -> None:
    assert "No topic has lite topics" in (await console.get("/lite-topics")).text
    await _fill(served, ["a", "b", "c"])
    await _subscribe(served, "a")
    await asyncio.to_thread(served.store.lite.make, "agents", 0)
    page = await console.get("/lite-topics")
    assert "agents 0 0 never chats 3 1 7" in page.text
    page = await console.get("/lite-topics?prefix=ch")
    assert "agents" not in page.text
    page = await console.get(page.link("chats"))
    assert "Lite topics of chats" in page.text


async def test_lite_topics_say_where_they_stand(served: Served, console: ConsoleClient) -> None:
    await _fill(served, ["tea-1", "tea-2", "milk-1"])
    await _subscribe(served, "tea-2")
    page = await console.get("/lite-parent?name=chats")
    assert "tea-1 0 1 2" in page.text
    rows = page.html.split("<tr>")
    [subscribed] = [row for row in rows if ">tea-2</a>" in row]
    [alone] = [row for row in rows if ">tea-1</a>" in row]
    assert (subscribed.count(">2"), alone.count(">2")) == (1, 2), "one of them does not end"
    assert "Delete" not in page.text.replace("Deleted", ""), "that is for administrators"
    shown = await console.get(page.link("tea-1"))
    assert "%LMQ%$chats$tea-1" in shown.html
    page = await console.get("/lite-parent?name=chats&prefix=milk")
    assert "milk-1" in page.text
    assert "tea-1" not in page.text
    assert 'name="name" value="chats"' in page.html, "a search stays with its topic"


async def test_a_page_of_many_leads_to_the_next(served: Served, console: ConsoleClient) -> None:
    names = [f"s{number:03}" for number in range(PAGE_ROWS + 2)]
    await _fill(served, names)
    first = await console.get("/lite-parent?name=chats&prefix=s")
    second = await console.get(first.link("Next page"))
    assert [name for name in names if name in first.text] == names[:PAGE_ROWS]
    assert [name for name in names if name in second.text] == names[PAGE_ROWS:]


async def test_a_topic_and_a_group_lead_to_the_lite_topics(
    served: Served, console: ConsoleClient
) -> None:
    await _fill(served, ["a", "b"])
    await _subscribe(served, "a")
    page = await console.get("/topic?name=chats")
    assert "2 lite topics" in page.text
    assert page.link("2 lite topics") == "/lite-parent?name=chats"
    page = await console.get("/group?name=bots")
    assert page.link("Receives from the lite topics of chats") == "/lite-parent?name=chats"
    await served.topics.CreateTopics(
        kvcq_pb2.CreateTopicsRequest(topics=[kvcq_pb2.CreateTopicRequest(name="plain")])
    )
    assert "/lite-parent" not in (await console.get("/topic?name=plain")).html
    page = await console.get("/lite-parent?name=plain")
    assert page.status == 400
    assert "is not made for lite topics" in page.text


async def test_one_is_deleted_when_its_name_is_typed(served: Served, admin: ConsoleClient) -> None:
    await _fill(served, ["a", "b"])
    form = {"parent": "chats", "name": "a", "prefix": "", "typed": "b"}
    assert (await admin.post("/lite-topics/delete", form)).status == 400
    page = await admin.follow(await admin.post("/lite-topics/delete", {**form, "typed": "a"}))
    assert "The lite topic was deleted." in page.text
    assert served.store.lite.listing.names("chats", "", "", 9) == ["b"]
    page = await admin.follow(await admin.post("/lite-topics/delete", {**form, "typed": "a"}))
    assert "Nothing was deleted" in page.text


async def test_a_parent_is_made_and_gets_another_time(served: Served, admin: ConsoleClient) -> None:
    for expiry, expiry_ms in (("", 0), ("7d", 604_800_000), ("", 0)):
        form = {"topic": "chats", "expiry": expiry}
        page = await admin.follow(await admin.post("/lite-topics/make", form))
        assert "The topic has lite topics." in page.text
        assert served.store.lite.expiry_ms("chats") == expiry_ms


@pytest.mark.parametrize("expiry", ["soon", "1s", "-1d"])
async def test_a_time_that_is_wrong_changes_nothing(
    served: Served, admin: ConsoleClient, expiry: str
) -> None:
    await _fill(served, ["a"])
    answer = await admin.post("/lite-topics/make", {"topic": "chats", "expiry": expiry})
    assert answer.status == 400
    assert served.store.lite.expiry_ms("chats") == 604_800_000
